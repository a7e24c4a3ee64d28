from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import flows.sweep
from flows.capture import find_checkpoints
from flows.capture.checkpoints import Checkpoint
from flows.capture.reading_ahead import available_memory, read_ahead
from flows.capture.weights import LoadedModel
from flows.corpora import add_ids
from flows.running import CaptureOptions
from flows.sweep import Sweep, ingest_sweep

Build = Callable[..., LoadedModel]


def resident(file: Path) -> float:
    """Return the share of the pages of a file that are in memory, as the kernel tells."""
    n_pages = -(-file.stat().st_size // mmap.PAGESIZE)
    told = (ctypes.c_ubyte * n_pages)()
    with file.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as mapped:
        held = ctypes.c_char.from_buffer(mapped)
        there = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(ctypes.addressof(held)), ctypes.c_size_t(len(mapped)), told
        )
        del held
    assert there == 0
    return sum(page & 1 for page in told) / n_pages


def forget(file: Path) -> None:
    """Let the system drop the pages of a file, as it does when something else needs them."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_weights_are_in_memory_before_their_turn(
    saved_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = saved_model / "model.safetensors"
    save_file({"large": np.ones(1 << 23, np.float32)}, weights)
    (checkpoint,) = find_checkpoints(str(saved_model))
    forget(weights)
    monkeypatch.setattr("flows.capture.reading_ahead.available_memory", lambda: 0)
    before = resident(weights)
    assert not read_ahead(checkpoint)
    # Its header is looked at, and the system reads a little further than that.
    assert resident(weights) <= before + 0.5
    monkeypatch.undo()
    assert read_ahead(checkpoint)
    assert resident(weights) == 1


def test_the_model_that_runs_and_the_next_one_have_to_fit(
    saved_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkpoint,) = find_checkpoints(str(saved_model))
    size = (saved_model / "model.safetensors").stat().st_size
    for available, fits in ((3 * size - 1, False), (3 * size, True)):
        monkeypatch.setattr(
            "flows.capture.reading_ahead.available_memory", lambda room=available: room
        )
        assert read_ahead(checkpoint) is fits


def test_memory_that_is_not_told_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_memory() > 1 << 20
    limit = tmp_path / "memory.max"
    limit.write_text("4096\n")
    monkeypatch.setattr("flows.capture.reading_ahead._LIMIT", limit)
    assert available_memory() == 4096
    monkeypatch.setattr("flows.capture.reading_ahead._MEMORY", tmp_path / "missing")
    assert available_memory() == 0


def test_the_next_of_a_sweep_is_read_while_the_present_one_runs(
    tmp_path: Path, saved_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "store")
    add_ids(uri, "ids", list(np.random.default_rng(0).integers(3, 90, (4, 6))))
    (one,) = find_checkpoints(str(saved_model))
    steps = [replace(one, step=step) for step in (0, 1, 2)]
    read = {step: threading.Event() for step in (0, 1, 2)}
    seen: list[bool] = []

    def noting(checkpoint: Checkpoint) -> bool:
        read[checkpoint.step].set()
        return read_ahead(checkpoint)

    @contextmanager
    def report(_name: str) -> Iterator[Callable[[int, int], None]]:
        following = read.get(len(seen) + 1)
        # In the middle of the forward passes of one, the next must come to be read.
        yield lambda _done, _total: seen.append(following is None or following.wait(60))

    monkeypatch.setattr(flows.sweep, "read_ahead", noting)
    outcomes = list(ingest_sweep(Sweep(uri, steps, "ids", CaptureOptions()), report))
    assert all(outcome.result is not None for outcome in outcomes)
    assert seen == [True, True, True]
    assert not read[0].is_set()
