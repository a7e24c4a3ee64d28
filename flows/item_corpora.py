"""Corpora of images and sounds: files looked at one by one, and put into the store as they are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.added_corpus import AddedCorpus, Skipped, digest
from flows.capture.decoding import (
    IMAGE_SUFFIXES,
    SOUND_SUFFIXES,
    decode_image,
    decode_sound,
)
from flows.capture.drawing import drawn
from flows.capture.errors import InputError
from flows.capture.modality import IMAGE
from store.corpora import CorpusSpec
from store.items import Item, create_item_corpus
from store.repository import Repository


@dataclass(frozen=True)
class File:
    """A file of a folder, labelled by the folder that it lies in.

    Attributes:
        path: Where it is.
        name: Its path within the folder that was given.
        label: Name of the first folder of that path, empty for a file outside of any.
    """

    path: Path
    name: str
    label: str

    def read(self) -> bytes:
        """Return its bytes."""
        return self.path.read_bytes()


@dataclass(frozen=True)
class _Looked:
    """Items that were looked at.

    Attributes:
        items: The good ones.
        digests: SHA-256 of each.
        size: Bytes of all of them.
        skipped: Those that cannot be decoded.
    """

    items: list[Item]
    digests: list[str]
    size: int
    skipped: tuple[Skipped, ...]


def add_folder(
    store_uri: str,
    name: str,
    modality: str,
    folder: Path,
    *,
    max_items: int | None = None,
    seed: int = 0,
    strict: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> AddedCorpus:
    """Add the images or the sounds of a folder and of those in it; see :func:`add_items`.

    Files are taken in the order of their names; other kinds of files are passed over. The label
    of an item is the first folder that it lies in.

    Raises:
        InputError: If there is no such file, or none that can be decoded.
    """
    suffixes = IMAGE_SUFFIXES if modality == IMAGE else SOUND_SUFFIXES
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in suffixes)
    if not found:
        raise InputError(
            f"{folder} holds no {modality} files: expected names that end in one of"
            f" {', '.join(sorted(suffixes))}"
        )
    items = [_file(folder, path) for path in found]
    return add_items(
        *(store_uri, name, modality, items),
        max_items=max_items,
        seed=seed,
        strict=strict,
        progress=progress,
    )


def add_items(
    store_uri: str,
    name: str,
    modality: str,
    items: Sequence[Item],
    *,
    max_items: int | None = None,
    seed: int = 0,
    strict: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> AddedCorpus:
    """Add a corpus of images or sounds; the store is made when there is none.

    Args:
        store_uri: The store.
        name: Name of the corpus.
        modality: ``image`` or ``audio``.
        items: The files, each of which is decoded once to see that it is whole.
        max_items: Number of items to draw at random, in their order; all when None.
        seed: Seed of that draw.
        strict: Refuse the corpus if a file cannot be decoded, rather than leave it out.
        progress: Called with the number of files just decoded, and of all.

    Raises:
        InputError: If no file can be decoded, or, where strict, one cannot.
        IdentityConflictError: If another corpus has the name.
    """
    chosen = [items[number] for number in drawn(len(items), max_items, seed)]
    looked = _look(chosen, _decoder(modality), strict=strict, progress=progress)
    keys = zip(looked.items, looked.digests, strict=True)
    spec = CorpusSpec(
        name=name,
        modality=modality,
        chunking={"unit": "item"},
        seed=seed,
        content_sha256=digest([f"{d}\n{i.name}\n{i.label}".encode() for i, d in keys]),
        options={"max_sequences": max_items, "skipped": len(looked.skipped)},
    )
    create_item_corpus(
        Repository.open_or_create(store_uri), spec, items=looked.items, digests=looked.digests
    )
    return AddedCorpus(
        name,
        modality,
        len(looked.items),
        looked.size,
        spec.content_sha256,
        labels=len({item.label for item in looked.items} - {""}),
        skipped=looked.skipped,
    )


def _file(folder: Path, path: Path) -> File:
    within = path.relative_to(folder)
    return File(path, within.as_posix(), within.parts[0] if len(within.parts) > 1 else "")


def _decoder(modality: str) -> Callable[[bytes], object]:
    return decode_image if modality == IMAGE else decode_sound


def _look(
    items: Sequence[Item],
    decode: Callable[[bytes], object],
    *,
    strict: bool,
    progress: Callable[[int, int], None] | None,
) -> _Looked:
    good: list[Item] = []
    digests: list[str] = []
    skipped: list[Skipped] = []
    size = 0
    for item in items:
        if progress is not None:
            progress(1, len(items))
        try:
            content = item.read()
            decode(content)
        except (InputError, OSError) as error:
            reason = f"it cannot be read: {error}" if isinstance(error, OSError) else str(error)
            if strict:
                raise InputError(f"{item.name}: {reason}; leave --strict out to skip it") from error
            skipped.append(Skipped(item.name, reason))
            continue
        good.append(item)
        digests.append(hashlib.sha256(content).hexdigest())
        size += len(content)
    if not good:
        first = f", {skipped[0].name} first: {skipped[0].reason}" if skipped else ""
        raise InputError(f"none of {len(items)} files can be decoded{first}")
    return _Looked(good, digests, size, tuple(skipped))
