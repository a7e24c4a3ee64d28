"""Which training step a name speaks of: one rule for revisions and repositories."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flows.capture.errors import CheckpointError

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


def read_steps_table(file: Path) -> dict[str, int]:
    """Read which step each of some names means: two columns a line, the name and the step.

    A name is that of a revision, a repository or a folder; columns are divided by blanks, a tab
    or a comma, and what follows ``#`` is left out.

    Raises:
        CheckpointError: If a line has other columns, or a name comes twice.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{file} is not a table of steps: it is no UTF-8 text") from error
    table: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        columns = line.partition("#")[0].replace(",", " ").split()
        if not columns:
            continue
        if len(columns) != 2 or not columns[1].isdigit():
            raise CheckpointError(
                f"{file}, line {number}: expected a name and a step, as 'final 143000', "
                f"got {line.strip()!r}"
            )
        if columns[0] in table:
            raise CheckpointError(f"{file}, line {number}: {columns[0]} is there a second time")
        table[columns[0]] = int(columns[1])
    return table


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
