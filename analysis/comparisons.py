"""Comparing what is stored, over the same tokens: layers, steps of training, or two models.

One task reads every layer that it compares once, at the tokens of a sample, and holds those rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import xarray as xr

from analysis.blas import one_blas_thread
from analysis.budget import CANDIDATE_BYTES, SPARE_CANDIDATES, refuse_beyond
from analysis.errors import NonFiniteRowsError, TooFewRowsError
from analysis.groups import GROUPS
from analysis.linear_pairs import compare_linear
from analysis.metrics.metric import STDERR
from analysis.neighbor_pairs import NEIGHBOR_PAIRS, OVERLAP_NEIGHBORS, compare_neighborhoods
from analysis.neighborhoods import sample_tokens
from analysis.populations import CONTENT
from analysis.tasks import stored_table
from store.align import align
from store.schema import LAYER, OTHER
from store.slab import Slab, token_table

Indices = npt.NDArray[np.int64]
Rows = npt.NDArray[np.float32]

Label = TypeVar("Label", bound=Hashable)

REPRESENTATION: Final = "representation"

_MATRICES_COMPARED: Final = GROUPS + 8


@dataclass(frozen=True)
class Comparison:
    """Slabs to compare with each other.

    Attributes:
        slabs: Slabs of one model, of one layer or of one step.
        others: Slabs of another model that read the same texts; every slab is then compared with
            every one of these. Nothing to compare the slabs among themselves.
        sample: Tokens of ``content`` that are drawn.
        seed: Seed of the draw.
    """

    slabs: tuple[Slab, ...]
    others: tuple[Slab, ...]
    sample: int
    seed: int


@dataclass(frozen=True)
class Compared:
    """What was found.

    Attributes:
        task: What was compared.
        values: By (dim, other_dim): ``cka``, ``cka_debiased``, ``procrustes``, ``linear_r2``,
            ``linear_r2_increment``, ``neighborhood_overlap`` and ``information_imbalance``, with
            standard errors; ``n`` and ``neighbors_n`` tokens.
        reverse: The same from the other model's side, None for one model.
    """

    task: Comparison
    values: xr.Dataset
    reverse: xr.Dataset | None


def comparison_bytes(task: Comparison) -> int:
    """Return the most memory that comparing slabs takes, beyond that of an idle worker."""
    compared = (*task.slabs, *task.others)
    n = min(task.sample, *(slab.shape[0] for slab in compared))
    widths = [slab.shape[-1] for slab in compared]
    widest = max(widths)
    rows = 2 * 4 * n * sum(widths)
    whitenings = 8 * sum(width**2 for width in widths)
    linear = whitenings + max(2 * 8 * n * widest, _MATRICES_COMPARED * 8 * widest**2)
    neighbors = (OVERLAP_NEIGHBORS + SPARE_CANDIDATES) * CANDIDATE_BYTES * n * len(compared)
    near = neighbors + 3 * 8 * len(compared) ** 2 * n + 3 * 4 * n * widest
    return rows + max(linear, near)


def check_comparison(task: Comparison, memory: int | None) -> None:
    """Refuse a comparison that needs more memory than a worker has, where that was stated.

    Raises:
        InputError: If it does.
    """
    count = len(task.slabs) + len(task.others)
    refuse_beyond(
        memory,
        comparison_bytes(task),
        f"comparing {count} representations of {task.slabs[0].path} at {task.sample:,} tokens",
        "draw a smaller sample, or compare fewer layers or steps",
    )


def run_comparison(task: Comparison) -> Compared:
    """Compare slabs, with one BLAS thread.

    Raises:
        TooFewRowsError: If there are fewer than four tokens. Of fewer distinct rows than neighbours
            are compared, what needs neighbours is NaN, and ``neighbors_n`` 0.
        NonFiniteRowsError: If rows hold NaN or infinity.
        StoreError: If the models read different texts, or activations are missing or damaged.
    """
    with one_blas_thread():
        if not task.others:
            dim = LAYER if len({slab.step for slab in task.slabs}) == 1 else "step"
            tokens, sequences = _tokens_of_one(task)
            rows = {_label(slab, dim): _rows(slab, tokens) for slab in task.slabs}
            return Compared(task, _compare(rows, dim, sequences, None), None)
        first, second, sequences = _tokens_of_two(task)
        both = {(0, _label(slab, LAYER)): _rows(slab, first) for slab in task.slabs}
        both |= {(1, _label(slab, LAYER)): _rows(slab, second) for slab in task.others}
        table = _compare(both, REPRESENTATION, sequences, [model for model, _ in both])
        return Compared(task, _corner(table, both, 0), _corner(table, both, 1))


def _label(slab: Slab, dim: str) -> int:
    if dim != LAYER:
        return slab.step
    return slab.label[1] if slab.label is not None else 0


def _tokens_of_one(task: Comparison) -> tuple[Indices, Indices]:
    """Return drawn tokens of content, and the sequence of each (token)."""
    slab = task.slabs[0]
    table = stored_table(slab.uri, slab.path, slab.snapshot)
    assert table.sequence is not None
    tokens = sample_tokens(table, task.sample, task.seed, content=True)
    return tokens, table.sequence[tokens]


def _tokens_of_two(task: Comparison) -> tuple[Indices, Indices, Indices]:
    """Return drawn tokens of both models that end at the same characters, and their sequences."""
    first, second = task.slabs[0], task.others[0]
    alignment = align(
        *(token_table(slab.uri, slab.path, slab.snapshot) for slab in (first, second))
    )
    tables = [stored_table(slab.uri, slab.path, slab.snapshot) for slab in (first, second)]
    pairs = np.stack(alignment.rows("last"))
    codes = np.stack([table.codes[pair] for table, pair in zip(tables, pairs, strict=True)])
    pairs = pairs[:, (codes == CONTENT).all(axis=0)]
    rng = np.random.default_rng(task.seed)
    drawn = rng.choice(pairs.shape[1], min(task.sample, pairs.shape[1]), replace=False)
    assert tables[0].sequence is not None
    sequences = tables[0].sequence[pairs[0, drawn]]
    order = np.lexsort((pairs[0, drawn], sequences))
    ordered = drawn[order]
    return pairs[0, ordered], pairs[1, ordered], sequences[order]


def _rows(slab: Slab, tokens: Indices) -> Rows:
    rows = slab.rows(tokens)
    if not np.isfinite(rows).all():
        raise NonFiniteRowsError(
            f"rows of {slab.path}, step {slab.step}, hold NaN or infinity; compare without it"
        )
    return rows


def _compare(
    rows: Mapping[Label, Rows],
    dim: str,
    sequences: Indices,
    kinds: Sequence[int] | None,
) -> xr.Dataset:
    numbered: dict[Hashable, Callable[[], Rows]] = {
        number: partial(rows.__getitem__, label) for number, label in enumerate(rows)
    }
    linear = compare_linear(numbered, dim=dim, sequences=sequences, kinds=kinds)
    try:
        near = compare_neighborhoods(
            numbered,
            dim=dim,
            k=min(OVERLAP_NEIGHBORS, max(1, len(sequences) // 10)),
            sequences=sequences,
            kinds=kinds,
        )
    except TooFewRowsError:
        # Embeddings have no more distinct rows than there are token ids.
        near = xr.zeros_like(linear[["n"]])
        for name in NEIGHBOR_PAIRS:
            near[name] = near[name + STDERR] = xr.full_like(linear["cka"], np.nan)
    found = xr.merge([linear, near.rename(n="neighbors_n")], combine_attrs="drop_conflicts")
    if kinds is None:
        found = found.assign_coords({dim: list(rows), OTHER + dim: list(rows)})
    return found


def _corner(table: xr.Dataset, rows: Mapping[tuple[int, int], Rows], model: int) -> xr.Dataset:
    """Cut what compares one of two models with the other out of what compares both."""
    own = [number for number, label in enumerate(rows) if label[0] == model]
    other = [number for number, label in enumerate(rows) if label[0] != model]
    labels = [label for _, label in rows]
    dims = {REPRESENTATION: LAYER, OTHER + REPRESENTATION: OTHER + LAYER}
    corner = table.isel({REPRESENTATION: own, OTHER + REPRESENTATION: other}).rename(dims)
    coordinates = {LAYER: [labels[i] for i in own], OTHER + LAYER: [labels[i] for i in other]}
    # An increment is a difference of two states of one model.
    increments = [name for name in corner if str(name).startswith("linear_r2_increment")]
    return corner.assign_coords(coordinates).drop_vars(increments)
