"""How much memory measuring one layer or comparing some takes, known before any is read.

A layer is streamed: what is held is a matter of its width, of the size of a sample, and of a few
numbers for each of its rows. What is compared is a sample of rows of every layer, which is held.
"""

from __future__ import annotations

from typing import Final

from analysis.errors import InputError
from analysis.groups import group_count
from analysis.layer import needed_keys
from analysis.magnitudes import drawn_per_row
from analysis.plan import Plan, asks_first_alone, request_of
from analysis.rows import BLOCK_ROWS

IDLE_BYTES: Final = 256 << 20
"""What a worker takes that does nothing yet: Python, NumPy, compiled code, the store's metadata."""

HELD_BYTES: Final = 64 << 20
"""Size up to which a layer is held to find its first component alone; of a larger one products are
taken, which need one pass."""

_BLOCKS_READ: Final = 4
_MATRICES_FINISHING: Final = 3
_BYTES_A_ROW: Final = 48
_BYTES_A_SIZE: Final = 4
_BYTES_A_NORM: Final = 8
CANDIDATE_BYTES: Final = 24
SPARE_CANDIDATES: Final = 16


def needed_bytes(plan: Plan, *, dim: int, n: int) -> int:
    """Return the most memory that measuring a layer takes, beyond that of an idle worker.

    Args:
        plan: What is measured.
        dim: Width of its rows.
        n: Number of its rows.
    """
    spectrum = any(metric.needs in ("spectrum", "partition") for metric in plan.metrics)
    named = tuple(one for one in plan.populations if one.expression is None)
    chosen = len(plan.populations) - len(named)
    keys = len(needed_keys(named)) + sum(
        len(needed_keys((one,))) for one in plan.populations if one.expression is not None
    )
    block = 4 * BLOCK_ROWS * dim
    matrix = 8 * dim * dim
    tables = chosen + bool(named)
    sizes = _BYTES_A_SIZE * drawn_per_row(n, dim) + _BYTES_A_NORM
    held = n * (_BYTES_A_ROW * tables + sizes * (tables + 1))
    passing = (_BLOCKS_READ + keys) * block
    if spectrum:
        held += keys * matrix
        passing += (keys + _MATRICES_FINISHING) * matrix
        if plan.errors:
            each = keys * matrix // 4
            held += each * group_count(dim, keys, request_of(plan).scatter_bytes)
    if asks_first_alone(plan, dim):
        held += min(4 * n * dim, HELD_BYTES)
    reach = max((metric.k for metric in plan.metrics if metric.needs == "neighbors"), default=0)
    drawn = min(plan.sample, n) if reach else 0
    searching = drawn * (3 * 4 * dim + CANDIDATE_BYTES * (reach + SPARE_CANDIDATES))
    return held + max(passing, searching)


def check_memory(plan: Plan, *, dim: int, n: int) -> None:
    """Refuse a layer that needs more memory than a worker has.

    Args:
        plan: What is measured; without ``memory`` nothing is refused.
        dim: Width of its rows.
        n: Number of its rows.

    Raises:
        InputError: If it does.
    """
    refuse_beyond(
        plan.memory,
        needed_bytes(plan, dim=dim, n=n),
        f"measuring {n:,} rows of width {dim:,}",
        "measure fewer populations, or draw a smaller sample",
    )


def refuse_beyond(memory: int | None, needed: int, what: str, remedy: str) -> None:
    """Refuse what needs more memory than a worker has, where that was stated.

    Args:
        memory: Bytes that a worker has, None where that was not stated.
        needed: Bytes needed, beyond those of an idle worker.
        what: What needs them.
        remedy: What can be done about it, besides stating more.

    Raises:
        InputError: If it does.
    """
    needed += IDLE_BYTES
    if memory is not None and needed > memory:
        raise InputError(
            f"{what} takes up to {needed / 2**20:,.0f} MiB a worker, of which"
            f" {IDLE_BYTES / 2**20:,.0f} when idle; the memory stated is {memory / 2**20:,.0f} MiB."
            f" State more, {remedy}"
        )
