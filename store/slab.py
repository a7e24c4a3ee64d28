"""One layer of one step, streamed or gathered inside whatever process asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xarray as xr

from .arrays import read_members
from .chunks import ActivationArray, Floats
from .errors import UnknownNameError
from .pinned import (
    activation_array,
    model_extent,
    model_group,
    model_slots,
    site_layers,
    site_slots,
)
from .repository import Repository
from .schema import (
    HEAD,
    KEY_VALUE_HEAD,
    METRICS_GROUP,
    PLACE_COORDINATES,
    STEP,
    TOKEN,
    TOKEN_COORDINATES,
    is_site,
    sites_among,
)

DEFAULT_ROWS = 4096
"""Rows in a block: enough for a matrix product to run at the speed of one over all rows."""


@dataclass(frozen=True)
class Slab:
    """The rows of one step and one layer or block of a site; picklable and small.

    It names a snapshot, so it reads the same values whatever is committed meanwhile, and opens
    the store in the process that reads, once for all slabs of a snapshot.

    Attributes:
        uri: Where the store is.
        snapshot: Id of the snapshot.
        path: Group of the model (or of its stack).
        site: Name of the array.
        slot: Index along the step axis on disk.
        depth: Index along the layer or block axis, None for a site without one.
        step: Label of the step.
        head: Index of the one head to read, None for all of them or a site without heads.
    """

    uri: str
    snapshot: str
    path: str
    site: str
    slot: int
    depth: int | None
    step: int
    head: int | None = None

    @property
    def n_tokens(self) -> int:
        """Number of rows."""
        return self._array.n_tokens

    @property
    def label(self) -> tuple[str, int] | None:
        """Name and label of its depth, as ``("layer", 3)``, None for a site without one."""
        return self._array.depth_label(self.depth)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions of what is read, ``token`` among them."""
        return tuple(name for name in self._array.inner_dims if not self._drops(name))

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of ``dims``: (token, dim) for a residual stream."""
        sizes = zip(self._array.inner_dims, self._array.inner_shape, strict=True)
        return tuple(size for name, size in sizes if not self._drops(name))

    def blocks(self, *, rows: int = DEFAULT_ROWS) -> Iterator[tuple[int, Floats]]:
        """Stream all rows in token order.

        Args:
            rows: Least number of rows in a block; small chunks are joined up to it, a larger
                chunk is a block of its own. The last block holds what is left.

        Yields:
            The first token of the block, and its values (token, dim) as float32; for a site with
            heads and ``head`` None (head, token, head_dim). A block is the caller's to keep.

        Raises:
            MissingChunkError: If a chunk is lost; nothing is ever filled in.
            CorruptChunkError: If the bytes of a chunk are not those that were written.
        """
        yield from self.stretch(0, self.n_tokens, rows=rows)

    def stretch(
        self, first: int, stop: int, *, rows: int = DEFAULT_ROWS, reuse: bool = False
    ) -> Iterator[tuple[int, Floats]]:
        """Stream some consecutive rows in token order.

        Args:
            first: The first of them.
            stop: One past the last.
            rows: About how many rows a block holds.
            reuse: Whether a block may be put where the one before it was: it is valid until the
                next one then, and no memory has to be found for it.

        Yields:
            As ``blocks``: the first token of the block, and its values.

        Raises:
            MissingChunkError: If a chunk is lost; nothing is ever filled in.
            CorruptChunkError: If the bytes of a chunk are not those that were written.
        """
        array = self._array
        size = -(-rows // array.rows) * array.rows
        held: Floats | None = None
        while first < stop:
            # Blocks end with chunks, so that only those at both ends are decoded in part.
            end = min((first // size + 1) * size, stop)
            if reuse and array.token_axis == 0:
                held = array.empty(min(size, stop - first)) if held is None else held
            room = held[: end - first] if held is not None and end - first <= len(held) else None
            ahead = min(size, stop - end)
            values = array.read(self.slot, self.depth, first, end, out=room, ahead=ahead)
            yield first, self._headed(values)
            first = end

    def rows(self, indices: npt.NDArray[np.integer]) -> Floats:
        """Gather rows, reading each chunk once.

        Args:
            indices: Token indices (row,), in any order, repetition allowed.

        Returns:
            The values (row, dim) in the order of ``indices``; for a site with heads and ``head``
            None (head, row, head_dim).

        Raises:
            IndexError: If an index is negative or past the last token.
            MissingChunkError: If a chunk is lost.
            CorruptChunkError: If the bytes of a chunk are not those that were written.
        """
        wanted = np.asarray(indices)
        array = self._array
        if wanted.size and not (wanted.min() >= 0 and wanted.max() < array.n_tokens):
            raise IndexError(
                f"token indices from {wanted.min()} to {wanted.max()} were asked of {self.path}:"
                f" expected 0 to {array.n_tokens - 1}"
            )
        order = np.argsort(wanted, kind="stable")
        values = array.gather(self.slot, self.depth, wanted[order])
        if not np.array_equal(order, np.arange(len(order))):
            back = np.empty_like(order)
            back[order] = np.arange(len(order))
            values = np.take(values, back, axis=array.token_axis)
        return self._headed(values)

    @property
    def _array(self) -> ActivationArray:
        return activation_array(self.uri, self.snapshot, self.path, self.site)

    def _drops(self, name: str) -> bool:
        return self.head is not None and name in (HEAD, KEY_VALUE_HEAD)

    def _headed(self, values: Floats) -> Floats:
        return values if self.head is None else values[self.head]


def slabs(
    repository: Repository,
    path: str,
    *,
    site: str = "residual",
    steps: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
    snapshot: str | None = None,
) -> list[Slab]:
    """List the slabs of a model's site: every complete step, every layer, or those asked for.

    Args:
        repository: The store.
        path: ``corpus/model`` or ``corpus/model/stack``.
        site: Name of the array.
        steps: Labels of steps, all complete ones by default.
        layers: Labels along the layer or block axis, all by default.
        snapshot: Snapshot to read, the newest by default.

    Returns:
        The slabs by step, then by layer, both in the order asked for, else ascending; those of
        layers that a step does not hold are left out.

    Raises:
        UnknownNameError: If the model, the site, a step or a layer is not in the store.
    """
    pinned = snapshot or repository.snapshot_id()
    group = model_group(repository.uri, pinned, path)
    if STEP not in group:
        models = (f"{path}/{name}" for name in group.group_keys() if name != METRICS_GROUP)
        raise UnknownNameError("model", path, models, repository.uri)
    if not is_site(site) or site not in group:
        known = sites_among(group.array_keys())
        raise UnknownNameError("site", site, known, f"{path} of {repository.uri}")
    array = activation_array(repository.uri, pinned, path, site)
    complete = model_slots(repository.uri, pinned, path)
    holds = site_slots(repository.uri, pinned, path, site)
    held = {
        int(step): int(slot)
        for step, slot in zip(complete.steps, complete.slots, strict=True)
        if holds[slot]
    }
    for step in steps or ():
        if step not in held:
            raise UnknownNameError("step", step, held, f"{path} with the site {site!r}")
    depths = _depths(array, layers)
    mask = site_layers(repository.uri, pinned, path, site)
    return [
        Slab(repository.uri, pinned, path, site, held[step], depth, step)
        for step in (held if steps is None else steps)
        for depth in depths
        if depth is None or mask[held[step], depth]
    ]


def _depths(array: ActivationArray, layers: Sequence[int] | None) -> list[int | None]:
    if array.depth_dim is None:
        if layers is not None:
            raise UnknownNameError("layers", list(layers), (), f"{array.path}: {array.site}")
        return [None]
    labels = array.depth_labels
    for layer in layers or ():
        if layer not in labels:
            raise UnknownNameError(array.depth_dim, layer, labels, f"{array.path}: {array.site}")
    return [labels.index(layer) for layer in (sorted(labels) if layers is None else layers)]


def token_table(uri: str, path: str, snapshot: str) -> xr.Dataset:
    """Read the token coordinates of a model, and its attributes.

    Args:
        uri: Where the store is.
        path: ``corpus/model`` or ``corpus/model/stack``.
        snapshot: Id of the snapshot.

    Returns:
        ``schema.TOKEN_COORDINATES``, and those of ``PLACE_COORDINATES`` that the model has, each
        (token,), in memory; the attributes are the group's.

    Raises:
        UnknownNameError: If there is no such model.
    """
    group = model_group(uri, snapshot, path)
    extent = model_extent(uri, snapshot, path)
    known = {**TOKEN_COORDINATES, **PLACE_COORDINATES}
    names = [name for name in known if name in TOKEN_COORDINATES or name in group]
    variables = {
        name: (TOKEN, values, {"long_name": known[name].description})
        for name, values in read_members(group, names, slice(extent.n_tokens)).items()
    }
    return xr.Dataset(variables, attrs=dict(extent.attrs))
