"""Studies of attention over training: queries and keys, and how sharp rows of attention are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from analysis.attention import QUANTILE, QUANTILES
from analysis.curves import Curve
from flows.studies.corpora import SHORT_CORPUS
from flows.studies.grids import long_name
from flows.studies.head_curves import ATTENTION_ROWS, compare_heads, head_curve, head_values
from flows.studies.panels import Panel, draw_panels
from flows.studies.study import Measured, Study
from store.schema import STEP

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ALIGNED: Final = 0.5
"""Cosine from which the means of queries and keys are said to point the same way."""

_SITES: Final = ("drift_norm", "drift_ratio", "average_cosine", "mean_row")
_NO_RUN: Final = "No model has more than one training step: there is no course of training to tell."


def _title(study: Study, measured: Measured) -> list[str]:
    seeds = ", ".join(f"{run}: {measured.seeds(run)} seeds" for run in measured.runs)
    return [study.title, measured.corpus, "rows: content", seeds, "mean over heads"]


def _of_both(measured: Measured, metric: str) -> list[Curve]:
    return [
        head_curve(measured, run, f"{site}_{metric}", label=label)
        for run in measured.runs
        for site, label in (("query", "queries"), ("key", "keys"))
    ]


def _anisotropy(study: Study, measured: Measured) -> Panel:
    found = [measured.curve(run, "average_cosine", STEP, study.population) for run in measured.runs]
    drawn = [curve for curve in found if curve is not None]
    return Panel(long_name(measured, "average_cosine"), STEP, drawn, "rows of the residual stream")


def _draw_queries(study: Study, measured: Measured) -> Mapping[str, Figure]:
    runs = measured.runs
    if not runs:
        return {}
    aligned = [head_curve(measured, run, "cosine_mean_query_key", absolute=True) for run in runs]
    signed = [head_curve(measured, run, "cosine_mean_query_key") for run in runs]
    pairs = [head_curve(measured, run, "average_cosine_query_key") for run in runs]
    sharp = [head_curve(measured, run, "attention_logit_deviation") for run in runs]
    panels = [
        Panel("norm of the mean query, key", STEP, _of_both(measured, "drift_norm")),
        Panel("norm of the mean over the mean norm", STEP, _of_both(measured, "drift_ratio")),
        Panel("average cosine within queries, keys", STEP, _of_both(measured, "average_cosine")),
        Panel("cosine of mean query and mean key", STEP, signed, level=0),
        Panel("size of that cosine, whatever its sign", STEP, aligned),
        Panel("average cosine of queries and keys", STEP, pairs, level=0),
        Panel(ATTENTION_ROWS["attention_logit_deviation"], STEP, sharp),
        _anisotropy(study, measured),
    ]
    return {"training": draw_panels(_title(study, measured), panels)}


def _tell_queries(_study: Study, measured: Measured) -> Sequence[str]:
    told = []
    for run in measured.runs:
        told += [_alignment(measured, run), _signs(measured, run)]
        for metric, what in (
            ("drift_norm", "the norm of the mean"),
            ("drift_ratio", "the norm of the mean over the mean norm"),
        ):
            both = "; ".join(
                f"of {noun} {_ends(head_curve(measured, run, f'{site}_{metric}'))}"
                for site, noun in (("query", "queries"), ("key", "keys"))
            )
            told.append(f"{run}: {what} {both}.")
    return told or [_NO_RUN]


def _alignment(measured: Measured, run: str) -> str:
    size = head_curve(measured, run, "cosine_mean_query_key", absolute=True)
    return f"{run}: the size of the cosine of mean query and mean key, over heads, {_ends(size)}."


def _signs(measured: Measured, run: str) -> str:
    last = head_values(measured, run, "cosine_mean_query_key").isel({STEP: -1}).values.ravel()
    same, opposite = int((last > _ALIGNED).sum()), int((last < -_ALIGNED).sum())
    return (
        f"{run}: at the last step, of {len(last)} heads (of all seeds) {same} have means in the"
        f" same direction (cosine above {_ALIGNED}), {opposite} in opposite ones (below"
        f" -{_ALIGNED}), and {len(last) - same - opposite} neither."
    )


def _ends(curve: Curve) -> str:
    first, last = (
        f"{curve.y[i]:.3g}"
        + (f" ± {curve.stderr[i]:.2g}" if np.isfinite(curve.stderr[i]) else "")
        + f" at step {curve.x[i]:.0f}"
        for i in (0, -1)
    )
    return f"goes from {first} to {last}"


QUERIES_KEYS: Final = Study(
    name="queries-keys",
    title="Queries and keys over training",
    question="Do the means of queries and keys drift to the same or to opposite directions?",
    source="Godey et al. 2024, experiment G7",
    needs=frozenset({"trajectory"}),
    metrics=("average_cosine",),
    population="content",
    draw=_draw_queries,
    tell=_tell_queries,
    site_metrics={"query": _SITES, "key": _SITES},
    attention_rows=("attention_logit_deviation",),
    derive=compare_heads,
    corpus=SHORT_CORPUS,
)


def _draw_sharpness(study: Study, measured: Measured) -> Mapping[str, Figure]:
    if not measured.runs:
        return {}
    panels = [
        Panel(label, STEP, [head_curve(measured, run, site) for run in measured.runs])
        for site, label in ATTENTION_ROWS.items()
    ]
    return {
        "training": draw_panels(
            _title(study, measured), [*panels, _anisotropy(study, measured)], columns=2
        ),
        "quantiles": _draw_quantiles(study, measured),
    }


def _draw_quantiles(study: Study, measured: Measured) -> Figure:
    """Draw the quantiles of rows: a row of panels for each run."""
    panels = []
    for run in measured.runs:
        for site, label in ATTENTION_ROWS.items():
            found = []
            for quantile in QUANTILES:
                curve = head_curve(measured, run, f"{site}_{QUANTILE}", pick={QUANTILE: quantile})
                name = f"{quantile:.0%} of the rows are below"
                found.append(Curve(name, curve.x, curve.y, curve.stderr, {}))
            panels.append(Panel(label, STEP, found, run))
    return draw_panels(_title(study, measured), panels)


def _tell_sharpness(study: Study, measured: Measured) -> Sequence[str]:
    told = []
    for run in measured.runs:
        for site, label in ATTENTION_ROWS.items():
            told.append(f"{run}: the {label} {_ends(head_curve(measured, run, site))}.")
        told.append(_correlation(study, measured, run))
    return told or [_NO_RUN]


def _correlation(study: Study, measured: Measured, run: str) -> str:
    """Say how the sharpness of blocks goes with the anisotropy of what they give."""
    from scipy.stats import spearmanr

    deviation = head_values(measured, run, "attention_logit_deviation").mean("head").isel(model=0)
    cosine = measured.results["average_cosine"].sel(
        model=measured.members[run][0], population=study.population
    )
    cosine = cosine.sel(step=deviation["step"], layer=deviation["block"].values)
    rank = float(spearmanr(deviation.values.ravel(), cosine.values.ravel()).statistic)
    late = spearmanr(deviation.values[-1], cosine.values[-1])
    return (
        f"{run}, first seed: over all {deviation.size} pairs of step and block, the deviation of"
        f" the logits and the average cosine of the block's output correlate by ranks at"
        f" {rank:.2f}; over the {deviation.sizes['block']} blocks at the last step at"
        f" {float(late.statistic):.2f}."
    )


SHARPNESS: Final = Study(
    name="sharpness",
    title="Sharpness of attention over training",
    question="How sharp are rows of attention, and does sharpness go with anisotropy?",
    source="Godey et al. 2024, experiments G6 and G7",
    needs=frozenset({"trajectory"}),
    metrics=("average_cosine",),
    population="content",
    draw=_draw_sharpness,
    tell=_tell_sharpness,
    attention_rows=tuple(ATTENTION_ROWS),
    corpus=SHORT_CORPUS,
)
