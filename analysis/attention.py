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
    variables = {}
    for site in sites:
        found = slabs(repository, path, site=site, steps=steps, snapshot=snapshot)
        if found[0].dims != (HEAD, TOKEN):
            raise InputError(f"{site!r} has the dimensions {found[0].dims}: expected (head, token)")
        rows = [_read(slab)[:, chosen].astype(np.float64) for slab in found]
        shape = (len(steps), -1, len(rows[0]))
        means = np.stack([row.mean(axis=1) for row in rows]).reshape(shape)
        spread = np.stack([np.quantile(row, QUANTILES, axis=1).T for row in rows])
        about = {"long_name": SITES[site].description, "units": SITES[site].units or "1"}
        variables[site] = xr.DataArray(means, dims=(STEP, BLOCK, HEAD), attrs=about)
        variables[f"{site}_{QUANTILE}"] = xr.DataArray(
            spread.reshape(*shape, len(QUANTILES)), dims=(STEP, BLOCK, HEAD, QUANTILE), attrs=about
        )
    coordinates = {STEP: list(steps), QUANTILE: list(QUANTILES)}
    results = xr.Dataset(variables, coordinates)
    blocks, heads = results.sizes[BLOCK], results.sizes[HEAD]
    return results.assign_coords({BLOCK: np.arange(1, blocks + 1), HEAD: np.arange(heads)})


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
