"""Corpora of images and sounds: the files themselves, so that any model can be run over them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import zarr

from .arrays import create_bytes, create_table, member, string_column
from .corpora import CorpusSpec
from .errors import IdentityConflictError, StoreError
from .identity import identity_difference
from .layout import BYTES_PER_CHUNK
from .repository import Repository
from .schema import ITEM_VARIABLES, node_name

_WRITTEN_AT_ONCE: Final = 16 << 20
"""Bytes that wait to be written; more than a chunk, whatever the sizes of the files."""


class Item(Protocol):
    """A file, or something like one, that can be read more than once."""

    @property
    def name(self) -> str:
        """The file it comes from."""

    @property
    def label(self) -> str:
        """Its label, empty where it has none."""

    def read(self) -> bytes:
        """Return all its bytes."""


def create_item_corpus(
    repository: Repository, spec: CorpusSpec, *, items: Sequence[Item], digests: Sequence[str]
) -> None:
    """Create a corpus of files, unless the same one is there.

    Args:
        repository: The store.
        spec: What the corpus is.
        items: The files, read one after the other.
        digests: SHA-256 of each, as found when it was looked at.

    Raises:
        IdentityConflictError: If another corpus has the name.
        StoreError: If the name cannot name a group, there are no items, or one changed meanwhile.
    """
    if node_name(spec.name) != spec.name:
        raise StoreError(f"{spec.name!r} cannot name a corpus: expected a name without '/'")
    if not items:
        raise StoreError(f"corpus {spec.name!r} needs at least one item, got none")

    def change(root: zarr.Group) -> None:
        stored = root.get(spec.name)
        if isinstance(stored, zarr.Group):
            different = identity_difference(stored.attrs.asdict(), spec.attributes())
            if different:
                what = f"corpus {spec.name!r}"
                advice = "Give the options it was stored with, or give the corpus another name"
                raise IdentityConflictError(what, different, advice)
            return
        group = root.create_group(spec.name, attributes=spec.attributes())
        bounds = _write_contents(group, items, digests)
        columns = {
            "item_name": string_column([item.name for item in items]),
            "label": string_column([item.label for item in items]),
            "item_sha256": string_column(digests),
            "item_start": bounds[:-1],
            "item_stop": bounds[1:],
        }
        for name, values in columns.items():
            create_table(group, ITEM_VARIABLES[name], values)

    count = f"{len(items):,} {'item' if len(items) == 1 else 'items'}"
    repository.update(f"add corpus {spec.name}: {count}", change)


class StoredItems:
    """The items of a corpus in the store, each read when it is asked for.

    Attributes:
        names: File that each came from.
        labels: Label of each, empty where it has none.

    Args:
        group: The corpus's group.
    """

    def __init__(self, group: zarr.Group) -> None:
        columns = {
            name: np.asarray(member(group, name)[:]) for name in ITEM_VARIABLES.keys() - {"content"}
        }
        self.names = [str(name) for name in columns["item_name"]]
        self.labels = [str(label) for label in columns["label"]]
        self._digests = columns["item_sha256"]
        self._bounds = np.stack([columns["item_start"], columns["item_stop"]], axis=1)
        self._content = member(group, "content")
        self._held, self._held_from = b"", 0

    def __len__(self) -> int:
        return len(self.names)

    def read(self, number: int) -> bytes:
        """Return the bytes of an item.

        Raises:
            StoreError: If they are not those that were stored.
        """
        start, stop = (int(bound) for bound in self._bounds[number])
        if not self._held_from <= start <= stop <= self._held_from + len(self._held):
            # Those that follow lie in the same chunks, and are likely to be asked for next.
            ahead = np.asarray(self._content[start : max(stop, start + BYTES_PER_CHUNK)])
            self._held, self._held_from = ahead.tobytes(), start
        content = self._held[start - self._held_from : stop - self._held_from]
        if hashlib.sha256(content).hexdigest() != self._digests[number]:
            raise StoreError(
                f"item {number} of {self._content.path}, {self.names[number]}, has other bytes than"
                f" were stored: expected SHA-256 {str(self._digests[number])[:12]}"
            )
        return content


def _write_contents(
    group: zarr.Group, items: Sequence[Item], digests: Sequence[str]
) -> npt.NDArray[np.int64]:
    """Write the files one after the other; return where each starts, and where the last ends."""
    bounds = [0]
    waiting = bytearray()
    array = create_bytes(group, ITEM_VARIABLES["content"])
    for item, digest in zip(items, digests, strict=True):
        content = item.read()
        if hashlib.sha256(content).hexdigest() != digest:
            raise StoreError(f"{item.name} changed while it was being added; add the corpus again")
        bounds.append(bounds[-1] + len(content))
        waiting += content
        if len(waiting) >= _WRITTEN_AT_ONCE:
            array.append(np.frombuffer(bytes(waiting), dtype=np.uint8))
            waiting.clear()
    array.append(np.frombuffer(bytes(waiting), dtype=np.uint8))
    return np.asarray(bounds, dtype=np.int64)
