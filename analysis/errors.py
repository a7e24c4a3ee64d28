"""What can go wrong when a geometry is measured; every message says what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AnalysisError(Exception):
    """Root of everything this package raises on purpose."""


class UnknownMetricError(AnalysisError):
    """A metric was asked for that is not in ``METRICS``."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no metric is called {name!r}{_suggestion(name, known)}")
        self.name = name


class UnknownPopulationError(AnalysisError):
    """A population was asked for that is not in ``POPULATIONS``."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no population is called {name!r}{_suggestion(name, known)}")
        self.name = name


class TooFewRowsError(AnalysisError):
    """There are fewer rows than the question can be answered from."""


class InputError(AnalysisError):
    """The array handed in cannot be read as rows of activations."""


class RowExpressionError(InputError):
    """Rows were to be chosen by what is no expression over their tokens."""


class NonFiniteRowsError(AnalysisError):
    """Rows hold NaN or infinity where the data was said to be finite."""


class SchedulerError(AnalysisError):
    """Work was to be run somewhere that does not exist or does not answer."""


class UnknownSchedulerError(SchedulerError):
    """Work was to be run by what no scheduler is called, or by a cluster whose file is none."""


def _suggestion(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        return "; did you mean " + " or ".join(repr(candidate) for candidate in near) + "?"
    return "; known: " + ", ".join(names)
