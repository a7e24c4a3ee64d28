"""What a metric is: a function of statistics, with the facts a reader of its value needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

STDERR: Final = "_stderr"
"""Suffix of the variable that holds the standard error of another."""

Needs = Literal[
    "directions",
    "moments",
    "spectrum",
    "sequences",
    "neighbors",
    "leading",
    "partition",
    "frequency",
    "position",
    "heads",
]

COSTS: Final[dict[Needs, str]] = {
    "directions": "n·d",
    "moments": "n·d",
    "spectrum": "n·d² + d³",
    "sequences": "n·n_q·d + n·n_q²",
    "neighbors": "sample²·d",
    "leading": "32·n·d a pass, about 2",
    "partition": "n·d², a second pass",
    "frequency": "n·d, a second pass",
    "position": "n, a second pass",
    "heads": "n·d, a pass over queries and one over keys",
}
"""What metrics cost by what they need, once for all that need it: operations for n rows of width d
in sequences of n_q."""


@dataclass(frozen=True)
class Metric:
    """One number (or labelled vector) that describes the rows of a layer.

    Attributes:
        name: Name in snake case, under which results are stored.
        function: Finishes statistics that were computed once for all metrics. A metric that needs
            ``"neighbors"`` takes a ``Neighbors``, most others a ``Statistics``. It returns NaN
            where the value is not defined.
        needs: Which statistics the function reads: ``"directions"`` are norms, sizes of values and
            sums of unit vectors, ``"moments"`` also means and powers by dimension, which are
            NaN otherwise, ``"spectrum"`` also the eigenvalues of the covariance, and
            ``"sequences"`` the shapes of whole sequences; ``"leading"`` a ``LeadingShare`` and
            ``"partition"`` a ``PartitionFunctions``, ``"frequency"`` a ``FrequencyProfile`` and
            ``"position"`` a ``PositionProfile``, for which the rows are read again; ``"heads"`` a
            ``HeadPair``, of two sites.
        version: Raised when the definition changes, so that stored values become stale.
        long_name: A short title, for the axis of a figure.
        units: Unit of the value, ``"1"`` when it has none.
        range: The values it can take, as text.
        reference: Where the definition comes from.
        undefined: When the value is NaN, as the end of "NaN for ...".
        dims: Dimensions of the value beyond (step, layer, population); empty for one number.
        first_only: Whether of the spectrum nothing is read but ``Statistics.first_share``, which
            can be had in less time than the spectrum.
        k: Nearest neighbours that the function reads, 0 for metrics of moments.
        default: Whether it is among the metrics computed where none are named.
    """

    name: str
    function: Callable[..., float | FloatArray]
    needs: Needs
    version: int
    long_name: str
    units: str
    range: str
    reference: str
    undefined: str = ""
    dims: tuple[str, ...] = ()
    first_only: bool = False
    k: int = 0
    default: bool = True
