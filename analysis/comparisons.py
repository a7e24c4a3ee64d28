"""Comparing what is stored: every layer with every other, every step with every other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import xarray as xr

from analysis.errors import InputError, NonFiniteRowsError
from analysis.evaluate import SAMPLE_ROWS
from analysis.linear_pairs import compare_linear
from analysis.neighbor_pairs import OVERLAP_NEIGHBORS, compare_neighborhoods
from analysis.neighborhoods import sample_tokens
from analysis.tasks import stored_table
from store.repository import Repository
from store.schema import LAYER, STEP
from store.slab import Slab, slabs

Rows = npt.NDArray[np.float32]


def compare_layers(
    repository: Repository | str,
    path: str,
    *,
    step: int,
    layers: Sequence[int] | None = None,
    sample: int = SAMPLE_ROWS,
    seed: int = 0,
    threads: int = 1,
) -> xr.Dataset:
    """Compare the layers of a checkpoint over the same tokens.

    Args:
        repository: The store, or its URI.
        path: ``corpus/model`` or ``corpus/model/stack``.
        step: The checkpoint.
        layers: Layers, None for all.
        sample: Tokens of ``content`` drawn; the rows of all layers are held in memory.
        seed: Seed of the draw.
        threads: Threads of the search for neighbours.

    Returns:
        By (layer, other_layer), with standard errors: ``cka``, ``cka_debiased``, ``procrustes``,
        ``linear_r2``, ``linear_r2_increment``, ``neighborhood_overlap`` and
        ``information_imbalance``.

    Raises:
        UnknownNameError: If the model, the step or a layer is not in the store.
        TooFewRowsError: If there are too few distinct tokens.
    """
    found = _slabs(repository, path, [step], layers)
    labels = [slab.depth for slab in found]
    return _compare(dict(zip(labels, found, strict=True)), LAYER, sample, seed, threads)


def compare_steps(
    repository: Repository | str,
    path: str,
    *,
    layer: int,
    steps: Sequence[int] | None = None,
    sample: int = SAMPLE_ROWS,
    seed: int = 0,
    threads: int = 1,
) -> xr.Dataset:
    """Compare the checkpoints of a trajectory in one layer over the same tokens.

    Args:
        repository: The store, or its URI.
        path: ``corpus/model`` or ``corpus/model/stack``.
        layer: The layer.
        steps: Checkpoints, None for all.
        sample: Tokens of ``content`` drawn; the rows of all steps are held in memory.
        seed: Seed of the draw.
        threads: Threads of the search for neighbours.

    Returns:
        By (step, other_step), what ``compare_layers`` returns by layer.

    Raises:
        UnknownNameError: If the model, a step or the layer is not in the store.
        TooFewRowsError: If there are too few distinct tokens.
    """
    found = _slabs(repository, path, steps, [layer])
    labels = [slab.step for slab in found]
    return _compare(dict(zip(labels, found, strict=True)), STEP, sample, seed, threads)


def _slabs(
    repository: Repository | str,
    path: str,
    steps: Sequence[int] | None,
    layers: Sequence[int] | None,
) -> list[Slab]:
    opened = Repository.open(repository) if isinstance(repository, str) else repository
    found = slabs(opened, path, steps=steps, layers=layers)
    if not found:
        raise InputError(f"{path} has no complete step to compare; ingest a checkpoint first")
    return found


def _compare(
    chosen: dict[int | None, Slab], dim: str, sample: int, seed: int, threads: int
) -> xr.Dataset:
    first = next(iter(chosen.values()))
    table = stored_table(first.uri, first.path, first.snapshot)
    tokens = sample_tokens(table, sample, seed, content=True)
    held: dict[Hashable, Rows] = {label: slab.rows(tokens) for label, slab in chosen.items()}
    for label, rows in held.items():
        if not np.isfinite(rows).all():
            raise NonFiniteRowsError(
                f"rows of {dim} {label} of {first.path} hold NaN or infinity; compare without it"
            )
    loads: dict[Hashable, Callable[[], Rows]] = {
        label: partial(held.__getitem__, label) for label in held
    }
    assert table.sequence is not None
    sequences = table.sequence[tokens]
    linear = compare_linear(loads, dim=dim, sequences=sequences)
    near = compare_neighborhoods(
        loads,
        dim=dim,
        k=min(OVERLAP_NEIGHBORS, max(1, len(tokens) // 10)),
        sequences=sequences,
        threads=threads,
    )
    merged = xr.merge([linear, near.rename(n="neighbors_n")], combine_attrs="drop_conflicts")
    attrs = {"snapshot": first.snapshot, "path": first.path, "sample": sample, "seed": seed}
    return merged.assign_attrs(attrs)
