"""The chunks of one site of one step: checked, summed, encoded side by side, and stored.

Assigning to a ``zarr.Array`` stores the same bytes, at twice the time on two cores.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import numpy.typing as npt
import zarr
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync

from .arrays import member
from .blosc_encoding import ChunkEncoding
from .encoded import STORED_AT_ONCE, EncodedBytes, run_all
from .errors import IncompleteError, InvalidBlockError, NonFiniteError
from .freed_memory import keep_freed_memory
from .layout import checksum, token_chunks
from .schema import CHECKSUM_SUFFIX, TOKEN, site_variable
from .site_depths import site_depths
from .undefined import undefined_tokens

Floats = npt.NDArray[np.float32]

ENCODED_AT_ONCE = min(8, -(-(os.cpu_count() or 1) // 2))
"""Chunks encoded at once: storing them and what makes the next ones keeps the other processors
busy, and where two are threads of one core, two that encode slow each other down by half."""


@cache
def _encoders(_process: int) -> ThreadPoolExecutor:
    """Return threads of a process that encode, no more than do at once: each keeps its room."""
    return ThreadPoolExecutor(ENCODED_AT_ONCE, "actlas-encoder")


class SiteWriter:
    """Writes one site of one step, whole chunks of it at a time.

    Args:
        group: The model's group, in a transaction.
        site: Name of the array.
        slot: Index on the step axis.
        step: Training step.
        layers: Layers or blocks to be written, by default all that the array has.
        n_tokens: Tokens that the step is to have, by default as many as the axis.
        held_tokens: Tokens stored before, whose whole chunks stay as they are.
        stored_at_once: Chunks on their way to the store at once.
        on_stored: Told how many encoded bytes each chunk took when it is stored.

    Attributes:
        site: Name of the array.
        checksums: CRC-32C of every chunk written, with the dimensions of the checksum array
            without ``step``.
        nonfinite: Number of NaN and infinite values written.
        stored_bytes: Encoded bytes written.
    """

    def __init__(
        self,
        group: zarr.Group,
        site: str,
        slot: int,
        step: int,
        *,
        layers: Sequence[int] | None = None,
        n_tokens: int | None = None,
        held_tokens: int = 0,
        stored_at_once: int = STORED_AT_ONCE,
        on_stored: Callable[[int], None] = lambda _: None,
    ) -> None:
        keep_freed_memory()
        array = member(group, site)
        variable = site_variable(site)
        self.site = site
        self.dims = variable.dims[1:]
        self._labels, self._depths = site_depths(group, site, layers)
        own = dict(zip(self.dims, array.shape[1:], strict=True))
        own |= {TOKEN: n_tokens} if n_tokens else {}
        own |= {self.dims[0]: len(self._labels)} if self._labels else {}
        self.shape = tuple(own.values())
        self.nonfinite = 0
        self.stored_bytes = 0
        self._slot, self._where = slot, f"step {step} of {group.path}"
        self._token_axis = self.dims.index(TOKEN)
        self._depth = len(self._labels) or None
        self._rows = array.chunks[1:][self._token_axis]
        self._encoding, self._on_stored = ChunkEncoding.of(array), on_stored
        self._stored_at_once = stored_at_once
        self._fill = array.fill_value
        self._undefined = undefined_tokens(group, variable)
        self._group = group
        n_chunks = token_chunks(self.shape[self._token_axis], self._rows)
        self._held_chunks = held_tokens // self._rows
        recorded = member(group, site + CHECKSUM_SUFFIX)
        deep = () if self._depth is None else (self._depth,)
        self.checksums = np.zeros((*deep, n_chunks), np.uint32)
        self._written = np.zeros((self._depth or 1, n_chunks), bool)
        self._written[:, : self._held_chunks] = True
        if self._held_chunks:
            held = np.asarray(recorded[slot])[..., : self._held_chunks]
            self.checksums[..., : self._held_chunks] = held[self._depths] if deep else held

    def write(
        self, token_start: int, values: Floats, *, allow_nonfinite: bool, depth: int = 0
    ) -> None:
        """Store whole chunks of every layer or block, or of some that follow each other.

        Args:
            token_start: First token of the rows, a multiple of the chunk's rows.
            values: The site's dimensions without ``step``, ``token`` narrowed to the rows.
            allow_nonfinite: Count NaN and infinity instead of refusing them.
            depth: Index of the first layer or block of the values.

        Raises:
            InvalidBlockError: If the block does not fit, is misaligned, or was written before.
            NonFiniteError: If it holds NaN or infinity and they are not allowed.
        """
        self._check_block(token_start, values, depth)
        count = cache(
            lambda: self._count_nonfinite(
                token_start, values, depth, allow_nonfinite=allow_nonfinite
            )
        )
        sync(self._store_chunks(token_start // self._rows, values, depth, count))
        self._written[self._place(token_start, values, depth)] = True

    def require_complete(self) -> None:
        """Make sure that every chunk was written.

        Raises:
            IncompleteError: Otherwise, naming the first rows that are missing.
        """
        (missing,) = np.nonzero(~self._written.all(axis=0))
        if len(missing):
            first = int(missing[0]) * self._rows
            stop = min(first + self._rows, self.shape[self._token_axis])
            total = self._written.shape[1]
            raise IncompleteError(
                f"{self._where} cannot be committed: {len(missing)} of {total} chunks"
                f" of {self.site} were not written, the first one of tokens {first} to {stop - 1}."
                " Write every block, then commit"
            )

    def record(self) -> None:
        """Write the checksums, beside those of other layers."""
        recorded = member(self._group, self.site + CHECKSUM_SUFFIX)
        if self._depth is None or self._depths == list(range(recorded.shape[1])):
            recorded[self._slot, ..., : self.checksums.shape[-1]] = self.checksums
            return
        whole = np.asarray(recorded[self._slot])
        whole[self._depths, : self.checksums.shape[-1]] = self.checksums
        recorded[self._slot] = whole

    def move_to(self, group: zarr.Group) -> None:
        """Store everything written so far again, in another transaction.

        Args:
            group: The model's group as the new transaction sees it.
        """
        sync(self._copy(group))
        self._group = group

    def _place(self, token_start: int, values: Floats, depth: int) -> tuple[slice, slice]:
        """Return which depths and chunks a block is of."""
        depths = slice(None)
        if self._depth is not None:
            depths = slice(depth, depth + values.shape[0])
        stop = token_start + values.shape[self._token_axis]
        return depths, slice(token_start // self._rows, -(-stop // self._rows))

    def _check_block(self, token_start: int, values: Floats, depth: int) -> None:
        problem = self._misfit(token_start, values, depth)
        if problem:
            raise InvalidBlockError(f"block of {self.site} for {self._where}: {problem}")

    def _misfit(self, token_start: int, values: Floats, depth: int) -> str | None:
        n_tokens = self.shape[self._token_axis]
        expected = list(self.shape)
        if values.dtype != np.float32:
            return f"expected float32 values, got {values.dtype}; convert them, losslessly if so"
        if values.ndim == len(expected):
            expected[self._token_axis] = values.shape[self._token_axis]
            if self._depth is not None and 0 < values.shape[0] <= self._depth - depth:
                expected[0] = values.shape[0]
        if list(values.shape) != expected:
            return f"expected the shape {self.dims} = {self.shape}, any token, got {values.shape}"
        stop = token_start + expected[self._token_axis]
        if not 0 <= token_start < stop <= n_tokens:
            return f"tokens {token_start} to {stop - 1} are not within 0 to {n_tokens - 1}"
        if token_start % self._rows or (stop % self._rows and stop != n_tokens):
            return (
                f"tokens {token_start} to {stop - 1} cut chunks of {self._rows} tokens in two;"
                f" start at a multiple of {self._rows} and end at one, or at {n_tokens}"
            )
        if self._written[self._place(token_start, values, depth)].any():
            return f"tokens {token_start} to {stop - 1} were written before"
        return None

    def _count_nonfinite(
        self, token_start: int, values: Floats, first: int, *, allow_nonfinite: bool
    ) -> None:
        layers = values if self._depth is not None else values[np.newaxis]
        for depth, layer in enumerate(layers, first):
            finite = np.isfinite(layer)
            if self._undefined is not None:
                # The rows of such a site are single numbers: its token axis is the last one.
                undefined = self._undefined[token_start : token_start + layer.shape[-1]]
                finite |= undefined & np.isnan(layer)
            if finite.all():
                continue
            count = int(layer.size - np.count_nonzero(finite))
            if not allow_nonfinite:
                label = None if self._depth is None else self._labels[depth]
                raise NonFiniteError(self.site, label, count, self._where)
            self.nonfinite += count

    async def _store_chunks(
        self, first_chunk: int, values: Floats, first: int, count_nonfinite: Callable[[], None]
    ) -> None:
        loop, encoders = asyncio.get_running_loop(), _encoders(os.getpid())
        encoding = asyncio.Semaphore(ENCODED_AT_ONCE)
        storing = asyncio.Semaphore(self._stored_at_once)
        store = self._group.store

        async def put(depth: int | None, chunk: int, part: Floats) -> None:
            async with storing:
                async with encoding:
                    encoded, digest, finite = await loop.run_in_executor(
                        encoders, self._encode, part
                    )
                if not finite:
                    count_nonfinite()
                self.checksums[(chunk,) if depth is None else (depth, chunk)] = digest
                self.stored_bytes += len(encoded)
                await store.set(self._key(depth, chunk), EncodedBytes(encoded))
                self._on_stored(len(encoded))

        await run_all(put(*part) for part in self._parts(first_chunk, values, first))

    def _parts(
        self, first_chunk: int, values: Floats, first: int
    ) -> Iterator[tuple[int | None, int, Floats]]:
        """Cut a block into views of single chunks."""
        starts = range(0, values.shape[self._token_axis], self._rows)
        depths = (None,) if self._depth is None else range(len(values))
        for (number, start), depth in itertools.product(enumerate(starts), depths):
            window = [slice(None)] * values.ndim
            window[self._token_axis] = slice(start, start + self._rows)
            part = values[tuple(window)]
            if depth is None:
                yield None, first_chunk + number, part
            else:
                yield first + depth, first_chunk + number, part[depth]

    def _encode(self, part: Floats) -> tuple[memoryview, int, bool]:
        """Encode a chunk, padded to its rows; return it, its checksum, and whether it is finite."""
        axis = self._token_axis - (self._depth is not None)
        values = contiguous = np.ascontiguousarray(part, dtype="<f4")
        digest = checksum(values)
        if part.shape[axis] < self._rows:
            padding = [(0, 0)] * part.ndim
            padding[axis] = (0, self._rows - part.shape[axis])
            contiguous = np.pad(contiguous, padding, constant_values=self._fill)
        encoded = self._encoding.encode(contiguous)
        finite = encoded.known_finite or bool(np.isfinite(values).all())
        return encoded.data, digest, finite

    def _key(self, depth: int | None, chunk: int) -> str:
        index = [0] * len(self.shape)
        index[self._token_axis] = chunk
        if depth is not None:
            index[0] = self._depths[depth]
        return f"{self._group.path}/{self.site}/c/" + "/".join(map(str, (self._slot, *index)))

    async def _copy(self, group: zarr.Group) -> None:
        storing = asyncio.Semaphore(self._stored_at_once)
        prototype = default_buffer_prototype()
        source, target = self._group.store, group.store

        async def copy(key: str) -> None:
            async with storing:
                encoded = await source.get(key, prototype)
                assert encoded is not None
                await target.set(key, encoded)

        written = np.argwhere(self._written[:, self._held_chunks :]).tolist()
        deep = self._depth is not None
        keys = [
            self._key(one if deep else None, self._held_chunks + chunk) for one, chunk in written
        ]
        await run_all(copy(key) for key in keys)
