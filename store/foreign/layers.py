"""The tensors of one step and site, opened as the layers of an array."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from store.errors import StoreError
from store.schema import BLOCK, DIM, LAYER, SITES, TOKEN

from .table import LabelledTensor
from .tensors import MappedTensor, open_tensor


@dataclass(frozen=True)
class Layers:
    """The tensors of one step and site, one a layer, as rows.

    Attributes:
        tensors: Each (row, dim).
        sequence_length: Rows of a sequence, None when the tensors do not say.
    """

    tensors: tuple[MappedTensor, ...]
    sequence_length: int | None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and width."""
        rows, width = self.tensors[0].values.shape
        return rows, width


def open_step(step: int, labels: Iterable[LabelledTensor]) -> dict[str, Layers]:
    """Open the tensors of a step, those of each site (layer or block, row, dim) as one.

    Raises:
        StoreError: If a site has other dimensions, its layers are not each there once, or shapes
            differ.
    """
    by_site: dict[str, list[LabelledTensor]] = {}
    for label in labels:
        by_site.setdefault(label.site, []).append(label)
    return {site: _open_site(f"step {step}, {site}", site, some) for site, some in by_site.items()}


def _open_site(where: str, site: str, labels: Sequence[LabelledTensor]) -> Layers:
    dims = SITES[site].dims
    depth = next((name for name in (LAYER, BLOCK) if name in dims), None)
    if dims[-2:] != (TOKEN, DIM):
        raise StoreError(f"{where}: only sites of rows (token, dim) can be imported, not {dims}")
    tensors = [open_tensor(label.path, label.tensor) for label in labels]
    if depth is not None and labels[0].layer is None:
        if len(labels) > 1:
            raise StoreError(f"{where}: {len(labels)} tensors without a layer; expected one")
        (whole,) = tensors
        tensors = [MappedTensor(values, whole.dtype) for values in whole.values]
    elif depth is None and len(labels) > 1:
        raise StoreError(f"{where}: {len(labels)} tensors; expected one, for it has no layers")
    elif depth is not None:
        first = 0 if depth == LAYER else 1
        found = sorted(label.layer for label in labels if label.layer is not None)
        if found != list(range(first, first + len(labels))):
            raise StoreError(f"{where}: {depth}s {found}; expected each one from {first} on, once")
        order = np.argsort([label.layer or 0 for label in labels])
        tensors = [tensors[at] for at in order]
    return _as_rows(where, tensors)


def _as_rows(where: str, tensors: Sequence[MappedTensor]) -> Layers:
    shapes = {tensor.values.shape for tensor in tensors}
    if len(shapes) != 1 or len(next(iter(shapes))) not in (2, 3):
        raise StoreError(
            f"{where}: tensors of the shapes {sorted(shapes)}; expected one shape, (token, dim) or"
            " (sequence, position, dim)"
        )
    (shape,) = shapes
    rows = [MappedTensor(one.values.reshape(-1, shape[-1]), one.dtype) for one in tensors]
    return Layers(tuple(rows), shape[1] if len(shape) == 3 else None)


def one_shape(opened: Mapping[int, Mapping[str, Layers]]) -> dict[str, Layers]:
    """Return each site's tensors at the first step that has it, after comparing all steps.

    Raises:
        StoreError: If the shapes of a site differ between steps, or the rows between sites.
    """
    sites: dict[str, Layers] = {}
    for step, of_step in opened.items():
        for site, layers in of_step.items():
            known = sites.setdefault(site, layers)
            if (known.shape, len(known.tensors)) != (layers.shape, len(layers.tensors)):
                raise StoreError(
                    f"step {step}, {site}: {len(layers.tensors)} tensors of {layers.shape} rows and"
                    f" columns; other steps have {len(known.tensors)} of {known.shape}"
                )
    rows = {layers.shape[0] for layers in sites.values()}
    if len(rows) != 1:
        raise StoreError(f"sites have {sorted(rows)} rows; expected the same tokens in each")
    return sites
