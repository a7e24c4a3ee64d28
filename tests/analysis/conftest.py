"""A small model in a store in memory, whose activations the tests know."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from store.corpora import CorpusSpec, create_corpus
from store.create import ArraySpec, create_model
from store.repository import Repository
from store.schema import SITES, TOKEN_COORDINATES
from store.write import StepWriter, reserve_step

_NUMBERS = itertools.count()
LENGTH = 25
PATH = "plays/owner--toy"


@dataclass
class Stored:
    """A model in a store, with what was stored.

    Attributes:
        repository: The store.
        path: Group of the model.
        values: Activations (layer, token, dim) by step.
        tokens: Token coordinates (token).
    """

    repository: Repository
    path: str
    values: dict[int, npt.NDArray[np.float32]]
    tokens: dict[str, npt.NDArray[np.generic]]

    def add_step(
        self,
        step: int,
        values: npt.NDArray[np.float32],
        weights: str = "",
        *,
        allow_nonfinite: bool = False,
    ) -> None:
        """Ingest one more step, or another version of one."""
        writer = reserve_step(
            self.repository,
            self.path,
            step,
            identity={"weights": weights or str(step)},
            supersede=step in self.values,
            allow_nonfinite=allow_nonfinite,
        )
        assert isinstance(writer, StepWriter)
        with writer:
            for start in range(0, values.shape[1], writer.chunk_rows):
                block = values[:, start : start + writer.chunk_rows]
                writer.write_block("residual", start, block)
            writer.commit(provenance={"revision": "r", "weights_sha256": weights or str(step)})
        self.values[step] = values


@pytest.fixture
def memory_uri() -> str:
    """The URI of a new place in this process's memory."""
    return f"memory://analysis-{next(_NUMBERS)}"


@pytest.fixture
def make_stored() -> Callable[..., Stored]:
    """A function that creates a store with a model: ``make_stored(uri, steps=(0,), ...)``."""
    return create_stored


def create_stored(
    uri: str,
    *,
    steps: tuple[int, ...] = (0,),
    n_sequences: int = 20,
    n_layers: int = 3,
    width: int = 8,
    chunk_rows: int = 64,
) -> Stored:
    """Create a store with a causal model of random activations, outliers among them."""
    repository = Repository.open_or_create(uri)
    n = n_sequences * LENGTH
    spec = CorpusSpec("plays", "text", {"unit": "tokens", "size": LENGTH}, 0, "c0ffee")
    create_corpus(repository, spec, texts=["to be"], sources=["a"], source_starts=[0])
    tokens = {name: np.zeros(n, item.dtype) for name, item in TOKEN_COORDINATES.items()}
    tokens["token_id"] = np.arange(n, dtype=np.int32)
    tokens["sequence"] = np.repeat(np.arange(n_sequences, dtype=np.int32), LENGTH)
    tokens["position"] = np.tile(np.arange(LENGTH, dtype=np.int32), n_sequences)
    create_model(
        repository,
        "plays",
        "owner/toy",
        arrays=[ArraySpec(SITES["residual"], {"layer": n_layers, "token": n, "dim": width})],
        tokens=tokens,
        attributes={
            "n_blocks": n_layers - 1,
            "width": width,
            "chunk_rows": chunk_rows,
            "causal": True,
        },
    )
    stored = Stored(repository, PATH, {}, tokens)
    for step in steps:
        rng = np.random.default_rng(step)
        values = rng.standard_normal((n_layers, n, width)) + 2 * rng.standard_normal(width)
        values[:, tokens["position"] == 0] *= 30
        values[:, ::41] *= 5
        stored.add_step(step, values.astype(np.float32))
    return stored


@pytest.fixture
def stored(memory_uri: str) -> Iterator[Stored]:
    """A model of three layers and two steps."""
    return create_stored(memory_uri, steps=(0, 10))
