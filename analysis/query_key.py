"""How queries and keys of a head lie to each other, from what is stored of each."""

from __future__ import annotations

from typing import Final

import numpy as np
import xarray as xr

from analysis.errors import InputError
from store.schema import HEAD, HEAD_DIM, KEY_VALUE_HEAD, POPULATION

_MEAN: Final = "mean_row"


def compare_queries_keys(
    metrics: xr.Dataset, *, query: str = "query", key: str = "key", population: str = "content"
) -> xr.Dataset:
    """Compare the queries of every head with the keys that they are multiplied with.

    Args:
        metrics: Results of the sites ``query`` and ``key``, with ``mean_row`` of both for the
            population and for ``unit``.
        query: Site of the queries, ``query`` before or ``query_rotary`` after the rotary embedding.
        key: Site of the keys.
        population: Population whose means are compared.

    Returns:
        By (step, block, head): ``cosine_mean_query_key``, the cosine of mean query and mean key;
        and ``average_cosine_query_key``, the mean cosine of all pairs of a query and a key of
        ``content``, both in [−1, 1]. Heads that share keys are compared with the same ones.

    Raises:
        InputError: If a mean is not among the results.

    Source: Godey et al. 2024, section 5.
    """
    means = [_rows(metrics, site, population) for site in (query, key)]
    directions = [_rows(metrics, site, "unit") for site in (query, key)]
    lengths = [np.sqrt((mean**2).sum(HEAD_DIM)) for mean in means]
    products = (means[0] * means[1]).sum(HEAD_DIM, skipna=False)
    cosine = (products / (lengths[0] * lengths[1])).where(lengths[0] * lengths[1] > 0)
    average = (directions[0] * directions[1]).sum(HEAD_DIM, skipna=False)
    cosine.attrs = {"long_name": "cosine of mean query and mean key", "units": "1"}
    average.attrs = {"long_name": "average cosine of queries and keys", "units": "1"}
    return xr.Dataset({"cosine_mean_query_key": cosine, "average_cosine_query_key": average})


def _rows(metrics: xr.Dataset, site: str, population: str) -> xr.DataArray:
    """Return the mean rows (step, block, head, head_dim) of a site, one for each query head."""
    name = f"{site}_{_MEAN}"
    if name not in metrics or population not in metrics[POPULATION]:
        raise InputError(
            f"the results hold no {name} of {population!r}; measure {_MEAN!r} with"
            f" sites=({site!r},) first"
        )
    rows = metrics[name].sel({POPULATION: population}, drop=True)
    if KEY_VALUE_HEAD not in rows.dims:
        return rows
    shared = metrics.sizes[HEAD] // metrics.sizes[KEY_VALUE_HEAD]
    heads = np.arange(metrics.sizes[HEAD])
    spread = rows.isel({KEY_VALUE_HEAD: xr.DataArray(heads // shared, dims=HEAD)})
    return spread.assign_coords({HEAD: heads}).drop_vars(KEY_VALUE_HEAD)
