"""The results of a study, read out of the store at one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import xarray as xr

from analysis.attention import summarise_attention
from analysis.boxes import RESIDUAL
from analysis.choose import make_plan
from analysis.metrics.metric import STDERR
from analysis.work import definitions_of
from flows.studies.preparation import Request
from flows.studies.seeds import average_seeds
from flows.studies.study import DISTINCT_IDS, RARE_SHARE, Measured, Study
from store.catalogue import catalogue
from store.metrics import Definition, open_metrics, open_settings
from store.repository import Repository
from store.schema import MODEL, STEP
from store.slab import token_table

GRIDE_SCALE: Final = 4
"""Scale of GRIDE that is shown where one number a layer is: neighbours 4 and 8."""

_RELATIVE_DEPTH: Final = "relative_depth"


def read_measured(study: Study, request: Request, wanted: Mapping[str, Sequence[str]]) -> Measured:
    """Read the results of a study out of the store.

    Values that were computed with other settings than the study's, such as those of rows it does
    not compute, from an earlier and smaller sample, are left out.

    Args:
        study: The study.
        request: What is asked of it: where the store is, and the sample.
        wanted: For each corpus, the names of its models.

    Raises:
        UnknownNameError: If a model has no results.
    """
    store = request.store
    definitions = _definitions(study, request)
    repository = Repository.open(store, read_only=True)
    snapshot = repository.snapshot_id()
    parts = []
    corpora: dict[str, str] = {}
    facts: dict[str, Mapping[str, object]] = {}
    held: dict[str, str] = {}
    for corpus, models in wanted.items():
        paths = _paths(repository, corpus, snapshot)
        results = open_metrics(store, corpus=corpus, models=list(models), snapshot=snapshot)
        settings = open_settings(
            store, list(definitions), corpus=corpus, models=list(models), snapshot=snapshot
        )
        results = _with_settings(_chosen(study, results), definitions, settings)
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


def _definitions(study: Study, request: Request) -> dict[str, Definition]:
    """Return the metrics of a study as it has them computed, by the names they are stored under."""
    own = make_plan(
        study.all_metrics, None, labelled=True, seed=request.seed, sample=request.sample
    )
    found = definitions_of(own, RESIDUAL)
    for site, metrics in study.site_metrics.items():
        found += definitions_of(make_plan(metrics, None, labelled=True), site)
    return {definition.metric: definition for definition in found}


def _with_settings(
    results: xr.Dataset, definitions: Mapping[str, Definition], settings: xr.Dataset
) -> xr.Dataset:
    """Leave out the values, and their errors, that were computed with other settings."""
    kept = {}
    for name in settings.data_vars:
        _, wanted = definitions[str(name)].key()
        same = settings[name] == wanted
        for each in (str(name), f"{name}{STDERR}"):
            if each in results:
                labels = {dim: results[dim].values for dim in same.dims}
                same_here = same.reindex(labels, fill_value=False)
                kept[each] = results[each].where(same_here).transpose(*results[each].dims)
    return results.assign(kept)


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
