"""The figures of a benchmark: how they are held against their bars, and printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Attributes:
        name: What was measured.
        value: The figure.
        unit: Its unit.
        bar: What it has to reach; None where it only informs.
        side: Whether it has to be at least or at most its bar.
        against: What it was measured against.
    """

    name: str
    value: float
    unit: str
    bar: float | None = None
    side: Literal["at least", "at most"] = "at least"
    against: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the bar is reached; None without one."""
        if self.bar is None:
            return None
        return self.value >= self.bar if self.side == "at least" else self.value <= self.bar


def progress(text: str) -> None:
    """Tell how far a benchmark is, beside the table or document that it ends with."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def show(figures: Sequence[Figure], *, as_json: bool) -> None:
    """Print a table, or one JSON object."""
    if as_json:
        rows = [asdict(figure) | {"holds": figure.holds} for figure in figures]
        sys.stdout.write(json.dumps({"figures": rows}, indent=2) + "\n")
        return
    marks = {True: "holds", False: "MISSED", None: ""}
    for figure in figures:
        bar = "" if figure.bar is None else f"{figure.side} {figure.bar:g}"
        sys.stdout.write(
            f"{figure.name:44} {figure.value:>10.4g} {figure.unit:8} {bar:16} "
            f"{marks[figure.holds]:7} {figure.against}\n"
        )
    sys.stdout.flush()
