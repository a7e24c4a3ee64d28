"""Corpora from the samples of WebDataset shards: of images, sounds or texts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from flows.added_corpus import AddedCorpus
from flows.capture.decoding import IMAGE_SUFFIXES, SOUND_SUFFIXES
from flows.capture.errors import InputChoiceError, InputError
from flows.capture.modality import AUDIO, IMAGE, TEXT
from flows.corpora import Chunking, add_texts
from flows.dataset_corpora import WHOLE_TEXTS, Columns
from flows.item_corpora import add_items
from flows.readable_texts import readable_texts
from flows.shards import Member, Sample, find_shards, read_samples

_TEXT_SUFFIXES: Final = frozenset({".text", ".transcript", ".txt"})
_CLASS: Final = "cls"
_JSON: Final = "json"
_LABEL: Final = "label"


@dataclass(frozen=True)
class _Content:
    """The member of a sample that becomes an item, or a text.

    Attributes:
        name: Name of the sample.
        label: Its label, empty where it has none.
        member: The member.
    """

    name: str
    label: str
    member: Member

    def read(self) -> bytes:
        """Return its bytes."""
        return self.member.read()


def add_shards(
    store_uri: str,
    name: str,
    path: Path,
    columns: Columns,
    *,
    chunking: Chunking = WHOLE_TEXTS,
    max_sequences: int | None = None,
    seed: int = 0,
    special_tokens: bool = True,
    strict: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> AddedCorpus:
    """Add the images, sounds or texts of WebDataset shards as a corpus.

    Shards are taken in the order of their names, samples in that of their shard. Members are read
    one at a time from where they lie; nothing is extracted. Texts are held together.

    Args:
        store_uri: The store.
        name: Name of the corpus.
        path: A ``.tar`` file, a folder of them, or a pattern such as ``train-{000..003}.tar``.
        columns: Extension of the members that are meant, or several with ``;`` between them, the
            first of which counts; and extension of the labels, or their key in ``.json``
            members. None means the only kind that there is, images and sounds before texts; and
            ``.cls`` members, or the key ``label``.
        chunking: How texts become sequences.
        max_sequences: Number of sequences or items to draw at random; all when None.
        seed: Seed of that draw.
        special_tokens: Whether tokenizers add theirs.
        strict: Refuse the corpus if a member is damaged or missing, rather than leave it out.
        progress: Called with the number of images or sounds just decoded, and of all.

    Raises:
        InputError: If a shard is cut off or damaged, no such members are there, none is whole, or,
            where strict, one is not.
        IdentityConflictError: If another corpus has the name.
    """
    if columns.split is not None:
        raise InputChoiceError(
            "shards have no splits: choose them by name, as in 'shards/train-*.tar'"
        )
    shards = find_shards(path)
    samples = [sample for short, shard in shards.items() for sample in read_samples(short, shard)]
    kind, extensions = _choice(path, samples, columns.content)
    contents = _contents(path, samples, extensions, columns.label)
    if kind == TEXT:
        members = {one.name: one.member for one in contents}
        texts, skipped = readable_texts(members, lambda key: _decoded(members[key]), strict=strict)
        labels = {one.name: one.label for one in contents}
        added = add_texts(
            *(store_uri, name, texts),
            chunking=chunking,
            max_sequences=max_sequences,
            seed=seed,
            special_tokens=special_tokens,
            labels=labels if any(labels.values()) else None,
        )
        return replace(added, skipped=skipped)
    if chunking != WHOLE_TEXTS:
        raise InputChoiceError(f"{path} holds {kind}, which is not cut: leave --chunk-… out")
    return add_items(
        *(store_uri, name, kind, contents),
        max_items=max_sequences,
        seed=seed,
        strict=strict,
        progress=progress,
    )


def _choice(path: Path, samples: Sequence[Sample], wanted: str | None) -> tuple[str, list[str]]:
    """Return the kind of the corpus and the extensions of its members, the first preferred."""
    counts = Counter(extension for sample in samples for extension in sample.members)
    kinds = {extension: _kind(extension) for extension in counts}
    chosen = _named(path, counts, wanted) if wanted else _likely(samples, kinds)
    found = {kinds[extension] for extension in chosen}
    if len(found) != 1 or None in found:
        raise InputChoiceError(
            f"{path} holds {_told(counts)}: name the extension of images, sounds or texts that is"
            f" meant with --column, such as --column {_example(kinds)}"
        )
    return str(*found), chosen


def _named(path: Path, counts: Mapping[str, int], wanted: str) -> list[str]:
    chosen = [one.strip().removeprefix(".").lower() for one in re.split("[;,]", wanted)]
    for extension in chosen:
        if extension not in counts:
            raise InputChoiceError(f"{path} has no members .{extension}: it holds {_told(counts)}")
    return chosen


def _likely(samples: Sequence[Sample], kinds: Mapping[str, str | None]) -> list[str]:
    """Return what is meant when nothing is said; nothing where that is not clear."""
    items = [extension for extension, kind in kinds.items() if kind in (IMAGE, AUDIO)]
    likely = items or [extension for extension, kind in kinds.items() if kind == TEXT]
    clear = all(len(sample.members.keys() & set(likely)) <= 1 for sample in samples)
    return sorted(likely) if clear else []


def _kind(extension: str) -> str | None:
    suffix = PurePosixPath(f"a.{extension}").suffix
    suffixes = {IMAGE: IMAGE_SUFFIXES, AUDIO: SOUND_SUFFIXES, TEXT: _TEXT_SUFFIXES}
    return next((kind for kind, known in suffixes.items() if suffix in known), None)


def _told(counts: Mapping[str, int]) -> str:
    found = [
        f"{number:,} {(_kind(extension) or 'other')} .{extension}"
        for extension, number in counts.items()
    ]
    return ", ".join(found) or "no samples, which are members such as 0001.png and 0001.cls"


def _example(kinds: Mapping[str, str | None]) -> str:
    return next((extension for extension, kind in sorted(kinds.items()) if kind), "png")


def _contents(
    path: Path, samples: Sequence[Sample], extensions: Sequence[str], column: str | None
) -> list[_Content]:
    label_of = _labels(path, samples, column)
    contents = []
    for sample in samples:
        held = [sample.members[one] for one in extensions if one in sample.members]
        lacking = Member(path, 0, 0, f"it has no member .{', .'.join(extensions)}")
        member, label = (held or [lacking])[0], ""
        try:
            label = label_of(sample)
        except InputError as error:
            member = replace(member, problem=member.problem or f"its label: {error}")
        contents.append(_Content(sample.name, label, member))
    if column is not None and not any(one.label for one in contents):
        raise InputChoiceError(
            f"{path} has no label {column!r} in any sample: {_label_hint(samples)}"
        )
    return contents


def _labels(path: Path, samples: Sequence[Sample], column: str | None) -> Callable[[Sample], str]:
    extensions = {extension for sample in samples for extension in sample.members}
    extension = (column or _CLASS).removeprefix(".").lower()
    if extension in extensions - {_JSON}:
        return lambda sample: _decoded(sample.members.get(extension)).strip()
    if _JSON in extensions:
        return lambda sample: _json_label(sample.members.get(_JSON), column or _LABEL)
    if column is not None:
        raise InputChoiceError(f"{path} has no label {column!r}: {_label_hint(samples)}")
    return lambda _sample: ""


def _decoded(member: Member | None) -> str:
    if member is None:
        return ""
    try:
        return member.read().decode()
    except UnicodeDecodeError as error:
        found = error.object[error.start]
        raise InputError(f"it is not UTF-8 text: byte {error.start} is {found:#04x}") from error


def _json_label(member: Member | None, key: str) -> str:
    held = _json(member)
    value = held.get(key, "") if isinstance(held, dict) else ""
    return value if isinstance(value, str) else json.dumps(value)


def _json(member: Member | None) -> object:
    text = _decoded(member)
    try:
        held: object = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise InputError(f"it is not JSON: {error}") from error
    return held


def _label_hint(samples: Sequence[Sample]) -> str:
    extensions = sorted({extension for sample in samples for extension in sample.members})
    found = f"samples have the members .{', .'.join(extensions)}"
    for member in (one.members[_JSON] for one in samples if _JSON in one.members):
        try:
            held = _json(member)
        except InputError:
            continue
        if isinstance(held, dict) and held:
            return f"{found}, and .json the keys {', '.join(held)}"
    return found
