"""Comparing what is stored with what is to be stored, in words a person can act on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

UNNAMED: Final[Mapping[str, JSON]] = {"precision": "float32"}
"""What holds for a step whose identity does not say."""

KEPT: Final = frozenset({"layers"})
"""Parts of the identities of earlier versions that say what is kept, and change no value of it."""


def identity_difference(stored: Mapping[str, JSON], wanted: Mapping[str, JSON]) -> list[str]:
    """Return one line for each part in which two identities differ, none when they are equal.

    Nested objects are compared part by part; ``weights.layer1: stored 'a', wanted 'b'``.

    Args:
        stored: What the store holds.
        wanted: What was asked for.
    """
    lines: list[str] = []
    for name in sorted({*stored, *wanted}):
        lines.extend(_difference(name, stored.get(name), wanted.get(name)))
    return lines


def step_difference(stored: Mapping[str, JSON], wanted: Mapping[str, JSON]) -> list[str]:
    """Return one line for each part in which the identities of two steps differ.

    Args:
        stored: What the store holds; earlier versions did not name every part.
        wanted: What was asked for.
    """
    one, other = (
        {name: part for name, part in {**UNNAMED, **of}.items() if name not in KEPT}
        for of in (stored, wanted)
    )
    return identity_difference(one, other)


def column_difference(
    name: str, stored: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic]
) -> list[str]:
    """Return one line that says how two columns of the token table differ, none when equal.

    Args:
        name: Name of the column.
        stored: What the store holds (token,).
        wanted: What was asked for (token,).
    """
    if len(stored) != len(wanted):
        return [f"{name}: stored {len(stored)} tokens, wanted {len(wanted)}"]
    (where,) = np.nonzero(stored != wanted)
    if not len(where):
        return []
    first = int(where[0])
    return [
        f"{name}: {len(where)} of {len(stored)} tokens differ, first token {first}:"
        f" stored {stored[first]}, wanted {wanted[first]}"
    ]


def canonical(value: JSON) -> str:
    """Return the one JSON text that equal values share: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _difference(name: str, stored: JSON, wanted: JSON) -> list[str]:
    if canonical(stored) == canonical(wanted):
        return []
    if isinstance(stored, Mapping) and isinstance(wanted, Mapping):
        return [f"{name}.{line}" for line in identity_difference(stored, wanted)]
    return [f"{name}: stored {_shown(stored)}, wanted {_shown(wanted)}"]


def _shown(value: JSON) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)
