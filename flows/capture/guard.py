"""Shows that rows are the model's own: a sequence run alone must give what its batch gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flows.capture.errors import ReplayError
from flows.capture.forward import capture_whole
from flows.capture.parts import Part
from flows.capture.rounding import FULL_PRECISION, Precision
from flows.capture.sites import site_of
from flows.capture.tokens import Tokens
from flows.capture.weights import LoadedModel

TOLERANCE: Final[Mapping[str, float]] = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
"""Largest deviation of a row, relative to its norm, that rounding explains, by dtype."""

_TOGETHER: Final = 1 << 30
"""Size of a batch into which any three sequences fit."""

Values = Mapping[str, NDArray[np.float32]]


def replay(
    loaded: LoadedModel,
    tokens: Tokens,
    sequences: Sequence[int],
    sites: Sequence[str],
    *,
    layers: Sequence[int] | None = None,
    precision: Precision = FULL_PRECISION,
    key_positions: int | None = None,
) -> dict[int, Values]:
    """Run sequences alone, one after the other.

    Args:
        loaded: The model.
        tokens: Tokens of the corpus.
        sequences: Numbers of the sequences to run.
        sites: Names of the sites to capture.
        layers: Layers to capture, all when None.
        precision: Dtype to whose values activations are rounded.
        key_positions: Keys of a row of probabilities; those of the longest sequence when None.

    Returns:
        Sequence → site → values with the site's dimensions but step, token narrowed to it.
    """
    alone: dict[int, Values] = {}
    for sequence in sequences:
        own = tokens.select([sequence])
        keys = tokens.longest if key_positions is None else key_positions
        part = Part(loaded, own, sites, own.n_rows, layers, precision, keys)
        alone[sequence] = capture_whole(part)
    return alone


def deviation(site: str, got: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Return the largest of :func:`deviations`."""
    return float(deviations(site, got, expected).max())


def deviations(
    site: str, got: NDArray[np.float32], expected: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return the norm of each row's difference, relative to the norm of the expected row.

    Two NaN, or two infinities of one sign, are the same. For a site of single numbers, the
    difference is relative to the largest of them.

    Args:
        site: Name of the site, which tells whether the last dimension makes up a row.
        got: Values of the site.
        expected: Values of the same shape.

    Returns:
        The dimensions of the site up to token.
    """
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    difference: NDArray[np.float64] = np.zeros(got.shape)
    # Elsewhere too, one of them may be infinite: the difference is then, and is meant to be.
    np.subtract(got, expected, out=difference, where=~same, dtype=np.float64)
    finite = np.where(np.isfinite(expected), expected, 0.0).astype(np.float64)
    if site_of(site).dims[-1] == "token":
        sizes, norms = np.abs(difference), np.abs(finite).max()
    else:
        sizes, norms = (np.linalg.norm(values, axis=-1) for values in (difference, finite))
    relative: NDArray[np.float64] = sizes / np.maximum(norms, np.finfo(np.float32).tiny)
    return relative


def check_batching(
    loaded: LoadedModel,
    tokens: Tokens,
    sites: Sequence[str],
    *,
    layers: Sequence[int] | None = None,
    batch_tokens: int | None = None,
) -> float:
    """Check that a batch of several sequences gives the rows that they give alone.

    The shortest, the middle and the longest sequence are run together, padded as any batch is,
    and alone. Values are compared before they are rounded to another precision.

    Args:
        loaded: The model.
        tokens: Tokens of the corpus.
        sites: Names of the sites to compare.
        layers: Layers to compare, all when None.
        batch_tokens: Largest size of a batch; all three in one when None.

    Returns:
        The largest deviation found.

    Raises:
        ReplayError: If it is beyond what the model's dtype explains.
    """
    order = np.argsort(tokens.lengths, kind="stable")
    order = order[np.diff(tokens.row_offsets)[order] > 0]
    chosen = sorted({int(order[0]), int(order[len(order) // 2]), int(order[-1])})
    together = tokens.select(chosen)
    keys = together.longest
    part = Part(loaded, together, sites, together.n_rows, layers, key_positions=keys)
    batch = capture_whole(part, batch_tokens=batch_tokens or _TOGETHER)
    limit = TOLERANCE.get(loaded.source_dtype, max(TOLERANCE.values()))
    worst = 0.0
    for number, (sequence, alone) in enumerate(
        replay(loaded, tokens, chosen, sites, layers=layers, key_positions=keys).items()
    ):
        rows = together.sequence_rows(number)
        for site, expected in alone.items():
            axis = site_of(site).dims.index("token")
            got = batch[site][(slice(None),) * axis + (rows,)]
            found = deviation(site, got, expected)
            if not found <= limit:
                raise ReplayError(_differs(loaded, site, sequence, found, limit))
            worst = max(worst, found)
    return worst


def _differs(loaded: LoadedModel, site: str, sequence: int, found: float, limit: float) -> str:
    cause, remedy = "may not honour the attention mask", "--batch-tokens 1"
    if loaded.source_dtype != "float32":
        # Which way a product is rounded may depend on the rows that are multiplied together.
        cause += f", or make much of roundings, of which {loaded.source_dtype} has large ones"
        remedy += ", or --dtype float32"
    return (
        f"{site} of sequence {sequence} differs by {found:.1e} of the row's norm between a batch "
        f"and the sequence alone: expected at most {limit:.0e} in {loaded.source_dtype}; "
        f"{loaded.model_type} {cause}. Run each sequence alone with {remedy}"
    )
