"""Which of the values (sequence, position, ...) of a batch are rows, and where they go."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from flows.capture.batches import Batch
from flows.capture.errors import StructureError
from flows.capture.rounding import FULL_PRECISION, Precision, rounded


class Picked:
    """The rows of one batch, on every device that gives values of it.

    Args:
        batch: The batch.
        origin: Number of the row that is the first where they go.
    """

    def __init__(self, batch: Batch, origin: int) -> None:
        self._batch = batch
        self._here: dict[torch.device, Tensor] = {}
        rows = batch.rows - origin
        kept = np.arange(len(rows)) if batch.kept is None else batch.kept.numpy()
        # Rows of a sequence follow each other, in the batch and where they go.
        follows = (np.diff(rows) == 1) & (np.diff(kept) == 1)
        starts = np.append(np.flatnonzero(np.append(np.True_, ~follows)[: len(rows)]), len(rows))
        self._runs = [
            (start, int(kept[start]), int(rows[start]), stop - start)
            for start, stop in zip(starts.tolist(), starts[1:].tolist(), strict=False)
        ]

    @property
    def places(self) -> Iterator[slice]:
        """Where rows go, stretch by stretch."""
        for _, _, place, count in self._runs:
            yield slice(place, place + count)

    def copy(
        self, values: Tensor, features: tuple[int, ...], goal: Tensor, precision: Precision
    ) -> None:
        """Copy the rows of one site at one depth to their places.

        From a GPU the copy is only begun, if its goal is pinned.

        Args:
            values: (sequence, position, ...), or the first two in one.
            features: Shape of a row.
            goal: (row, ...) where to.
            precision: Dtype to whose values they are rounded.

        Raises:
            StructureError: If there are other sequences or positions than were shown.
        """
        if self._batch.kept is None:
            self._spread(rounded(self._means(values), precision).reshape(-1, *features), goal)
            return
        flat = values.reshape(-1, *features)
        sequences, positions = self._batch.shape
        if len(flat) != sequences * positions:
            raise StructureError(
                f"values of the shape {tuple(values.shape)} came up: expected {sequences} "
                f"sequences of {positions} positions"
            )
        if flat.device == goal.device and flat.dtype == goal.dtype and precision == FULL_PRECISION:
            source, target = flat.numpy(), goal.numpy()
            for _, start, place, count in self._runs:
                target[place : place + count] = source[start : start + count]
            return
        kept = self._on(values.device, self._batch.kept)
        self._spread(rounded(flat.index_select(0, kept), precision), goal)

    def _spread(self, rows: Tensor, goal: Tensor) -> None:
        """Copy rows in the order of the batch; where no event tells when they came, wait."""
        rows = rows.to(goal.dtype)
        begin = rows.device.type == "cuda"
        for start, _, place, count in self._runs:
            goal[place : place + count].copy_(rows[start : start + count], non_blocking=begin)

    def _means(self, values: Tensor) -> Tensor:
        """Return the mean over the real positions of each sequence (sequence, entry)."""
        mask = self._on(values.device, self._batch.present)
        rows = values.reshape(*mask.shape, -1).float()
        # Padding may hold anything, and nothing times infinity is not nothing.
        rows = rows.masked_fill(~mask[..., None], 0.0)
        return rows.sum(dim=1) / mask.sum(dim=1, keepdim=True)

    def _on(self, device: torch.device, tensor: Tensor) -> Tensor:
        if device not in self._here:
            self._here[device] = tensor.to(device)
        return self._here[device]
