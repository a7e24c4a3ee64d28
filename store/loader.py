"""Rows of one model in batches, in order or shuffled, in bounded memory: for training on them.

Shuffling goes in two stages, as is usual where data are larger than memory: the chunks are put in
a random order, and a buffer of many of them is emptied in a random order of its rows. Rows of one
chunk therefore come in the same stretch of an epoch, spread over all the batches of one filling of
the buffer.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from .chunks import ActivationArray, Floats
from .errors import StoreError
from .history import find_snapshot
from .pinned import activation_array
from .repository import Repository
from .slab import Slab, slabs

BUFFER_BYTES: Final = 256 * 2**20
BATCH_ROWS: Final = 4096
_BATCHES_AT_ONCE: Final = 4
"""Batches read together in order: what is left of a reading has to be joined to the next."""
_READERS: Final = 2
"""Chunks read at once to fill the buffer: one is fetched while another is decoded."""

Integers = npt.NDArray[np.int64]
Chunk = tuple[int, int, int]
"""Which slab, and the first token and one past the last."""


@dataclass(frozen=True)
class RowBatch:
    """Rows of a model with their places.

    Attributes:
        values: The rows (row, dim), float32; (row, head, head_dim) for a site with heads.
        step: Training step of each (row,).
        layer: Layer or block of each (row,), -1 for a site without that dimension.
        token: Index of each along the token axis (row,).
    """

    values: Floats
    step: Integers
    layer: Integers
    token: Integers

    def __len__(self) -> int:
        return len(self.token)


@dataclass(frozen=True)
class RowLoader:
    """Rows of a site of one model at one snapshot, over and over; small and picklable.

    Attributes:
        rows_of: The slabs whose rows are given: steps and layers.
        kept: Which tokens are given (token,), None for all.
        batch_rows: Rows in a batch; the last batch has what is left.
        shuffle: Whether to shuffle.
        seed: Seed of every order.
        buffer_bytes: Size of the buffer that is shuffled.
    """

    rows_of: Sequence[Slab]
    kept: npt.NDArray[np.bool_] | None = field(default=None, repr=False)
    batch_rows: int = BATCH_ROWS
    shuffle: bool = True
    seed: int = 0
    buffer_bytes: int = BUFFER_BYTES

    def __post_init__(self) -> None:
        if self.batch_rows < 1:
            raise StoreError(
                f"batches of {self.batch_rows} rows were asked for: expected 1 or more"
            )
        if self.kept is not None and len(self.kept) != self._array.n_tokens:
            raise StoreError(
                f"kept says of {len(self.kept)} tokens whether they are wanted, and"
                f" {self._array.path} has {self._array.n_tokens}: expected one value a token"
            )
        least = self._row_bytes * (self._array.rows + self.batch_rows)
        if self.shuffle and self.buffer_bytes < least:
            raise StoreError(
                f"a buffer of {self.buffer_bytes:,} bytes holds less than a chunk and a batch:"
                f" expected buffer_bytes of {least:,} at least, and many times that to shuffle well"
            )

    @property
    def n_rows(self) -> int:
        """Number of rows of an epoch."""
        return self._n_wanted(0, self._array.n_tokens) * len(self.rows_of)

    def n_batches(self, *, shard: int = 0, shards: int = 1, epoch: int = 0) -> int:
        """Return how many batches a shard gives; those of all shards differ by a chunk's rows."""
        wanted = (self._n_wanted(*chunk[1:]) for chunk in self._chunks(epoch, shard, shards))
        return -(-sum(wanted) // self.batch_rows)

    def batches(self, *, epoch: int = 0, shard: int = 0, shards: int = 1) -> Iterator[RowBatch]:
        """Give the rows of one epoch, each once.

        The same seed, epoch and shards give the same batches. Memory stays below the buffer, two
        chunks and one batch if shuffled, and a few batches if not.

        Args:
            epoch: Which epoch; each has an order of its own.
            shard: Which of the shards: chunks are dealt out, so no row is in two of them.
            shards: Number of processes that share the epoch.

        Raises:
            MissingChunkError: If a chunk is lost; nothing is ever filled in.
            CorruptChunkError: If the bytes of a chunk are not those that were written.
        """
        chunks = self._chunks(epoch, shard, shards)
        if self.shuffle:
            return self._shuffled(chunks, np.random.default_rng([self.seed, epoch, shard, shards]))
        return self._in_order(chunks)

    @property
    def _array(self) -> ActivationArray:
        slab = self.rows_of[0]
        return activation_array(slab.uri, slab.snapshot, slab.path, slab.site)

    @property
    def _row_shape(self) -> tuple[int, ...]:
        shape = list(self._array.inner_shape)
        del shape[self._array.token_axis]
        return tuple(shape)

    @property
    def _row_bytes(self) -> int:
        return 4 * int(np.prod(self._row_shape))

    def _chunks(self, epoch: int, shard: int, shards: int) -> list[Chunk]:
        if not 0 <= shard < shards:
            raise StoreError(f"shard {shard} of {shards} was asked for: expected 0 to {shards - 1}")
        rows, stop = self._array.rows, self._array.n_tokens
        every = [
            (slab, start, min(start + rows, stop))
            for slab in range(len(self.rows_of))
            for start in range(0, stop, rows)
        ]
        order = np.arange(len(every))
        if self.shuffle:  # Every shard has to draw the same order to deal it out.
            order = np.random.default_rng([self.seed, epoch]).permutation(order)
        return [every[index] for index in np.array_split(order, shards)[shard]]

    def _read(self, slab: int, start: int, stop: int, out: Floats | None = None) -> Floats:
        """Read rows (row, ...), tokens first; in place where the rows lie so on disk."""
        place = self.rows_of[slab]
        in_place = out if self._array.token_axis == 0 else None
        values = self._array.read(place.slot, place.depth, start, stop, out=in_place)
        rows = np.moveaxis(values, self._array.token_axis, 0)
        if out is None or in_place is not None:
            return rows
        out[...] = rows
        return out

    def _n_wanted(self, start: int, stop: int) -> int:
        return stop - start if self.kept is None else int(np.count_nonzero(self.kept[start:stop]))

    def _wanted(self, start: int, stop: int) -> Integers:
        if self.kept is None:
            return np.arange(start, stop)
        return start + np.flatnonzero(self.kept[start:stop])

    def _shuffled(self, chunks: list[Chunk], rng: np.random.Generator) -> Iterator[RowBatch]:
        whole = sum(stop - start for _, start, stop in chunks)
        rows = min(self.buffer_bytes // self._row_bytes, whole)
        buffer = np.empty((rows, *self._row_shape), np.float32)
        places = np.empty((len(buffer), 2), np.int64)
        filled, waiting = 0, deque(chunks)
        with ThreadPoolExecutor(_READERS) as readers:
            while waiting:
                group = []
                while waiting and filled + waiting[0][2] - waiting[0][1] <= len(buffer):
                    group.append((filled, waiting.popleft()))
                    filled += self._n_wanted(*group[-1][1][1:])
                deque(readers.map(lambda one: self._put(buffer, places, *one), group), maxlen=0)
                order, full = rng.permutation(filled), filled
                full -= filled % self.batch_rows if waiting else 0
                for first in range(0, full, self.batch_rows):
                    taken = order[first : min(first + self.batch_rows, full)]
                    yield self._batch(np.take(buffer, taken, axis=0), places[taken])
                left = order[full:]
                filled = len(left)
                buffer[:filled], places[:filled] = buffer[left], places[left]

    def _put(self, buffer: Floats, places: Integers, filled: int, chunk: Chunk) -> None:
        slab, start, stop = chunk
        tokens = self._wanted(start, stop)
        after = filled + len(tokens)
        if len(tokens) == stop - start:
            self._read(slab, start, stop, buffer[filled:after])
        elif len(tokens):
            np.take(self._read(slab, start, stop), tokens - start, 0, buffer[filled:after])
        places[filled:after, 0], places[filled:after, 1] = slab, tokens

    def _in_order(self, chunks: list[Chunk]) -> Iterator[RowBatch]:
        rest: Floats = np.empty((0, *self._row_shape), np.float32)
        places: Integers = np.empty((0, 2), np.int64)
        for slab, start, stop in self._joined(chunks):
            values, tokens = self._read(slab, start, stop), self._wanted(start, stop)
            if len(tokens) < len(values):
                values = values[tokens - start]
            places = np.concatenate([places, np.column_stack([np.full_like(tokens, slab), tokens])])
            first = 0
            if len(rest):
                first = min(self.batch_rows - len(rest), len(values))
                rest = np.concatenate([rest, values[:first]])
                if len(rest) < self.batch_rows:
                    continue
                yield self._batch(rest, places[: self.batch_rows])
                places = places[self.batch_rows :]
            full = first + (len(values) - first) // self.batch_rows * self.batch_rows
            for low in range(first, full, self.batch_rows):
                yield self._batch(values[low : low + self.batch_rows], places[: self.batch_rows])
                places = places[self.batch_rows :]
            rest = values[full:]
        if len(rest):
            yield self._batch(rest, places)

    def _joined(self, chunks: list[Chunk]) -> Iterator[Chunk]:
        """Join chunks that follow each other in one slab, up to a few batches."""
        most = max(_BATCHES_AT_ONCE * self.batch_rows, self._array.rows)
        pending: Chunk | None = None
        for chunk in chunks:
            slab, start, stop = chunk
            if pending and pending[0] == slab and pending[2] == start and stop - pending[1] <= most:
                pending = (slab, pending[1], stop)
                continue
            if pending:
                yield pending
            pending = chunk
        if pending:
            yield pending

    @cached_property
    def _labels(self) -> tuple[Integers, Integers]:
        """Step and layer of each slab: looked up once, since a label is read from the store."""
        labels = [slab.label for slab in self.rows_of]
        layers = [-1 if label is None else label[1] for label in labels]
        return np.array([slab.step for slab in self.rows_of]), np.array(layers)

    def _batch(self, values: Floats, places: Integers) -> RowBatch:
        steps, layers = self._labels
        which = places[:, 0]
        return RowBatch(values, steps[which], layers[which], places[:, 1])


def load_rows(
    uri: str | os.PathLike[str],
    path: str,
    *,
    site: str = "residual",
    steps: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
    kept: npt.NDArray[np.bool_] | None = None,
    batch_rows: int = BATCH_ROWS,
    shuffle: bool = True,
    seed: int = 0,
    buffer_bytes: int = BUFFER_BYTES,
    snapshot: str | None = None,
    tag: str | None = None,
) -> RowLoader:
    """Choose rows of a model to go through in batches.

    Args:
        uri: Where the store is.
        path: ``corpus/model`` or ``corpus/model/stack``.
        site: Name of the array.
        steps: Training steps, all by default.
        layers: Layers or blocks, all by default.
        kept: Which tokens are wanted (token,), such as ``~dataset.special.values``; all by default.
        batch_rows: Rows in a batch.
        shuffle: Whether to shuffle; otherwise rows come by step, layer and token.
        seed: Seed of every order.
        buffer_bytes: Size of the buffer that is shuffled, and so of the memory that is needed.
        snapshot: Id of the snapshot to read, the newest by default.
        tag: Name of the tag to read instead.

    Raises:
        UnknownNameError: If the store has no such model, site, step or layer.
        StoreError: If nothing is stored, or the buffer is too small.
    """
    repository = Repository.open(uri, read_only=True)
    at = find_snapshot(repository, snapshot=snapshot, tag=tag)
    found = slabs(repository, path, site=site, steps=steps, layers=layers, snapshot=at)
    if not found:
        raise StoreError(f"no step of {path} is stored in {repository.uri}, so it has no rows")
    return RowLoader(found, kept, batch_rows, shuffle, seed, buffer_bytes)
