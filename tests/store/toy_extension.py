"""The toy model gets layers, then a site, then tokens, in a process that tests kill."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import toy

from store.corpora import create_corpus, grow_corpus, text_columns
from store.create import ArraySpec, create_model
from store.repository import Repository
from store.schema import SITES, TOKEN, TOKEN_COORDINATES, depth_dimension
from store.write import AlreadyStored, reserve_step

STEPS = (1, 2, 3)
FIRST, EVERY = (1, 2), (0, 1, 2, 3)
SHORT, LONG = 50, 90


def values(step, site, labels, n_tokens):
    """Rows that follow from step and site, for some layers or blocks and the first tokens."""
    dims = SITES[site].dims[1:]
    shape = [LONG if dim == TOKEN else toy.SIZES[dim] for dim in dims]
    whole = np.random.default_rng([step, len(site)]).integers(-99, 99, shape).astype(np.float32)
    whole = whole.take(range(n_tokens), axis=dims.index(TOKEN))
    first = {"layer": 0, "block": 1}.get(depth_dimension(site))
    return whole if first is None else whole[[label - first for label in labels]]


def make_room(repository, layers, sites, n_tokens, digest):
    """Create the model's group, or lengthen its axes."""
    sizes = {"layer": len(layers), "block": len([n for n in layers if n]), TOKEN: n_tokens}
    arrays = [
        ArraySpec(SITES[site], {d: sizes.get(d, toy.SIZES[d]) for d in SITES[site].dims[1:]})
        for site in sites
    ]
    columns = {name: np.zeros(n_tokens, item.dtype) for name, item in TOKEN_COORDINATES.items()}
    facts = {"n_blocks": 3, "width": toy.WIDTH, "chunk_rows": toy.ROWS, "corpus_sha256": digest}
    if layers != EVERY:
        facts["layer_choice"] = list(layers)
    tokens = columns | {"token_id": np.arange(n_tokens)}
    create_model(repository, "plays", "owner/toy", arrays=arrays, tokens=tokens, attributes=facts)


def store(repository, step, sites, layers, identity, grown_from=()):
    asked = {"sites": sites, "layers": layers, "grown_from": grown_from}
    writer = reserve_step(repository, toy.PATH, step, identity=identity, **asked)
    if isinstance(writer, AlreadyStored):
        return
    with writer:
        for site in writer.sites:
            start = writer.held_tokens - writer.held_tokens % toy.ROWS
            if writer.held_tokens:
                writer.held_rows(site)
            rows = values(step, site, writer.layers.get(site, ()), writer.n_tokens)
            axis = SITES[site].dims[1:].index(TOKEN)
            writer.write_block(site, start, rows.take(range(start, writer.n_tokens), axis=axis))
        writer.commit(provenance={"weights_sha256": str(step)})


def prepare(uri):
    """A store with two layers of every step."""
    repository = Repository.open_or_create(uri)
    texts = {"texts": ["to be", "or not"], "sources": ["a", "a"], "source_starts": [0, 5]}
    create_corpus(repository, toy.CORPUS, **texts)
    sites = ("residual", "final_norm")
    make_room(repository, FIRST, sites, SHORT, toy.CORPUS.content_sha256)
    for step in STEPS:
        store(repository, step, sites, FIRST, {"corpus": "short"})
    return repository


def is_grown(repository):
    return repository.read()["plays"].attrs["content_sha256"] == "long"


def grow(repository):
    former = toy.CORPUS.content_sha256
    growth = [
        {"content_sha256": digest, "length": length, "max_sequences": None}
        for digest, length in ((former, 2), ("long", 3))
    ]
    spec = replace(toy.CORPUS, content_sha256="long", growth=growth)
    grow_corpus(repository, spec, text_columns(["more"], ["b"], [0]), former_sha256=former)


def extend(repository, what, step):
    """Give a step all layers, one more site, or more tokens."""
    if what == "tokens":
        make_room(repository, EVERY, ("residual",), LONG, "long")
        store(repository, step, None, None, {"corpus": "long"}, [{"corpus": "short"}])
        return
    site = {"layers": "residual", "sites": "mlp_output"}[what]
    make_room(repository, EVERY, (site,), SHORT, toy.CORPUS.content_sha256)
    store(repository, step, (site,), EVERY, {"corpus": "short"})


def main(lines, environment, uri):
    """Extend every step in every way, as far as it has not been, and say so."""
    os.environ.update(environment)
    repository = Repository.open(uri)
    lines.send("ready")
    grown = is_grown(repository)
    for what in ("layers", "sites"):
        for step in STEPS:
            if not grown:
                extend(repository, what, step)
            lines.send((what, step))
    if not grown:
        grow(repository)
    for step in STEPS:
        extend(repository, "tokens", step)
        lines.send(("tokens", step))
