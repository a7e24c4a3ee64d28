"""A small model whose activations follow from (step, site, variant): run in tests and by them.

Its :func:`main` ingests steps one after the other in a process that tests start, and kill.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import timedelta

import numpy as np

from store.corpora import CorpusSpec, create_corpus
from store.create import ArraySpec, create_model
from store.repository import Repository
from store.schema import SITES, TOKEN, TOKEN_COORDINATES
from store.write import AlreadyStored, StepWriter, reserve_step

PATH = "plays/owner--toy"
N_TOKENS, N_BLOCKS, WIDTH, ROWS = 50, 3, 64, 16
SIZES = {
    "layer": N_BLOCKS + 1,
    "block": N_BLOCKS,
    "head": 2,
    "key_value_head": 1,
    "token": N_TOKENS,
    "dim": WIDTH,
    "head_dim": WIDTH // 2,
}
CORPUS = CorpusSpec("plays", "text", {"unit": "chars", "size": 25}, 0, "c0ffee")


def array_spec(site):
    variable = SITES[site]
    return ArraySpec(variable, {name: SIZES[name] for name in variable.dims[1:]})


def tokens():
    columns = {name: np.zeros(N_TOKENS, item.dtype) for name, item in TOKEN_COORDINATES.items()}
    columns["token_id"] = np.arange(N_TOKENS)
    columns["sequence"] = np.arange(N_TOKENS) // 25
    columns["position"] = np.arange(N_TOKENS) % 25
    return columns


def prepare(uri, sites: Sequence[str] = ("residual", "final_norm"), **options) -> Repository:
    """Create the store, the corpus and the model's group, or what is missing of them."""
    repository = Repository.open_or_create(uri)
    create_corpus(
        repository, CORPUS, texts=["to be", "or not"], sources=["a", "a"], source_starts=[0, 5]
    )
    attributes = {"n_blocks": N_BLOCKS, "width": WIDTH, "chunk_rows": ROWS}
    attributes |= options.pop("attributes", {})
    create_model(
        repository,
        "plays",
        options.pop("model", "owner/toy"),
        arrays=[array_spec(site) for site in sites],
        tokens=options.pop("tokens", tokens()),
        attributes=attributes,
        **options,
    )
    return repository


def values(step, site, variant=0):
    shape = tuple(SIZES[name] for name in SITES[site].dims[1:])
    seed = [step, variant, *site.encode()]
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def write_all(writer: StepWriter, variant=0):
    """Write every block of every site of a step, in blocks of two chunks."""
    for site in writer.sites:
        whole = values(writer.step, site, variant)
        axis = SITES[site].dims[1:].index(TOKEN)
        for start in range(0, writer.n_tokens, 2 * writer.chunk_rows):
            rows = range(start, min(start + 2 * writer.chunk_rows, writer.n_tokens))
            writer.write_block(site, start, whole.take(rows, axis=axis))


def ingest(repository, step, *, variant=0, **options) -> str | AlreadyStored:
    writer = reserve_step(repository, PATH, step, identity={"variant": variant}, **options)
    if isinstance(writer, AlreadyStored):
        return writer
    with writer:
        write_all(writer, variant)
        return writer.commit(provenance={"revision": f"step{step}", "weights_sha256": str(step)})


def stored(repository, step, snapshot=None):
    """Return {site: values} of a complete step as Zarr reads them, None if it is not there."""
    group = repository.read(snapshot)[PATH]
    (slots,) = np.nonzero((group["step"][:] == step) & group["complete"][:])
    if not len(slots):
        return None
    (slot,) = slots
    return {site: group[site][int(slot)] for site in str(group["sites"][int(slot)]).split()}


def assert_stored(repository, step, *, variant=0, sites=("residual", "final_norm")):
    found = stored(repository, step)
    assert found is not None, f"step {step} is not there"
    assert sorted(found) == sorted(sites)
    for site, array in found.items():
        np.testing.assert_array_equal(array, values(step, site, variant))


def main(lines, environment, uri, variant, *steps):
    """Ingest steps and say so; after ``"reserved"`` or ``"written"`` only get that far."""
    os.environ.update(environment)
    repository = Repository.open(uri)
    lines.send("ready")
    if steps[0] in ("reserved", "written"):
        stop_half_way(lines, repository, *steps)
    for step in steps:
        outcome = ingest(repository, step, variant=variant, wait=timedelta(minutes=1))
        lines.send(("already" if isinstance(outcome, AlreadyStored) else "stored", step))


def stop_half_way(lines, repository, moment, step):
    """Reserve a step, write it or not, and wait to be killed."""
    writer = reserve_step(repository, PATH, step, identity={"variant": 0})
    if moment == "written":
        write_all(writer)
    lines.send((moment, step))
    time.sleep(600)
