"""Synthetic activations that compress like real ones, and a store to put them in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from store.corpora import CorpusSpec, create_corpus
from store.create import ArraySpec, create_model
from store.identity import JSON
from store.repository import Repository
from store.schema import SITES, TOKEN_COORDINATES
from store.write import AlreadyStored, reserve_step

Values = npt.NDArray[np.float32]

CORPUS = CorpusSpec("corpus", "ids", {}, 0, "0")
MODEL = "model"
PATH = f"{CORPUS.name}/{MODEL}"


def synthetic(layers: int, tokens: int, width: int, *, dtype: str, seed: int = 0) -> Values:
    """Draw values (layer, token, dim) whose dimensions differ in scale, as in trained models.

    Args:
        layers: Number of layers.
        tokens: Number of tokens.
        width: Length of a row.
        dtype: ``"float32"``, or ``"bfloat16"`` for values that a model in bfloat16 could give.
        seed: Seed of the draw.
    """
    draw = np.random.default_rng(seed)
    values = draw.standard_normal((layers, tokens, width), dtype=np.float32)
    values *= np.exp(draw.normal(0, 0.5, width)).astype(np.float32)
    if dtype == "bfloat16":
        values.view(np.uint32)[...] &= np.uint32(0xFFFF0000)
    return values


def prepare(
    place: Path | str,
    shape: tuple[int, int, int],
    *,
    model: str = MODEL,
    step_capacity: int = 64,
    facts: Mapping[str, JSON] | None = None,
) -> Repository:
    """Create a store and a model of the shape (layer, token, dim), or what is missing of them."""
    layers, n_tokens, width = shape
    repository = Repository.open_or_create(place)
    create_corpus(repository, CORPUS, texts=["-"], sources=["-"], source_starts=[0])
    tokens = {name: np.zeros(n_tokens, item.dtype) for name, item in TOKEN_COORDINATES.items()}
    sizes = {"layer": layers, "token": n_tokens, "dim": width}
    create_model(
        repository,
        CORPUS.name,
        model,
        arrays=[ArraySpec(SITES["residual"], sizes)],
        tokens=tokens,
        attributes={"n_blocks": layers - 1, "width": width, **(facts or {})},
        step_capacity=step_capacity,
    )
    return repository


def store_step(repository: Repository, step: int, values: Values) -> None:
    """Store one step as capture does: block by block, then one commit."""
    writer = reserve_step(repository, PATH, step, identity={"step": step})
    assert not isinstance(writer, AlreadyStored)
    with writer:
        rows = 2 * writer.chunk_rows
        for start in range(0, writer.n_tokens, rows):
            writer.write_block("residual", start, values[:, start : start + rows])
        writer.commit(provenance={"source_dtype": "bfloat16"})
