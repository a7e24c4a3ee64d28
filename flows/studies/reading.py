"""The results of a study, read out of the store at one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import xarray as xr

from analysis.attention import summarise_attention
from analysis.metrics.metric import STDERR
from flows.studies.seeds import average_seeds
from flows.studies.study import DISTINCT_IDS, RARE_SHARE, Measured, Study
from store.catalogue import catalogue
from store.metrics import open_metrics
from store.repository import Repository
from store.schema import MODEL, STEP
from store.slab import token_table

GRIDE_SCALE: Final = 4
"""Scale of GRIDE that is shown where one number a layer is: neighbours 4 and 8."""

_RELATIVE_DEPTH: Final = "relative_depth"


def read_measured(study: Study, store: str, wanted: Mapping[str, Sequence[str]]) -> Measured:
    """Read the results of a study out of the store.

    Args:
        study: The study.
        store: The store.
        wanted: For each corpus, the names of its models.

    Raises:
        UnknownNameError: If a model has no results.
    """
    repository = Repository.open(store, read_only=True)
    snapshot = repository.snapshot_id()
    parts = []
    corpora: dict[str, str] = {}
    facts: dict[str, Mapping[str, object]] = {}
    held: dict[str, str] = {}
    for corpus, models in wanted.items():
        paths = _paths(repository, corpus, snapshot)
        results = open_metrics(store, corpus=corpus, models=list(models), snapshot=snapshot)
        results = _chosen(study, results)
        names = [str(name) for name in results[MODEL].values]
        held |= {name: paths[name] for name in names}
        corpora |= dict.fromkeys(names, corpus)
        facts |= {name: _facts(store, paths[name], snapshot) for name in names}
        if study.attention_rows:
            results = _with_attention(study, store, snapshot, results, paths)
        parts.append(results)
    joined = xr.concat(
        parts, MODEL, data_vars="all", coords="different", compat="equals", join="outer"
    )
    if study.derive is not None:
        joined = study.derive(joined)
    means, members = average_seeds(joined)
    for name, runs in members.items():
        corpora[name], facts[name] = corpora[runs[0]], facts[runs[0]]
    return Measured(joined, means, corpora, store, snapshot, held, facts, members)


def _facts(store: str, path: str, snapshot: str) -> Mapping[str, object]:
    """Return the attributes of a model's group, and how its tokens are spread over their ids."""
    table = token_table(store, path, snapshot)
    ids = table["token_id"].values[~table["special"].values]
    counts = np.sort(np.unique(ids, return_counts=True)[1])
    rare = counts[: len(counts) // 2].sum() / max(1, counts.sum())
    return table.attrs | {DISTINCT_IDS: len(counts), RARE_SHARE: float(rare)}


def _paths(repository: Repository, corpus: str, snapshot: str) -> dict[str, str]:
    """Return the group of each model of a corpus; a stack is called ``id/encoder``."""
    held = catalogue(repository, corpus=corpus, snapshot=snapshot)
    return {"/".join(filter(None, (item.model, item.stack))): item.path for item in held}


def _chosen(study: Study, results: xr.Dataset) -> xr.Dataset:
    names = list(study.all_metrics)
    names += [
        f"{site}_{metric}" for site, metrics in study.site_metrics.items() for metric in metrics
    ]
    wanted = [each for name in names for each in (name, name + STDERR)]
    wanted += [name for name in map(str, results.data_vars) if name.startswith("n_")] + ["n"]
    chosen = results[[name for name in wanted if name in results]].load()
    if _RELATIVE_DEPTH in chosen.coords and MODEL not in chosen[_RELATIVE_DEPTH].dims:
        spread = chosen[_RELATIVE_DEPTH].expand_dims({MODEL: chosen[MODEL].values})
        chosen = chosen.assign_coords({_RELATIVE_DEPTH: spread})
    return _one_scale(chosen) if "gride" in study.metrics else chosen


def _one_scale(results: xr.Dataset) -> xr.Dataset:
    """Keep one scale of GRIDE, and say which."""
    chosen = results.sel(scale=GRIDE_SCALE).drop_vars("scale")
    name = f"{results['gride'].attrs['long_name']}, neighbours {GRIDE_SCALE} and {2 * GRIDE_SCALE}"
    chosen["gride"].attrs["long_name"] = name
    return chosen


def _with_attention(
    study: Study, store: str, snapshot: str, results: xr.Dataset, paths: Mapping[str, str]
) -> xr.Dataset:
    """Add the means and quantiles of what is stored of rows of attention."""
    parts = []
    for name in results[MODEL].values:
        held = results["n"].sel({MODEL: name})
        there = held.notnull().any([dim for dim in held.dims if dim != STEP])
        steps = [int(step) for step in held[STEP].values[there.values]]
        part = summarise_attention(
            store, paths[str(name)], snapshot, sites=study.attention_rows, steps=steps
        )
        parts.append(part.expand_dims({MODEL: [name]}))
    rows = xr.concat(parts, MODEL, data_vars="all", join="outer")
    return xr.merge([results, rows], join="outer", compat="no_conflicts").assign_attrs(
        results.attrs
    )
