from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

import flows.capture.digests as digests
from flows.capture.checkpoints import find_checkpoints
from flows.capture.digests import DigestCache
from flows.capture.errors import CheckpointError
from flows.capture.fingerprints import fingerprint
from flows.capture.settling import file_states, is_settled, last_change


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were read, in order."""
    names: list[str] = []
    original = digests.file_sha256

    def counted(file: Path) -> str:
        names.append(file.name)
        return original(file)

    monkeypatch.setattr(digests, "file_sha256", counted)
    # Files of this test are younger than what would be kept.
    monkeypatch.setattr(digests, "_RACY_SECONDS", 0.0)
    return names


def test_a_file_is_read_once_until_it_changes(tmp_path: Path, reads: list[str]) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    cache = DigestCache(tmp_path / "cache")
    assert cache(file) == cache(file) == hashlib.sha256(b"one").hexdigest()
    assert DigestCache(tmp_path / "cache")(file) == hashlib.sha256(b"one").hexdigest()
    assert reads == ["weights"]
    # The same size and the same time of modification: the time of change tells.
    times = file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert cache(file) == hashlib.sha256(b"two").hexdigest()


def test_a_file_that_was_just_written_is_not_remembered(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    DigestCache(tmp_path / "cache")(file)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("entry", ["", "nonsense", "1 2 3 4"])
def test_a_damaged_cache_is_no_harm(tmp_path: Path, reads: list[str], entry: str) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    DigestCache(tmp_path / "cache")(file)
    (kept,) = (path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    kept.write_text(entry)
    assert DigestCache(tmp_path / "cache")(file) == hashlib.sha256(b"one").hexdigest()
    assert len(reads) == 2


def test_where_nothing_can_be_kept_it_is_read_again(tmp_path: Path, reads: list[str]) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    for _ in range(2):
        assert DigestCache(file)(file) == hashlib.sha256(b"one").hexdigest()
    assert len(reads) == 2


def test_the_folder_is_the_users_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_RACY_SECONDS", 0.0)
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("ACTLAS_CACHE", raising=False)
    DigestCache()(file)
    monkeypatch.setenv("ACTLAS_CACHE", str(tmp_path / "own"))
    DigestCache()(file)
    assert (tmp_path / "xdg" / "actlas" / "digests").is_dir()
    assert (tmp_path / "own" / "digests").is_dir()


def test_a_file_that_changes_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"one")

    def slowly(path: Path) -> str:
        path.write_bytes(b"longer")
        return ""

    monkeypatch.setattr(digests, "file_sha256", slowly)
    with pytest.raises(CheckpointError, match="changed while it was read"):
        DigestCache(tmp_path / "cache")(file)


def test_a_cached_fingerprint_is_the_same(tmp_path: Path, saved_model: Path) -> None:
    (checkpoint,) = find_checkpoints(str(saved_model))
    cache = DigestCache(tmp_path / "cache")
    assert fingerprint(checkpoint, digest=cache) == fingerprint(checkpoint)


def test_a_checkpoint_settles_when_nothing_writes_to_it(saved_model: Path) -> None:
    (checkpoint,) = find_checkpoints(str(saved_model))
    assert not is_settled(checkpoint, settle=60)
    assert is_settled(checkpoint, settle=0)
    # What a copy carries over from its original does not count.
    for file in saved_model.iterdir():
        os.utime(file, (0, 0))
    changed = last_change(checkpoint)
    assert changed is not None
    assert time.time() - changed < 60
    assert last_change(find_checkpoints("random:bert")[0]) is None


def test_states_change_with_the_files_that_are_loaded(saved_model: Path) -> None:
    (checkpoint,) = find_checkpoints(str(saved_model))
    before = file_states(checkpoint)
    assert {state.split()[0] for state in before} >= {"config.json", "model.safetensors"}
    (saved_model / "optimizer.pt").write_bytes(b"")
    assert file_states(checkpoint) == before
    weights = saved_model / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    assert file_states(checkpoint) != before
