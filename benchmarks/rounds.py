"""What several ways to one end cost, run in turn in many rounds, and how far rounds differ."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.figures import Figure


@dataclass(frozen=True)
class Cost:
    """Seconds of one way in one round."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Rounds:
    """What every way cost in every round.

    Attributes:
        costs: For each round, way → cost; some are left out of some rounds.
        once: Seconds of processor time that some ways take, however much they are to do.
        once_for: Names of these.
        share: Size of what a round stores, in units of the corpus that the ratios are about.
    """

    costs: Sequence[Mapping[str, Cost]]
    once: float
    once_for: Sequence[str]
    share: float

    def figure(
        self,
        what: str,
        name: str,
        base: str,
        bar: float | None = None,
        side: Literal["at least", "at most"] = "at most",
        *,
        of: Literal["cpu", "wall"] = "cpu",
        against: str,
    ) -> Figure:
        """Return the median of the ratios within rounds, and say between which values half lie."""
        ratios = [
            self._seconds(costs, name, of) / self._seconds(costs, base, of)
            for costs in self.costs
            if name in costs
        ]
        low, middle, high = (
            statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        )
        spread = f"quartiles {low:.3f}, {high:.3f} of {len(ratios)} rounds"
        return Figure(what, middle, "×", bar, side, f"{spread}; {against}")

    def _seconds(self, costs: Mapping[str, Cost], name: str, of: Literal["cpu", "wall"]) -> float:
        """Return what is spent for each round's share of the corpus."""
        if of == "wall":
            return costs[name].wall
        spread = self.once * (1 - self.share) if name in self.once_for else 0.0
        return costs[name].cpu - spread


def timed(work: Callable[[], object]) -> Cost:
    """Run something and return what it cost."""
    wall, cpu = time.perf_counter(), _cpu()
    work()
    return Cost(time.perf_counter() - wall, _cpu() - cpu)


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
