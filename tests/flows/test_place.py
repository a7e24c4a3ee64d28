"""Where a checkpoint lay is recorded so that it is found again from any directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.capture.checkpoints import find_checkpoints


@pytest.mark.parametrize(
    "source",
    [
        "random:gpt2:n_embd=16,n_head=2,activation_function=relu,scale_attn_weights=false@3",
        "random:gpt2",
        "random:runs/tiny/checkpoint-5@1",
        "block:gpt2:n_embd=16,n_head=2,common_bias=2.5@4",
        "runs/tiny/checkpoint-5",
    ],
)
def test_it_is_found_again(
    source: str, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run_folder.parent.parent)
    (one,) = find_checkpoints(source.replace("runs/", f"{run_folder.parent.name}/"))
    place, directory = one.place, one.directory and one.directory.absolute()
    monkeypatch.chdir(tmp_path)
    (again,) = find_checkpoints(place)
    assert (again.model, again.step, again.revision) == (one.model, one.step, one.revision)
    assert again.random == one.random
    assert again.directory == directory
