"""The chunks of one activation array: fetched, checked and decoded straight into place.

Reading through ``zarr.Array`` would decode every chunk into a temporary, copy it, and put the fill
value where a chunk is lost. Here a chunk is decoded into the caller's array, and one that is lost
or damaged is an error that says which rows it held. So is a whole chunk in another's place, unless
only a part of it is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt
import zarr
from numcodecs import blosc
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.core.metadata import ArrayV3Metadata

from .arrays import member
from .blosc_blocks import decode_range
from .chunk_faults import CRC_BYTES, damage, explained, is_as_long_as_it_says
from .chunk_place import ChunkPlace
from .errors import CorruptChunkError, StoreError
from .fetch import EncodedChunks
from .freed_memory import keep_freed_memory
from .recorded import RecordedChecksums
from .schema import BLOCK, LAYER, STEP, TOKEN, site_variable

Floats = npt.NDArray[np.float32]


class ActivationArray:
    """One site's array in one snapshot.

    Attributes:
        path: Group of the model.
        site: Name of the array.
        shape: Shape of the array on disk, step slots included.
        depth_dim: ``"layer"``, ``"block"`` or None.
        inner_dims: Dimensions of the rows of one step and depth, ``token`` among them.
        inner_shape: Their sizes.
        token_axis: Place of ``token`` among ``inner_dims``.
        rows: Tokens in a chunk; the last chunk of the axis may be partly used.
        n_tokens: Number of tokens that may be read, which may be fewer than the axis has.
    """

    def __init__(
        self,
        group: zarr.Group,
        site: str,
        n_tokens: int | None = None,
        *,
        directory: Path | None = None,
    ) -> None:
        keep_freed_memory()
        array = member(group, site)
        _check_codecs(array)
        dims = site_variable(site).dims
        depth = [name for name in dims if name in (LAYER, BLOCK)]
        outer = 1 + len(depth)
        self.path, self.site = group.path, site
        self.shape = array.shape
        self.depth_dim = depth[0] if depth else None
        self.inner_dims, self.inner_shape = dims[outer:], array.shape[outer:]
        self.token_axis = self.inner_dims.index(TOKEN)
        self.rows = array.chunks[dims.index(TOKEN)]
        axis = self.token_axis
        self.n_tokens = self.inner_shape[axis] if n_tokens is None else n_tokens
        self.inner_shape = (
            *self.inner_shape[:axis],
            self.n_tokens,
            *self.inner_shape[axis + 1 :],
        )
        self._chunk_shape = array.chunks[outer:]
        self._recorded = RecordedChecksums(group, site, self.rows, self.token_axis)
        self._labels = {name: member(group, name) for name in (STEP, *depth)}
        self._chunks = EncodedChunks(array, directory)

    def place(self, slot: int, depth: int | None, chunk: int) -> ChunkPlace:
        """Say where a chunk belongs, given its slot, its index along the depth axis, and number."""
        tokens = (chunk * self.rows, min((chunk + 1) * self.rows, self.n_tokens))
        step = self._label(STEP, slot)
        return ChunkPlace(self.path, self.site, step, self.depth_label(depth), tokens)

    def depth_label(self, depth: int | None) -> tuple[str, int] | None:
        """Return the name of the depth dimension and the label at an index along it."""
        if self.depth_dim is None or depth is None:
            return None
        return self.depth_dim, self._label(self.depth_dim, depth)

    def depth_of(self, label: int) -> int:
        """Return the index along the depth axis at which a layer or block lies.

        Raises:
            ValueError: If it is not there.
        """
        return self.depth_labels.index(label)

    def _label(self, dim: str, index: int) -> int:
        if dim == STEP:
            return int(np.asarray(self._labels[dim][index]))
        return self.depth_labels[index]

    @cached_property
    def depth_labels(self) -> list[int]:
        """Layers or blocks along the depth axis, in the order in which they lie on disk."""
        assert self.depth_dim is not None
        return [int(label) for label in np.asarray(self._labels[self.depth_dim][:])]

    def empty(self, count: int) -> Floats:
        """Return room for so many rows (*inner_dims), the token axis narrowed to them."""
        shape = list(self.inner_shape)
        shape[self.token_axis] = count
        return np.empty(shape, dtype=np.float32)

    def read(
        self,
        slot: int,
        depth: int | None,
        start: int,
        stop: int,
        *,
        out: Floats | None = None,
        ahead: int = 0,
    ) -> Floats:
        """Read consecutive rows of one step and depth.

        Args:
            slot: Index along the step axis.
            depth: Index along the layer or block axis, None for a site without one.
            start: First token.
            stop: One past the last token.
            out: Where to put them, of the shape that is returned; a new array by default.
            ahead: How many of the tokens after them are to be read next.

        Returns:
            The values (*inner_dims), the token axis narrowed to ``stop - start``.

        Raises:
            MissingChunkError: If a chunk was never written, or its object is gone.
            CorruptChunkError: If a chunk's bytes are not those that were written.
        """
        if out is None:
            out = self.empty(stop - start)
        numbers = range(start // self.rows, -(-stop // self.rows))
        later = range(numbers.stop, -(-(stop + ahead) // self.rows))
        for number, encoded in self._encoded(slot, depth, numbers, later):
            first = number * self.rows
            low, high = max(start, first), min(stop, first + self.rows)
            target = out[self._tokens(low - start, high - start)]
            self._decode(slot, depth, number, encoded, (low - first, high - first), target)
        return out

    def gather(self, slot: int, depth: int | None, indices: npt.NDArray[np.integer]) -> Floats:
        """Read scattered rows of one step and depth, each chunk once.

        Args:
            slot: Index along the step axis.
            depth: Index along the layer or block axis, None for a site without one.
            indices: Token indices (row,), in ascending order; repetition is fine.

        Returns:
            The values (*inner_dims), the token axis replaced by the rows asked for.

        Raises:
            MissingChunkError: If a chunk was never written, or its object is gone.
            CorruptChunkError: If a chunk's bytes are not those that were written.
        """
        out = self.empty(len(indices))
        numbers, starts = np.unique(indices // self.rows, return_index=True)
        spans = pairwise([*starts.tolist(), len(indices)])
        whole = np.empty(self._chunk_shape, dtype=np.float32)
        encoded_chunks = self._encoded(slot, depth, numbers.tolist())
        for (number, encoded), (low, high) in zip(encoded_chunks, spans, strict=True):
            rows = indices[low:high] - number * self.rows
            first, chunk = self._around(slot, depth, number, encoded, rows, whole)
            np.take(chunk, rows - first, self.token_axis, out[self._tokens(low, high)], mode="clip")
        return out

    def _around(
        self,
        slot: int,
        depth: int | None,
        number: int,
        encoded: npt.NDArray[np.uint8],
        rows: npt.NDArray[np.integer],
        whole: Floats,
    ) -> tuple[int, Floats]:
        """Decode as much of a chunk as its rows need; return the first row of that part, and it."""
        first, stop = int(rows[0]), int(rows[-1]) + 1
        if self.token_axis == 0:
            width = whole[0].nbytes
            body = self._checked(slot, depth, number, encoded)
            try:
                part = decode_range(body, first * width, stop * width)
            except (RuntimeError, ValueError) as error:
                raise CorruptChunkError(str(self.place(slot, depth, number)), str(error)) from error
            if part is not None:
                return first, part.view("<f4").reshape(stop - first, *self._chunk_shape[1:])
        self._decode(slot, depth, number, encoded, (0, self.rows), whole)
        return 0, whole

    def encoded_bytes(self, slot: int, depth: int | None, chunk: int) -> int:
        """Return how many bytes a chunk takes in the store."""
        ((_, encoded),) = self._encoded(slot, depth, [chunk])
        return len(encoded)

    def _tokens(self, start: int, stop: int) -> tuple[slice, ...]:
        return (slice(None),) * self.token_axis + (slice(start, stop),)

    def _encoded(
        self, slot: int, depth: int | None, numbers: Sequence[int], later: Sequence[int] = ()
    ) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
        indices, following = (
            [self._index(slot, depth, number) for number in each] for each in (numbers, later)
        )
        for number, found in zip(numbers, self._chunks.fetch(indices, following), strict=True):
            if isinstance(found, np.ndarray):
                yield number, found
            else:
                raise explained(found, self.place(slot, depth, number)) from found

    def _index(self, slot: int, depth: int | None, chunk: int) -> tuple[int, ...]:
        inner = [0] * len(self.inner_shape)
        inner[self.token_axis] = chunk
        return (slot, *([] if depth is None else [depth]), *inner)

    def _decode(
        self,
        slot: int,
        depth: int | None,
        number: int,
        encoded: npt.NDArray[np.uint8],
        rows: tuple[int, int],
        target: Floats,
    ) -> None:
        """Decode rows of a chunk into an array: in place if they are the chunk, else by a copy."""
        whole = target.shape == self._chunk_shape and target.flags.c_contiguous
        chunk = target if whole else np.empty(self._chunk_shape, dtype=np.float32)
        difference = self._decode_whole(slot, depth, number, encoded, chunk)
        if difference is not None:
            self._checked(slot, depth, number, encoded)
            raise CorruptChunkError(str(self.place(slot, depth, number)), difference)
        if not whole:
            target[...] = chunk[self._tokens(*rows)]

    def _decode_whole(
        self,
        slot: int,
        depth: int | None,
        number: int,
        encoded: npt.NDArray[np.uint8],
        chunk: Floats,
    ) -> str | None:
        """Decode a chunk and return what is wrong with it, if anything is.

        The checksum of its values proves them as well as that of the object would, and that they
        are its own; the object's is looked at where there is no other, or to say what is wrong.
        """
        body = encoded[:-CRC_BYTES]
        if not (self._recorded.exist and is_as_long_as_it_says(body)):
            body = self._checked(slot, depth, number, encoded)
        try:
            blosc.decompress(body, chunk)
        except (RuntimeError, ValueError) as error:
            return str(error)
        return self._recorded.difference(slot, depth, number, chunk)

    def _checked(
        self, slot: int, depth: int | None, number: int, encoded: npt.NDArray[np.uint8]
    ) -> npt.NDArray[np.uint8]:
        """Return a chunk without its checksum, after a check that it is the right one."""
        body, crc = encoded[:-CRC_BYTES], encoded[-CRC_BYTES:]
        if len(encoded) <= CRC_BYTES or google_crc32c.value(body) != int(crc.view("<u4")[0]):
            raise damage(str(self.place(slot, depth, number)), encoded)
        return body


def _check_codecs(array: zarr.Array[ArrayV3Metadata]) -> None:
    """Refuse to decode what the format does not prescribe, rather than decode it wrongly."""
    kinds = tuple(type(codec) for codec in array.compressors)
    if kinds != (BloscCodec, Crc32cCodec) or array.dtype != np.dtype("<f4"):
        found = ", ".join(kind.__name__ for kind in kinds) or "no codec"
        raise StoreError(
            f"{array.path} holds {array.dtype} encoded by {found};"
            " expected float32 encoded by BloscCodec, Crc32cCodec"
        )
