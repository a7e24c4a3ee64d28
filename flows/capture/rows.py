"""The rows of a window, copied side by side as the batches give them, in order of length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flows.capture.batches import Batch
from flows.capture.blocks import Staged
from flows.capture.errors import StructureError
from flows.capture.freed import passing
from flows.capture.picking import Picked
from flows.capture.rounding import FULL_PRECISION, Precision
from flows.capture.shapes import SiteShape
from flows.capture.taps import Sink


class Staging:
    """The rows of one window, in the order in which they are computed.

    Copies from a GPU into its pinned memory go on while the model runs; what it holds may be
    taken once `wait` has returned, and it may be filled again once what was taken has been used.
    """

    def __init__(
        self,
        shapes: Sequence[SiteShape],
        capacity: int,
        *,
        pinned: bool,
        precision: Precision = FULL_PRECISION,
    ) -> None:
        self._precision = precision
        self._shapes = shapes
        self._capacity, self._pinned = capacity, pinned
        self._values = self._places()
        self._rows = np.empty(capacity, dtype=np.int64)
        self._filled = 0
        self._picked = Picked(None)
        self._seen: dict[str, int] = {}
        self._copied: list[torch.cuda.Event] = []

    def sinks(self, on_taken: Callable[[], None]) -> dict[str, Sink]:
        """Return what takes the values of each site during the forward pass of a batch.

        Args:
            on_taken: Called whenever the last value that is wanted of a site was taken.
        """
        return {shape.name: self._sink(shape, on_taken) for shape in self._shapes}

    @property
    def is_full(self) -> bool:
        """Whether nothing more is wanted of the forward pass of a batch."""
        return all(self._seen[shape.name] >= shape.last_call for shape in self._shapes)

    def begin(self, batch: Batch) -> None:
        """Prepare for the forward pass of a batch, the first one or another try."""
        self._rows[self._filled : self._filled + len(batch.rows)] = batch.rows
        self._picked = Picked(batch)
        self._seen = {shape.name: 0 for shape in self._shapes}

    def end(self, batch: Batch) -> None:
        """Close a batch, after a check that each site was given once at each depth.

        Raises:
            StructureError: If one was not.
        """
        for shape in self._shapes:
            seen = self._seen[shape.name]
            # A forward pass may have been ended where nothing more was wanted.
            if not shape.last_call <= seen <= shape.calls:
                raise StructureError(
                    f"{shape.name} was seen {seen} times in a forward pass: expected "
                    f"{shape.calls}; the model skips or repeats blocks for some inputs"
                )
        self._filled += len(batch.rows)

    def close(self, devices: Iterable[torch.device]) -> None:
        """Mark the end of a window on the devices that its values come from."""
        self._copied = []
        for device in devices:
            if device.type == "cuda":
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's own
                event.record(torch.cuda.current_stream(device))
                self._copied.append(event)

    def wait(self) -> None:
        """Wait for the copies of a window that was closed."""
        for event in self._copied:
            event.synchronize()

    def take(self) -> tuple[NDArray[np.int64], Staged]:
        """Return the rows' numbers and values so far, and start anew.

        Memory that is not pinned belongs to the caller from then on.
        """
        filled, self._filled = self._filled, 0
        values = {name: [one[:filled] for one in own] for name, own in self._values.items()}
        if not self._pinned:
            self._values = self._places()
        return self._rows[:filled], values

    def _places(self) -> Staged:
        """Return room for every depth; what is not pinned takes memory as it is filled."""
        return {
            shape.name: [
                _empty((self._capacity, *shape.features), pinned=self._pinned)
                for _ in range(shape.depth)
            ]
            for shape in self._shapes
        }

    def _sink(self, shape: SiteShape, on_taken: Callable[[], None]) -> Sink:
        name, target = shape.name, self._values[shape.name]

        def sink(depth: int, values: Tensor) -> None:
            self._seen[name] += 1
            place = shape.place(depth)
            if place is not None:
                goal = target[place][self._filled : self._filled + self._picked.n_rows]
                features = shape.features
                if shape.by_key:
                    # The sequences of a batch have fewer keys than the longest of all.
                    goal[..., values.shape[-1] :] = 0.0
                    goal = goal[..., : values.shape[-1]]
                    features = (*features[:-1], values.shape[-1])
                self._picked.copy(values, features, goal, self._precision)
            if self._seen[name] == shape.last_call:
                on_taken()

        return sink


def _empty(shape: tuple[int, ...], *, pinned: bool) -> Tensor:
    if pinned:
        return torch.empty(shape, dtype=torch.float32, pin_memory=True)
    return torch.from_numpy(passing(shape))
