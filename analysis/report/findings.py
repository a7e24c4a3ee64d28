"""What a reader must know before trusting a curve: duplicates, gaps, odd rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import xarray as xr

from analysis.populations import OUTLIER_FACTOR
from analysis.report.measured import Measured
from analysis.samples import SEVERAL, tell_samples
from store.catalogue import HeldStep
from store.schema import BLOCK, LAYER, STEP

_MOST_NAMED: Final = 12
_NOTABLE: Final = 0.01
"""Share of repeated rows in a sample below which they change nothing one could see."""


@dataclass(frozen=True)
class Kind:
    """A kind of finding.

    Attributes:
        name: What it is about, in one or two words.
        level: ``warning`` where values may mislead, ``note`` where they only need care.
        meaning: What it means for a reader, in a sentence or two.
    """

    name: str
    level: Literal["warning", "note"]
    meaning: str


_SAME_WEIGHTS: Final = Kind(
    "Same weights",
    "warning",
    "These steps were ingested from the same weights: a curve over training is flat between them"
    " for no other reason.",
)
_SHARED_FILES: Final = Kind(
    "Shared weight files",
    "warning",
    "These steps share some weight files with other steps, but not all: the checkpoints may have"
    " been published wrongly.",
)
_INCOMPLETE: Final = Kind(
    "Incomplete steps",
    "warning",
    "Reserved, but not committed: another run is writing them, or was interrupted. Ingesting again"
    " completes them.",
)
_NONFINITE: Final = Kind(
    "Values that are not finite",
    "warning",
    "NaN or infinity was stored; the rows that hold such values are left out of every metric.",
)
_MISSING_STEPS: Final = Kind(
    "Missing steps",
    "warning",
    "Stored, but nothing was computed of them: curves pass over them. Run actlas compute.",
)
_NO_METRICS: Final = Kind("No metrics", "note", "Nothing was computed yet. Run actlas compute.")
_MISSING_SITES: Final = Kind(
    "Missing sites", "note", "Other steps of the same model hold these sites, too."
)
_SEVERAL_SAMPLES: Final = Kind(
    "Several samples",
    "warning",
    "Values of one metric were computed among different tokens: with another number of them, or"
    " another seed. Part of any difference between such values comes from that alone. Run actlas"
    " compute with one --sample and --seed for all.",
)
_OUTLIERS: Final = Kind(
    "Outlier rows",
    "note",
    f"Rows with a norm above {OUTLIER_FACTOR:g} times the median. A few of them rule the spectrum:"
    " read the population “content” beside “typical”, which leaves them out.",
)
_REPEATED: Final = Kind(
    "Repeated rows",
    "note",
    "Rows of the sample for neighbours that equal another one; they were left out before the"
    " search.",
)

KINDS: Final = (
    _SAME_WEIGHTS,
    _SHARED_FILES,
    _INCOMPLETE,
    _NONFINITE,
    _SEVERAL_SAMPLES,
    _MISSING_STEPS,
    _NO_METRICS,
    _MISSING_SITES,
    _OUTLIERS,
    _REPEATED,
)
"""All kinds, in the order in which a report lists them."""


@dataclass(frozen=True)
class Finding:
    """One thing to know about one model.

    Attributes:
        kind: What kind of thing.
        where: Its corpus and name.
        text: The steps, layers or amounts.
    """

    kind: Kind
    where: str
    text: str


def find(measured: Measured) -> list[Finding]:
    """List the findings about one model, in the order of ``KINDS``."""
    complete = [step for step in measured.held.steps if step.complete]
    open_steps = [step.step for step in measured.held.steps if not step.complete]
    found = [
        *((_SAME_WEIGHTS, _steps(group)) for group in _twins(complete)),
        *_of_steps(_SHARED_FILES, [step.step for step in complete if step.shared]),
        *_of_steps(_INCOMPLETE, open_steps),
        *_nonfinite(complete),
        *_several_samples(measured),
        *_without_metrics(measured, complete),
        *_missing_sites(complete),
        *_shares(_OUTLIERS, measured.results, "n_dropped_outlier", "n", above=0.0),
        *_shares(
            _REPEATED, measured.results, "neighbors_n_duplicates", "neighbors_n", above=_NOTABLE
        ),
    ]
    where = f"{measured.held.corpus} / {measured.label}"
    return [Finding(kind, where, text) for kind, text in found]


_Found = Iterator[tuple[Kind, str]]


def _twins(steps: Sequence[HeldStep]) -> list[tuple[int, ...]]:
    return sorted({tuple(sorted((s.step, *s.duplicates))) for s in steps if s.duplicates})


def _of_steps(kind: Kind, steps: Sequence[int]) -> _Found:
    if steps:
        yield kind, _steps(steps)


def _nonfinite(steps: Sequence[HeldStep]) -> _Found:
    bad = {step.step: step.nonfinite for step in steps if step.nonfinite}
    if bad:
        count = sum(bad.values())
        yield _NONFINITE, f"{count:,} value{'' if count == 1 else 's'}: {_steps(bad)}"


def _missing_sites(steps: Sequence[HeldStep]) -> _Found:
    for site in dict.fromkeys(site for step in steps for site in step.sites):
        lacking = [step.step for step in steps if site not in step.sites]
        if lacking:
            yield _MISSING_SITES, f"{site}: {_steps(lacking)}"


def _several_samples(measured: Measured) -> _Found:
    by_told: dict[str, list[str]] = {}
    for name in measured.metric_names:
        samples = measured.samples.get(name)
        told = "" if samples is None else tell_samples(samples.values.ravel().tolist())
        if told.startswith(SEVERAL):
            by_told.setdefault(told.removeprefix(SEVERAL), []).append(name)
    for told, names in by_told.items():
        yield _SEVERAL_SAMPLES, f"{', '.join(names)}: {told}"


def _without_metrics(measured: Measured, steps: Sequence[HeldStep]) -> _Found:
    results, names = measured.results, measured.metric_names
    if results is None or not names:
        if steps:
            yield _NO_METRICS, "no metric of any step"
        return
    known: set[int] = set()
    for name in names:
        present = results[name].notnull()
        present = present.any([dim for dim in present.dims if dim != STEP])
        known.update(results[STEP].values[present.values].tolist())
    yield from _of_steps(_MISSING_STEPS, [step.step for step in steps if step.step not in known])


def _shares(
    kind: Kind, results: xr.Dataset | None, dropped: str, kept: str, *, above: float
) -> _Found:
    """Find the largest share that dropped rows have in dropped and kept ones."""
    if results is None or dropped not in results or kept not in results:
        return
    rows = results[dropped] + results[kept]
    share = (results[dropped] / rows).where(rows > 0).fillna(0.0)
    most = share.isel(share.argmax(...))
    if share.size and float(most) > above:
        place = [
            f"{name} {np.asarray(most[name]).item()}"
            for name in (LAYER, BLOCK, STEP)
            if name in most.coords
        ]
        yield kind, f"up to {float(most):.2%} ({', '.join(place)})"


def _steps(steps: Iterable[int]) -> str:
    named = [str(step) for step in steps]
    if len(named) > _MOST_NAMED:
        listed = ", ".join(named[:_MOST_NAMED]) + f" and {len(named) - _MOST_NAMED} more"
    else:
        listed = " and ".join([", ".join(named[:-1]), named[-1]]) if len(named) > 1 else named[0]
    return f"{'step' if len(named) == 1 else 'steps'} {listed}"
