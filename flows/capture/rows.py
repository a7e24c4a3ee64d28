"""The rows of a window, each put in its place as the batches give them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
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
    """The rows of one window in the order of the corpus, from the start of their first block on.

    Copies from a GPU into its pinned memory go on while the model runs; what it holds may be
    taken once `wait` has returned, and it may be filled again once what was taken has been used.

    Args:
        shapes: Sizes of the sites.
        together: How many layers or blocks of each site have one array.
        capacity: Most rows of a window, those before it in its first block included.
        pinned: Whether its memory is pinned, and used again for each window.
        precision: Dtype to whose values activations are rounded.
    """

    def __init__(
        self,
        shapes: Sequence[SiteShape],
        together: Mapping[str, int],
        capacity: int,
        *,
        pinned: bool,
        precision: Precision = FULL_PRECISION,
    ) -> None:
        self._precision = precision
        self._shapes, self._together = shapes, together
        self._capacity, self._pinned = capacity, pinned
        self._values: dict[str, list[Tensor]] = {}
        self._origin = self._first = self._stop = self._filled = 0
        self._picked: Picked | None = None
        self._seen: dict[str, int] = {}
        self._copied: list[torch.cuda.Event] = []

    def open(self, origin: int, first: int, stop: int) -> None:
        """Prepare for a window.

        Args:
            origin: Number of the first row of the block in which the window begins.
            first: Number of its first row.
            stop: One past the number of its last row.
        """
        self._origin, self._first, self._stop, self._filled = origin, first, stop, 0
        if not self._values:
            self._values = self._places(self._capacity if self._pinned else stop - origin)

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
        self._picked = Picked(batch, self._origin)
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
        assert self._filled == self._stop - self._first
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

    def take(self) -> tuple[range, Staged]:
        """Return the numbers of the window's rows, and the values from its first block on.

        Memory that is not pinned belongs to the caller from then on.
        """
        values: Staged = {name: [one.numpy() for one in own] for name, own in self._values.items()}
        if not self._pinned:
            self._values = {}
        return range(self._first, self._stop), values

    def _places(self, rows: int) -> dict[str, list[Tensor]]:
        """Return room for every depth; what is not pinned takes memory as it is filled."""
        return {
            shape.name: [
                _empty((len(depths), rows, *shape.features), pinned=self._pinned)
                for depths in shape.divided(self._together[shape.name])
            ]
            for shape in self._shapes
        }

    def _sink(self, shape: SiteShape, on_taken: Callable[[], None]) -> Sink:
        name, groups, together = shape.name, self._values[shape.name], self._together[shape.name]
        picked = self._picked
        assert picked is not None

        def sink(depth: int, values: Tensor) -> None:
            self._seen[name] += 1
            place = shape.place(depth)
            if place is not None:
                goal = groups[place // together][place % together]
                features = shape.features
                if shape.by_key:
                    # The sequences of a batch have fewer keys than the longest of all.
                    keys = values.shape[-1]
                    for rows in picked.places:
                        goal[rows, ..., keys:] = 0.0
                    goal, features = goal[..., :keys], (*features[:-1], keys)
                picked.copy(values, features, goal, self._precision)
            if self._seen[name] == shape.last_call:
                on_taken()

        return sink


def _empty(shape: tuple[int, ...], *, pinned: bool) -> Tensor:
    if pinned:
        return torch.empty(shape, dtype=torch.float32, pin_memory=True)
    return torch.from_numpy(passing(shape))
