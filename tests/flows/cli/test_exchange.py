"""``actlas export`` and ``import``: their options reach the store's doors, errors the user."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from safetensors.numpy import load_file

from flows.cli.exchange import FORMATS
from store import open_store
from store.export import FORMATS as KNOWN

PATH = "cats/tiny"


def test_the_help_lists_every_format() -> None:
    assert tuple(KNOWN) == FORMATS


def test_safetensors_hold_the_stored_rows(run, store: str, tmp_path: Path) -> None:
    target = tmp_path / "out"
    arguments = ("--format", "safetensors", "--sites", "residual", "--steps", "10")
    answer = run("export", PATH, *arguments, "--layers", "2", "-o", str(target), "--json").output
    (written,) = json.loads(answer)["written"]
    tensors = load_file(written)
    stored = open_store(store)[PATH]["residual"].sel(step=10, layer=2)
    np.testing.assert_array_equal(tensors["residual.layer_2"], stored)
    assert "final_norm" not in tensors
    taken = run("export", PATH, *arguments, "-o", str(target), code=1).stderr
    assert "Give a new path" in taken


def test_a_corpus_is_exported_as_it_was(run, tmp_path: Path) -> None:
    run("tag", "before")
    run("gc", "--model", PATH, "--drop-steps", "10", "--yes")
    arguments = ("export", "cats", "--format", "zarr", "--tag", "before", "-o")
    output = run(*arguments, str(tmp_path / "out")).output
    assert "Wrote" in output
    (found,) = (tmp_path / "out").glob("*.zarr")
    model = xr.open_zarr(found, group=PATH, consolidated=False)
    assert model["step"].values.tolist() == [0, 10]


@contextmanager
def interrupted(_description: str, *, of_bytes: bool) -> Iterator[Callable[[int, int], None]]:
    """Watch work that Ctrl-C stops while it tells how much of it is done."""
    assert of_bytes
    # A shell lets what it runs in the background ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield lambda _more, _total: os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_export_that_is_stopped_leaves_nothing(
    run, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("flows.cli.exchange.progress_bar", interrupted)
    target = tmp_path / "out"
    told = run("export", PATH, "--format", kind, "-o", str(target), code=1).stderr
    assert f"stopped; nothing was written to {target}" in told
    assert [path.name for path in tmp_path.iterdir()] == [Path(store).name]


def test_an_export_tells_a_terminal_how_far_it_is(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("export", PATH, "--format", "parquet", "--json", "-o")
    assert run(*arguments, str(tmp_path / "piped")).stderr == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    answer = run(*arguments, str(tmp_path / "shown"))
    assert json.loads(answer.stdout)["written"]
    assert f"export {PATH}" in answer.stderr
    assert "B/s" in answer.stderr
    assert run(*arguments, str(tmp_path / "quiet"), "-q").stderr == ""


def test_a_full_disk_is_told_with_where_it_is(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setitem(KNOWN, "zarr", full)
    target = tmp_path / "out"
    told = run("export", PATH, "--format", "zarr", "-o", str(target), code=1).stderr
    assert f"cannot write to {target}: No space left on device" in " ".join(told.split())


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Return a folder of two steps of dumped states (layer, token, dim) and their table."""
    folder = tmp_path / "dump"
    folder.mkdir()
    lines = ["file,step"]
    for step in (0, 5):
        states = np.random.default_rng(step).standard_normal((3, 6, 4), dtype=np.float32)
        np.save(folder / f"{step}.npy", states)
        lines.append(f"{step}.npy,{step}")
    (folder / "labels.csv").write_text("\n".join(lines))
    (folder / "tokens.csv").write_text("sequence,token_id\n" + "0,7\n" * 3 + "1,9\n" * 3)
    return folder


def test_dumped_states_come_in_once(run, store: str, dump: Path) -> None:
    tables = ("--labels", str(dump / "labels.csv"), "--tokens", str(dump / "tokens.csv"))
    one = run("import", "dumps/mine", str(dump / "5.npy"), *tables, "--json").output
    assert json.loads(one) == {
        "path": "dumps/mine",
        "stored": [5],
        "known": [],
        "unchecked": "",
    }
    assert "stored 1 step, 1 was there already" in run("import", "dumps/mine", *tables).output
    model = open_store(store)["dumps/mine"]
    np.testing.assert_array_equal(model["residual"].sel(step=5), np.load(dump / "5.npy"))
    assert model["token_id"].values.tolist() == [7, 7, 7, 9, 9, 9]
    message = run("verify", "dumps/mine", "--replay", "1", code=1).stderr
    assert "was imported as tensors, so that there is no model to run" in message


def test_an_import_that_is_stopped_goes_on_from_there(
    run, store: str, dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = ("--labels", str(dump / "labels.csv"), "--tokens", str(dump / "tokens.csv"))
    run("import", "dumps/mine", str(dump / "0.npy"), *tables)
    with monkeypatch.context() as patched:
        patched.setattr("flows.cli.exchange.progress_bar", interrupted)
        told = run("import", "dumps/mine", str(dump / "5.npy"), *tables, code=1).stderr
    assert "stopped; steps that were stored whole are kept; the same command goes on" in told
    assert open_store(store)["dumps/mine"]["step"].values.tolist() == [0]
    assert "stored 1 step, 1 was there already" in run("import", "dumps/mine", *tables).output


def test_a_refused_import_leaves_the_store_as_it_was(run, store: str, dump: Path) -> None:
    tables = ("--labels", str(dump / "labels.csv"), "--tokens", str(dump / "tokens.csv"))
    sound = np.load(dump / "0.npy")
    spoiled = sound.copy()
    spoiled[1, 2, 3] = np.nan
    np.save(dump / "0.npy", spoiled)
    before = open_store(store).groups
    told = run("import", "dumps/mine", *tables, code=1).stderr
    assert "1 value of residual, layer 1 of step 0 of dumps/mine is NaN or infinite" in told
    assert open_store(store).groups == before
    # Nor is the model held to what was refused; what is good of several steps stays.
    np.save(dump / "0.npy", sound)
    np.save(dump / "5.npy", spoiled)
    run("import", "dumps/mine", *tables, code=1)
    assert open_store(store)["dumps/mine"]["step"].values.tolist() == [0]
    kept = open_store(store).groups
    run("import", "dumps/other", str(dump / "5.npy"), *tables, code=1)
    assert open_store(store).groups == kept
    # Nor does a store that was made for it stay behind.
    new = dump / "new" / "store"
    alone = (str(dump / "5.npy"), *tables, "--store", str(new))
    told = run("import", "dumps/mine", *alone, code=1).stderr
    assert "store and count such values: --allow-nonfinite" in told
    assert not new.exists()


def test_tokens_of_another_corpus_are_refused(run, store: str, dump: Path) -> None:
    labels = ("--labels", str(dump / "labels.csv"))
    told = run("import", "cats/mine", *labels, code=1).stderr
    assert "corpus 'cats' has 8 texts, and the tensors 1, from 0 to 0" in " ".join(told.split())
    assert "mine" not in open_store(store)["cats"].children


def test_import_errors(run, dump: Path) -> None:
    labels = ("--labels", str(dump / "labels.csv"))
    (dump / "50.npy").touch()
    unknown = run("import", "dumps/mine", str(dump / "50.npy"), *labels, code=2).stderr
    assert "no file" in unknown
    assert "did you mean" in unknown
    assert "is no CORPUS/MODEL" in run("import", "dumps", *labels, code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cats/tinny", "--format", "zarr"], "did you mean 'tiny'"),
        (["cts", "--format", "zarr"], "did you mean 'cats'"),
        (["cats", "--format", "zar"], "'zarr'"),
        (["cats", "--format", "zarr", "--sites", "residul"], "did you mean 'residual'"),
        (["cats", "--format", "zarr", "--steps", "3"], "no step 3"),
        (["cats", "--format", "zarr", "--layers", "9"], "no layer 9"),
    ],
)
def test_what_cannot_be_exported(run, tmp_path: Path, arguments: list[str], message: str) -> None:
    target = tmp_path / "out"
    result = run("export", *arguments, "-o", str(target), code=2)
    assert message in " ".join(result.stderr.split())
    assert not target.exists()
