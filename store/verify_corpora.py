"""Proving that the texts and items of a corpus are those that were added."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import zarr

from .arrays import member
from .errors import StoreError
from .items import StoredItems
from .listing import GroupNode
from .translation import first_line


def wrong_texts(root: zarr.Group, node: GroupNode) -> Iterator[tuple[str, str]]:
    """Compare the texts or items of a corpus with the digests they were added with.

    Args:
        root: The root group of a snapshot.
        node: A group, of a corpus or not.

    Yields:
        The array and what is wrong with it, for each text or item that is not as it was added.
    """
    try:
        if "text_sha256" in node.arrays:
            yield from _wrong_texts(root, node.path)
        if "item_sha256" in node.arrays:
            group = root[node.path]
            assert isinstance(group, zarr.Group)
            yield from _wrong_items(StoredItems(group))
    except Exception as error:  # noqa: BLE001 - whatever the codec says, it cannot be read
        yield "", f"cannot be read: {first_line(error)}"


def _wrong_texts(root: zarr.Group, path: str) -> Iterator[tuple[str, str]]:
    texts, digests = (np.asarray(member(root, f"{path}/{n}")[:]) for n in ("text", "text_sha256"))
    for number, (text, digest) in enumerate(zip(texts, digests, strict=True)):
        found = hashlib.sha256(str(text).encode()).hexdigest()
        if found != str(digest):
            yield "text", f"text {number} has SHA-256 {found[:12]}, {str(digest)[:12]} when added"


def _wrong_items(items: StoredItems) -> Iterator[tuple[str, str]]:
    for number in range(len(items)):
        try:
            items.read(number)
        except StoreError as error:
            yield "content", str(error)
