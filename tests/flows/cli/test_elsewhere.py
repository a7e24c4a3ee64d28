"""The commands where what only Linux has is missing: as far as macOS can be tried without one."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.capture import freed, reading_ahead
from store.repository import Repository
from store.verify import census


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Take away what Linux and glibc have; return the calls of what macOS has in their place."""
    calls: list[str] = []
    real = ctypes.CDLL

    def volume(*_: object) -> int:
        calls.append("fsync_volume_np")
        return 0

    def library(name: str | None, *rest: object, **options: object) -> object:
        if name is None:
            return SimpleNamespace(fsync_volume_np=volume)
        return real(name, *rest, **options)  # type: ignore[arg-type]  # passed on as it came

    def nothing(name: str | int) -> int:
        raise ValueError(f"unrecognized configuration name {name}")

    def no_link(path: Path) -> Path:
        raise FileNotFoundError(path)

    monkeypatch.setattr(ctypes, "CDLL", library)
    monkeypatch.setattr(os, "sysconf", nothing)
    monkeypatch.setattr(Path, "readlink", no_link)
    monkeypatch.setattr(freed, "_ADVICE", None)
    monkeypatch.setattr(reading_ahead, "_MEMORY", tmp_path / "no" / "meminfo")
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(mmap, "MAP_POPULATE", raising=False)
    return calls


def test_a_checkpoint_is_stored_measured_checked_and_exported(
    run, store: str, run_folder: Path, tmp_path: Path, elsewhere: list[str]
) -> None:
    told = run("ingest", str(run_folder), "--corpus", "cats", "--steps", "5").output
    assert "1 of 1 checkpoints were run" in told
    assert elsewhere
    assert "values computed" in run("compute", "average_cosine").output
    assert census(Repository.open(store)) == []
    run("export", "cats/tiny", "--format", "safetensors", "-o", str(tmp_path / "out"))
    assert "an unknown amount of memory" in run("doctor").output
