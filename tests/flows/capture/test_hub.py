# ruff: noqa: F811 - fixtures are arguments of the same name
from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from flows.capture import find_checkpoints, fingerprint, load_tokenizer
from flows.capture.errors import CheckpointError
from flows.capture.fetching import release, with_weights
from flows.capture.steps import parse_step
from flows.capture.weights import load_model

sys.path.insert(0, str(Path(__file__).parent))

from hub_server import REPO, Fault, Hub, folders, gets, served  # noqa: F401 - fixtures


@pytest.mark.parametrize(
    ("name", "step", "rest"),
    [
        ("step1000", 1000, ""),
        ("global_step1000", 1000, ""),
        ("step1000-tokens4B", 1000, ""),
        ("stage1-step1000-tokens4B", 1000, "stage1"),
        ("google/multiberts-seed_0-step_20k", 20_000, "google/multiberts-seed_0"),
        ("TinyLlama-1.1B-intermediate-step-50k-105b", 50_000, "TinyLlama-1.1B"),
        ("checkpoint-64", 64, ""),
        ("ckpt_1.5M", 1_500_000, ""),
    ],
)
def test_names_that_speak_of_a_step(name: str, step: int, rest: str) -> None:
    found = parse_step(name)
    assert found is not None
    assert (found.step, found.rest) == (step, rest)


@pytest.mark.parametrize("name", ["main", "steps", "stepwise2", "two-step", "v1.0", "step1.5"])
def test_names_that_speak_of_none(name: str) -> None:
    assert parse_step(name) is None


def test_revisions_become_steps(served: Hub) -> None:
    found = find_checkpoints(f"{REPO}@all")
    assert [(c.model, c.step) for c in found] == [(REPO, 0), (REPO, 1000)]
    assert found[1].revision == served.refs[REPO]["step1000-tokens4B"].sha
    assert [c.step for c in find_checkpoints(REPO, steps=[1000])] == [1000]
    with pytest.raises(CheckpointError, match=r"has no step 7: it has 0, 1000"):
        find_checkpoints(REPO, steps=[7])


def test_single_revisions(served: Hub) -> None:
    (named,) = find_checkpoints(f"{REPO}@step0")
    assert named.step == 0
    (stated,) = find_checkpoints(f"{REPO}@main=143000")
    assert stated.step == 143_000
    (by_commit,) = find_checkpoints(f"{REPO}@{stated.revision}=5")
    assert by_commit.revision == stated.revision
    (own,) = find_checkpoints("lab/multi-seed_0-step_20k")
    assert (own.model, own.step) == ("lab/multi-seed_0", 20_000)
    assert find_checkpoints("lab/plain")[0].step == 0


def test_what_the_hub_lacks_is_refused(served: Hub) -> None:
    with pytest.raises(
        CheckpointError, match="no revision 'step1001': of its 4, near ones are step1000-to"
    ):
        find_checkpoints(f"{REPO}@step1001")
    with pytest.raises(CheckpointError, match="lab/none is neither a folder here nor a repository"):
        find_checkpoints("lab/none")
    with pytest.raises(CheckpointError, match="no revision of lab/plain speaks of a step"):
        find_checkpoints("lab/plain@all")


def test_an_untrained_model_needs_no_more_than_the_config(
    served: Hub, folders: dict[str, Path]
) -> None:
    (found,) = find_checkpoints(f"random:{REPO}:num_hidden_layers=1@3")
    assert (found.model, found.step, found.revision) == ("random-tiny-neox", 0, "seed3")
    drawn = fingerprint(found)
    (here,) = find_checkpoints(f"random:{folders['same']}:num_hidden_layers=1@3")
    assert drawn == fingerprint(here)
    assert len(load_tokenizer(found)) > 3
    assert not gets(served, "model.safetensors")
    # What is recorded of it finds the same commit again, whatever main is then.
    commit = served.refs[REPO]["main"].sha
    assert found.place == f"random:{REPO}@{commit}:num_hidden_layers=1@3"
    (again,) = find_checkpoints(found.place)
    assert fingerprint(again) == drawn
    (block,) = find_checkpoints(f"block:{REPO}@step0:bias_std=0.1@2")
    assert (block.model, block.step) == ("block-tiny-neox-bias_std=0.1", 2)
    with pytest.raises(CheckpointError, match="has no revision 'step9'"):
        find_checkpoints(f"random:{REPO}@step9")


def test_digests_need_no_weights(served: Hub, folders: dict[str, Path]) -> None:
    zero, one = (fingerprint(c) for c in find_checkpoints(f"{REPO}@all"))
    (main,) = (fingerprint(c) for c in find_checkpoints(f"{REPO}@main"))
    assert not gets(served, "model.safetensors")
    assert zero.weights_sha256 != one.weights_sha256
    assert main.weights_sha256 == one.weights_sha256
    local = fingerprint(find_checkpoints(str(folders["zero"]))[0])
    assert zero == local


def test_a_revision_is_loaded_and_released(served: Hub, folders: dict[str, Path]) -> None:
    zero, one = find_checkpoints(f"{REPO}@all")
    assert len(load_tokenizer(one)) > 3
    loaded = load_model(one, device="cpu")
    assert loaded.stack.final_norm is not None
    assert bool((loaded.stack.final_norm.bias == 1).all())
    load_model(zero, device="cpu")
    assert len(gets(served, "resolve")) == len(set(gets(served, "resolve")))
    folder, other = (with_weights(c).directory for c in (one, zero))
    assert folder is not None
    assert other is not None
    release(one)
    assert not folder.exists()
    # What both share, such as the tokenizer, is still whole for the other.
    assert (other / "tokenizer.json").read_text() == (
        folders["zero"] / "tokenizer.json"
    ).read_text()


def test_a_busy_hub_is_asked_again(served: Hub) -> None:
    served.faults = [Fault("/refs", times=2, status=429)]
    assert len(find_checkpoints(f"{REPO}@all")) == 2
    assert served.waited == [7.0, 7.0]
    served.faults = [Fault("/refs", times=99, status=503)]
    with pytest.raises(CheckpointError, match="cannot be read from the Hub"):
        find_checkpoints(f"{REPO}@all")


def test_a_cut_download_is_taken_up_again(served: Hub) -> None:
    (zero,) = find_checkpoints(f"{REPO}@step0")
    served.faults = [Fault("model.safetensors", times=1, cut_after=1000)]
    directory = with_weights(zero).directory
    assert directory is not None
    assert fingerprint(find_checkpoints(str(directory))[0]).files == fingerprint(zero).files


def test_a_folder_here_goes_before_the_hub(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folders["zero"], tmp_path / REPO)
    monkeypatch.chdir(tmp_path)
    (found,) = find_checkpoints(REPO)
    assert found.hub is None


def test_a_misspelt_folder_is_not_looked_for_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="did you mean 'runs/tiny'"):
        find_checkpoints("runs/tinny")


def test_a_hub_that_cannot_be_reached_is_not_waited_for(
    served: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        CheckpointError, match="is not a folder here, and the Hub cannot be reached"
    ):
        find_checkpoints(REPO)
    assert served.waited == []
