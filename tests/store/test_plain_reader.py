"""docs/STORE_FORMAT.md is enough to read by: a reader of nothing else finds what was stored."""

import ast
import tarfile
from pathlib import Path

import numpy as np
import plain_reader
import pytest
import toy_extension
from toy_extension import EVERY, FIRST, SHORT, STEPS

from store.repository import Repository

DATA = Path(__file__).with_name("data")


def assert_extended(root, toy):
    """Step 1 has all layers, a third site and more tokens, step 2 all layers, step 3 as it was."""
    assert list(plain_reader.models(root)) == [toy.PATH]
    group = root[toy.PATH]
    slots = plain_reader.visible_slots(group)
    assert tuple(slots) == STEPS
    assert plain_reader.token_counts(group) == {1: toy_extension.LONG, 2: SHORT, 3: SHORT}
    sites = {step: str(group["sites"][slot]).split() for step, slot in slots.items()}
    assert sites == {
        1: ["residual", "final_norm", "mlp_output"],
        2: ["residual", "final_norm"],
        3: ["residual", "final_norm"],
    }
    for step, slot in slots.items():
        held = plain_reader.held_layers(group, slot, "residual")
        assert tuple(held) == (FIRST if step == 3 else EVERY)
        for site in sites[step]:
            for label in plain_reader.held_layers(group, slot, site) or [None]:
                found = plain_reader.read(group, step, site, label)
                labels = () if label is None else (label,)
                expected = toy_extension.values(step, site, labels, SHORT)
                np.testing.assert_array_equal(found, np.reshape(expected, found.shape))


def extend(repository):
    for what, step in (("layers", 1), ("layers", 2), ("sites", 1)):
        toy_extension.extend(repository, what, step)
    toy_extension.grow(repository)
    toy_extension.extend(repository, "tokens", 1)


def test_the_reader_knows_nothing_of_ours():
    nodes = list(ast.walk(ast.parse(Path(plain_reader.__file__).read_text())))
    named = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
    named |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert named == {"__future__", "json", "google_crc32c", "icechunk", "numpy", "zarr"}


def test_it_reads_what_was_extended(toy, tmp_path):
    repository = toy_extension.prepare(tmp_path / "store")
    first = repository.snapshot_id()
    extend(repository)
    root = plain_reader.open_root(tmp_path / "store")
    assert root.attrs["actlas_format"] == 3
    assert_extended(root, toy)
    before = plain_reader.open_root(tmp_path / "store", first)[toy.PATH]
    assert tuple(plain_reader.held_layers(before, 0, "residual")) == FIRST
    slot = plain_reader.visible_slots(root[toy.PATH])[3]
    session, writable = repository.write()
    writable[toy.PATH]["residual_checksum"][slot, 0, 0] += 1
    repository.commit(session, "spoil it", rebase=False)
    with pytest.raises(ValueError, match="chunk 0 of residual, step 3, layer 1 is damaged"):
        plain_reader.read(plain_reader.open_root(tmp_path / "store")[toy.PATH], 3, "residual", 1)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_it_reads_the_stores_of_every_format(toy, tmp_path, version):
    with tarfile.open(DATA / f"store-format-{version}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    root = plain_reader.open_root(folder)
    assert root.attrs["actlas_format"] == version
    if version == 3:
        assert_extended(root, toy)
    for path in plain_reader.models(root):
        group = root[path]
        for step, slot in plain_reader.visible_slots(group).items():
            for site in str(group["sites"][slot]).split():
                for label in plain_reader.held_layers(group, slot, site) or [None]:
                    assert np.isfinite(plain_reader.read(group, step, site, label)).all()


def test_a_store_of_format_3_goes_on(toy, tmp_path):
    with tarfile.open(DATA / "store-format-3.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    repository = Repository.open(tmp_path / "store-format-3")
    toy_extension.extend(repository, "tokens", 3)
    assert plain_reader.token_counts(repository.read()[toy.PATH])[3] == toy_extension.LONG
