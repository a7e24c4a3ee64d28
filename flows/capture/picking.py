"""Which of the values (sequence, position, ...) of a batch are rows, and how they become rows."""

from __future__ import annotations

import torch
from torch import Tensor

from flows.capture.batches import Batch
from flows.capture.errors import StructureError
from flows.capture.rounding import FULL_PRECISION, Precision, rounded


class Picked:
    """The rows of one batch, on every device that gives values of it.

    Args:
        batch: The batch, None for one without rows.
    """

    def __init__(self, batch: Batch | None) -> None:
        self._batch = batch
        self._kept: dict[torch.device, Tensor] = {}
        self.n_rows = 0 if batch is None else len(batch.rows)

    def copy(
        self, values: Tensor, features: tuple[int, ...], goal: Tensor, precision: Precision
    ) -> None:
        """Copy the rows of one site at one depth.

        From another device the copy is only begun, if its goal is pinned.

        Args:
            values: (sequence, position, ...), or the first two in one.
            features: Shape of a row.
            goal: (row, ...) where to.
            precision: Dtype to whose values they are rounded.

        Raises:
            StructureError: If there are other sequences or positions than were shown.
        """
        assert self._batch is not None
        if self._batch.kept is None:
            means = rounded(self._means(values), precision).to(goal.dtype)
            goal.copy_(means.reshape(goal.shape), non_blocking=True)
            return
        flat = values.reshape(-1, *features)
        sequences, positions = self._batch.shape
        if len(flat) != sequences * positions:
            raise StructureError(
                f"values of the shape {tuple(values.shape)} came up: expected {sequences} "
                f"sequences of {positions} positions"
            )
        kept = self._on(values.device, self._batch.kept)
        direct = flat.dtype == goal.dtype and flat.device == goal.device and goal.is_contiguous()
        if direct and precision == FULL_PRECISION:
            torch.index_select(flat, 0, kept, out=goal)
        else:
            chosen = rounded(flat.index_select(0, kept), precision)
            goal.copy_(chosen.to(goal.dtype), non_blocking=True)

    def _means(self, values: Tensor) -> Tensor:
        """Return the mean over the real positions of each sequence (sequence, entry)."""
        assert self._batch is not None
        mask = self._on(values.device, self._batch.present)
        rows = values.reshape(*mask.shape, -1).float()
        # Padding may hold anything, and nothing times infinity is not nothing.
        rows = rows.masked_fill(~mask[..., None], 0.0)
        return rows.sum(dim=1) / mask.sum(dim=1, keepdim=True)

    def _on(self, device: torch.device, tensor: Tensor) -> Tensor:
        if device not in self._kept:
            self._kept[device] = tensor.to(device)
        return self._kept[device]
