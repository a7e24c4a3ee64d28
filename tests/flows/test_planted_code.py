"""Code that comes with what actlas is given to read is not executed, whichever way it comes."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from click.testing import CliRunner

from analysis.clusters import connected
from flows.cli import actlas
from store.catalogue import catalogue
from store.repository import Repository


class Planted:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.mark,)


def edit(file: Path, **entries: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def test_none_of_it_is_executed(
    store: str, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTLAS_CACHE", str(tmp_path / "cache"))
    runs, mark = tmp_path / "tiny", tmp_path / "executed"
    code = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\nclass Own: pass\n"
    for step in (1, 2, 3, 4, 5):
        shutil.copytree(run_folder / "checkpoint-0", runs / f"checkpoint-{step}")
    pickled = {"embed_in.weight": Planted(mark)}
    # 1: an archive as PyTorch writes it; 2: a bare pickle, as it used to.
    (runs / "checkpoint-1" / "model.safetensors").unlink()
    torch.save(pickled, runs / "checkpoint-1" / "pytorch_model.bin", pickle_module=pickle)
    (runs / "checkpoint-2" / "model.safetensors").unlink()
    (runs / "checkpoint-2" / "pytorch_model.bin").write_bytes(pickle.dumps(pickled))
    # 3: a model with code of its own; 4: a tokenizer with code of its own.
    edit(
        runs / "checkpoint-3" / "config.json",
        model_type="own",
        auto_map={"AutoConfig": "own.Own", "AutoModel": "own.Own"},
    )
    (runs / "checkpoint-3" / "own.py").write_text(code)
    edit(
        runs / "checkpoint-4" / "tokenizer_config.json",
        tokenizer_class="Own",
        auto_map={"AutoTokenizer": ["own.Own", None]},
    )
    (runs / "checkpoint-4" / "own.py").write_text(code)
    arguments = ["watch", str(runs), "--corpus", "cats", "--once", "--settle", "0s"]
    told = CliRunner().invoke(
        actlas, [*arguments, "--metrics", "none", "--store", store], input="y\n" * 20
    )
    assert told.exit_code == 1
    assert not mark.exists(), told.output
    assert "tiny step 1: " in told.stderr
    assert "is not a complete PyTorch archive" in told.stderr
    assert "needs Python code that comes with it" in told.stderr
    (model,) = catalogue(Repository.open(store))
    # The tokenizer of step 4 is read without its code, or not at all; step 5 has none.
    assert {step.step for step in model.steps if step.complete} <= {4, 5}
    assert 5 in {step.step for step in model.steps if step.complete}


def listening() -> set[tuple[str, int]]:
    """Return the addresses and ports at which this process can be reached."""
    sockets = psutil.Process().net_connections(kind="tcp")
    return {tuple(one.laddr) for one in sockets if one.status == psutil.CONN_LISTEN}


@pytest.mark.slow
@pytest.mark.filterwarnings("default::ResourceWarning")
def test_a_stranger_on_this_machine_does_not_get_into_a_cluster_of_ours() -> None:
    before = listening()
    with connected("local:1") as client:
        address = client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        assert {ip for ip, _ in listening() - before} == {"127.0.0.1"}
        for stranger, error in (
            (address, "TypeError"),
            (address.replace("tls", "tcp"), "Error: |Timed out"),
        ):
            # In a process of its own: a failed client blocks the next one when it is collected.
            code = f"from distributed import Client; Client({stranger!r}, timeout='2s')"
            told = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=False
            )
            assert told.returncode == 1
            assert re.search(error, told.stderr)
