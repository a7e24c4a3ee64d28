"""Which training step a name speaks of: one rule for revisions and repositories."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_STEP: Final = re.compile(
    r"(?:^|[-_.])(?:intermediate[-_]|global[-_])?(?:step|checkpoint|ckpt)[-_]?"
    r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[kKmM]?)(?=$|[-_.])"
)
_UNITS: Final = {"": 1, "k": 1_000, "m": 1_000_000}


@dataclass(frozen=True)
class NamedStep:
    """A step that a name speaks of.

    Attributes:
        step: The step.
        rest: What stands before it in the name, which the steps of one run have in common.
    """

    step: int
    rest: str


def parse_step(name: str) -> NamedStep | None:
    """Read the step from the name of a revision or repository, None if it speaks of none.

    The first ``step``, ``checkpoint`` or ``ckpt`` that is followed by a number counts, as a word
    of its own; ``k`` and ``m`` multiply by a thousand and a million::

        step1000   global_step1000   step1000-tokens4B   stage1-step1000-tokens4B
        multiberts-seed_0-step_20k   TinyLlama-1.1B-intermediate-step-50k-105b
    """
    match = _STEP.search(name)
    if match is None:
        return None
    step = float(match["number"]) * _UNITS[match["unit"].lower()]
    return NamedStep(round(step), name[: match.start()]) if step.is_integer() else None
