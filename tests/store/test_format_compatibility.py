"""Stores written by earlier versions open for ever.

``data/store-format-1.tar.gz`` was written by the first version of format 1, with the toy model:
step 7 whole, step 3 with one site, and step 9 reserved by a writer that died. Never replace it.
"""

import tarfile
from pathlib import Path

import numpy as np
import pytest

from store import open_store
from store.catalogue import catalogue
from store.repository import Repository

ARCHIVE = Path(__file__).with_name("data") / "store-format-1.tar.gz"
SITES = ("residual", "final_norm", "query")


@pytest.fixture
def old_store(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return Repository.open(tmp_path / "store-format-1")


def test_it_reads(toy, old_store):
    toy.assert_stored(old_store, 7, sites=SITES)
    toy.assert_stored(old_store, 3, sites=["final_norm"])
    tree = open_store(old_store.uri)
    residual = tree[toy.PATH]["residual"]
    assert list(residual["step"].values) == [3, 7]
    np.testing.assert_array_equal(residual.sel(step=7).values, toy.values(7, "residual"))
    assert np.isnan(residual.sel(step=3).values).all()


def test_it_is_listed(old_store):
    (held,) = catalogue(old_store)
    assert [(item.step, item.complete) for item in held.steps] == [(3, True), (7, True), (9, False)]
    assert held.sites == SITES


def test_it_can_be_written_to(toy, old_store):
    toy.ingest(old_store, 9)
    toy.ingest(old_store, 3)
    for step in (3, 7, 9):
        toy.assert_stored(old_store, step, sites=SITES)
