"""What goes wrong between the command line and the Hub: a sentence, a code, and what was kept."""

# ruff: noqa: F811 - fixtures are arguments of the same name
from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from flows.capture import find_checkpoints
from flows.capture.weights import LoadedModel
from flows.cli import actlas
from flows.corpora import Chunking, add_ids, add_texts
from store import open_store
from store.catalogue import catalogue
from store.repository import Repository

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from documents import pieces_of
from hub_server import REPO, Commit, Fault, Hub, folders, gets, served  # noqa: F401 - fixtures

Ingest = Callable[..., Result]


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Return a store with two sequences of ids."""
    uri = str(tmp_path / "store")
    add_ids(uri, "ids", list(np.random.default_rng(0).integers(3, 90, (2, 6))))
    return uri


@pytest.fixture
def ingest(store: str) -> Ingest:
    def invoke(*arguments: str, code: int) -> Result:
        command = ["ingest", *arguments, "--corpus", "ids", "--store", store]
        done = CliRunner().invoke(actlas, command, catch_exceptions=False)
        assert done.exit_code == code, done.output
        assert "Traceback" not in done.output
        return done

    return invoke


def steps_in(store: str) -> list[int]:
    models = catalogue(Repository.open(store))
    return [step.step for model in models for step in model.steps if step.complete]


def test_a_revision_that_does_not_exist(served: Hub, store: str, ingest: Ingest) -> None:
    told = ingest(f"{REPO}@step1001", code=2).stderr
    assert "has no revision 'step1001': of its 4, near ones are step1000-tokens4B, step0" in told
    assert "did you mean" not in ingest("lab/none", code=2).stderr
    assert steps_in(store) == []


def test_gaps_in_a_sweep(served: Hub, store: str, ingest: Ingest) -> None:
    for name in ("step0", "notes"):  # one commit
        del served.refs[REPO][name].files["model.safetensors"]
    done = ingest(REPO, "--steps", "0,7,1000", code=1)
    assert "1 of 3 checkpoints were run" in done.stdout
    told = " ".join(done.stderr.split())
    assert "2 of 3 checkpoints failed, the others are done:" in told
    assert f"{REPO} step 0: {REPO}@step0 holds no weights" in told
    assert f"{REPO} step 7: {REPO} has no step 7: it has 0, 1000" in told
    assert steps_in(store) == [1000]


def test_a_network_lost_half_way(served: Hub, store: str, ingest: Ingest) -> None:
    last = find_checkpoints(f"{REPO}@all")[1].revision
    # Every answer ends after some bytes, however often it is asked for.
    served.faults = [Fault(f"/resolve/{last}/model", times=10**6, cut_after=100)]
    done = ingest(f"{REPO}@all", code=1)
    assert "1 of 2 checkpoints were run" in done.stdout
    assert f"{REPO} step 1000: " in done.stderr
    assert steps_in(store) == [0]
    served.faults = []
    assert "stored already" in ingest(f"{REPO}@all", code=0).output
    assert steps_in(store) == [0, 1000]


def test_code_that_comes_from_the_hub_is_not_even_fetched(
    served: Hub, store: str, ingest: Ingest, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    ran = tmp_path / "ran"
    auto = {"AutoConfig": "mine.Mine", "AutoModel": "mine.My"}
    (folder / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": auto}))
    (folder / "mine.py").write_text(f"open({str(ran)!r}, 'w').close()")
    (folder / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    served.refs["lab/mine"] = {"main": Commit(folder)}
    told = ingest("lab/mine", code=1).stderr
    assert "needs Python code that comes with it, which is not run unless asked for" in told
    assert "--trust-remote-code" in told
    assert not gets(served, "mine.py")
    assert not ran.exists()
    assert steps_in(store) == []


def test_the_lines_of_the_readme(
    served: Hub,
    folders: dict[str, Path],
    store: str,
    tmp_path: Path,
    tiny_model: Callable[..., LoadedModel],
) -> None:
    """Its repositories and revisions, with tiny models in them, through the ordinary client."""
    served.refs["EleutherAI/pythia-70m"] = {
        name: Commit(folders[folder])
        for name, folder in (("main", "one"), ("step0", "zero"), ("step143000", "one"))
    }
    bert = tmp_path / "bert"
    tiny_model("bert").model.config.save_pretrained(bert)
    for file in folders["zero"].glob("*token*"):
        shutil.copy(file, bert)
    served.refs["google-bert/bert-base-uncased"] = {"main": Commit(bert)}
    add_texts(store, "plays", {"a": "To be, or not to be." * 9}, chunking=Chunking("chars", 60))
    swept, drawn = pieces_of(__file__)
    for piece in (swept, drawn):
        command = [*shlex.split(piece.text)[1:], "--store", store]
        done = CliRunner().invoke(actlas, command, catch_exceptions=False)
        assert done.exit_code == 0, done.output
    tree = open_store(store)["plays"]
    assert tree["EleutherAI--pythia-70m"]["step"].values.tolist() == [0, 143000]
    assert list((tmp_path / "cache").rglob("model.safetensors")) == []  # --clean-cache
    (untrained,) = (model for model in tree.children if "pythia" not in model)
    assert "bert-base-uncased" in untrained
    assert tree[untrained]["revision"].values.tolist() == ["seed1"]
