"""From batches in order of length back to blocks of rows in the order of the corpus.

Rows pass through two buffers of fixed size. Batches are copied side by side, as they come, into
the staging of one window; when the window is complete, its rows are gathered in corpus order
into blocks, each of which is a new array that belongs to whoever receives it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flows.capture.batches import Batch
from flows.capture.errors import StructureError
from flows.capture.rounding import FULL_PRECISION, Precision, rounded
from flows.capture.sites import SiteShape
from flows.capture.taps import Sink


@dataclass(frozen=True)
class RowBlock:
    """Consecutive rows of every captured site.

    Attributes:
        token_start: Number of the first token.
        token_stop: One past the number of the last.
        values: Site → float32 values with the site's dimensions but step, token narrowed.
    """

    token_start: int
    token_stop: int
    values: Mapping[str, NDArray[np.float32]]


class Staging:
    """The rows of one window, in the order in which they are computed.

    Attributes:
        capacity: Number of rows it has room for.
    """

    def __init__(
        self,
        shapes: Sequence[SiteShape],
        capacity: int,
        *,
        pinned: bool,
        precision: Precision = FULL_PRECISION,
    ) -> None:
        self.capacity = capacity
        self._shapes = shapes
        self._precision = precision
        self._values = {
            shape.name: torch.empty(
                (shape.depth, capacity, *shape.features), dtype=torch.float32, pin_memory=pinned
            )
            for shape in shapes
        }
        self._rows = np.empty(capacity, dtype=np.int64)
        self._filled = 0
        self._real = torch.empty(0, dtype=torch.int64)
        self._shape = (0, 0)
        self._seen: dict[str, int] = {}

    def sinks(self) -> dict[str, Sink]:
        """Return what takes the values of each site during the forward pass of a batch."""
        return {shape.name: self._sink(shape) for shape in self._shapes}

    def begin(self, batch: Batch, real: Tensor) -> None:
        """Prepare for the forward pass of a batch.

        Args:
            batch: The batch.
            real: Its flat indices of real tokens, on the model's device.
        """
        self._shape = batch.shape
        self._rows[self._filled : self._filled + len(batch.rows)] = batch.rows
        self._real = real
        self._seen = dict.fromkeys(self._values, 0)

    def end(self) -> None:
        """Close a batch, after a check that each site was given once at each depth.

        Raises:
            StructureError: If one was not.
        """
        for name, seen in self._seen.items():
            if seen != len(self._values[name]):
                raise StructureError(
                    f"{name} was seen {seen} times in a forward pass: expected "
                    f"{len(self._values[name])}; the model skips or repeats blocks for some inputs"
                )
        self._filled += len(self._real)

    def take(self) -> tuple[NDArray[np.int64], dict[str, Tensor]]:
        """Return the rows' numbers and values (depth, row, ...) so far, and start anew."""
        filled, self._filled = self._filled, 0
        return self._rows[:filled], {name: v[:, :filled] for name, v in self._values.items()}

    def _sink(self, shape: SiteShape) -> Sink:
        name, target = shape.name, self._values[shape.name]

        def sink(depth: int, values: Tensor) -> None:
            self._seen[name] += 1
            flat = values.reshape(-1, *shape.features)
            if len(flat) != self._shape[0] * self._shape[1]:
                raise StructureError(
                    f"{name} at index {depth} has the shape {tuple(values.shape)}: expected "
                    f"{self._shape[0]} sequences of {self._shape[1]} positions"
                )
            goal = target[depth, self._filled : self._filled + len(self._real)]
            direct = flat.dtype == goal.dtype and flat.device == goal.device
            if direct and self._precision == FULL_PRECISION:
                torch.index_select(flat, 0, self._real, out=goal)
            else:
                chosen = rounded(flat.index_select(0, self._real), self._precision)
                goal.copy_(chosen.to(goal.dtype), non_blocking=True)

        return sink


class Blocks:
    """Gathers rows into blocks that start at multiples of a fixed number of rows."""

    def __init__(self, shapes: Sequence[SiteShape], n_tokens: int, block_rows: int) -> None:
        self._shapes = shapes
        self._n_tokens = n_tokens
        self._block_rows = block_rows
        self._start = 0
        self._values: dict[str, NDArray[np.float32]] = {}

    def add(self, rows: NDArray[np.int64], values: Mapping[str, Tensor]) -> Iterator[RowBlock]:
        """Take the next window's rows, and yield the blocks that they complete.

        Args:
            rows: (row,) numbers of the rows, a permutation of the next ones of the corpus.
            values: Site → (depth, row, ...) values.
        """
        order = np.argsort(rows)
        first = int(rows[order[0]]) if len(rows) else 0
        done = 0
        while done < len(rows):
            if not self._values:
                self._open(first + done)
            offset = first + done - self._start
            count = min(len(rows) - done, self._size - offset)
            for shape in self._shapes:
                part = self._values[shape.name][:, offset : offset + count]
                for depth, staged in enumerate(values[shape.name].numpy()):
                    np.take(
                        staged, order[done : done + count], axis=0, out=part[depth], mode="clip"
                    )
            done += count
            if offset + count == self._size:
                yield self._close()

    @property
    def _size(self) -> int:
        return min(self._block_rows, self._n_tokens - self._start)

    def _open(self, start: int) -> None:
        self._start = start
        self._values = {
            shape.name: np.empty((shape.depth, self._size, *shape.features), dtype=np.float32)
            for shape in self._shapes
        }

    def _close(self) -> RowBlock:
        values = {
            shape.name: shape.in_store_order(self._values[shape.name]) for shape in self._shapes
        }
        self._values = {}
        return RowBlock(self._start, self._start + self._size, values)
