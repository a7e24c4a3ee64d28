"""What rows of attention are like, by head: how sharp, over the tokens of the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import xarray as xr

from analysis.errors import InputError, UnknownPopulationError
from analysis.inputs import CAUSAL
from analysis.populations import CONTENT, TokenTable
from store.repository import Repository
from store.schema import BLOCK, HEAD, SITES, STEP, TOKEN
from store.slab import Slab, slabs, token_table

QUANTILE: Final = "quantile"
QUANTILES: Final = (0.1, 0.5, 0.9)

_POPULATIONS: Final = ("all", "content")


def summarise_attention(
    uri: str,
    path: str,
    snapshot: str,
    *,
    sites: Sequence[str],
    steps: Sequence[int],
    population: str = "content",
) -> xr.Dataset:
    """Average what is stored of every row of attention, and give its quantiles.

    Args:
        uri: Where the store is.
        path: ``corpus/model`` or ``corpus/model/stack``.
        snapshot: Snapshot to read.
        sites: Sites of one number a head and token, such as ``attention_max``.
        steps: Steps.
        population: ``all`` rows, or those of ``content``.

    Returns:
        For each site its mean (step, block, head), under its name, and ``<site>_quantile`` (step,
        block, head, quantile).

    Raises:
        UnknownPopulationError: If rows are to be told apart by what is no property of tokens.
        UnknownNameError: If a step lacks a site.
        InputError: If a site has more than one number a head and token.
    """
    if population not in _POPULATIONS:
        raise UnknownPopulationError(population, _POPULATIONS)
    chosen = _rows(uri, path, snapshot, population)
    repository = Repository.open(uri, read_only=True)
    parts = [
        _summary(site, slabs(repository, path, site=site, steps=steps, snapshot=snapshot), chosen)
        for site in sites
    ]
    return xr.merge(parts, join="outer", compat="no_conflicts").reindex({STEP: list(steps)})


def _summary(site: str, found: Sequence[Slab], chosen: np.ndarray) -> xr.Dataset:
    """Return mean and quantiles of a site (step, block, head), NaN at blocks a step has not."""
    if found[0].dims != (HEAD, TOKEN):
        raise InputError(f"{site!r} has the dimensions {found[0].dims}: expected (head, token)")
    steps, blocks = (sorted({place[axis] for place in map(_place, found)}) for axis in (0, 1))
    means = np.full((len(steps), len(blocks), found[0].shape[0]), np.nan)
    spread = np.full((*means.shape, len(QUANTILES)), np.nan)
    for slab in found:
        step, block = _place(slab)
        at = steps.index(step), blocks.index(block)
        rows = _read(slab)[:, chosen].astype(np.float64)
        means[at], spread[at] = rows.mean(axis=1), np.quantile(rows, QUANTILES, axis=1).T
    about = {"long_name": SITES[site].description, "units": SITES[site].units or "1"}
    dims = (STEP, BLOCK, HEAD)
    return xr.Dataset(
        {site: (dims, means, about), f"{site}_{QUANTILE}": ((*dims, QUANTILE), spread, about)},
        {STEP: steps, BLOCK: blocks, HEAD: np.arange(means.shape[2]), QUANTILE: list(QUANTILES)},
    )


def _place(slab: Slab) -> tuple[int, int]:
    """Return the step and the block of a slab."""
    assert slab.label is not None
    return slab.step, slab.label[1]


def _rows(uri: str, path: str, snapshot: str, population: str) -> np.ndarray:
    """Return which tokens are taken (token)."""
    table = token_table(uri, path, snapshot)
    described = TokenTable.from_coordinates(
        special=table["special"].values,
        position=table["position"].values,
        sequence=table["sequence"].values,
        causal=bool(table.attrs.get(CAUSAL, True)),
    )
    content: np.ndarray = described.codes == CONTENT
    return np.ones_like(content) if population == "all" else content


def _read(slab: Slab) -> np.ndarray:
    return np.concatenate([values for _, values in slab.blocks()], axis=1)
