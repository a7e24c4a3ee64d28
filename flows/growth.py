"""More sequences of a corpus later: whether what is to be added is what is there, and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np
import zarr

from flows.capture.drawing import Draw, draw
from flows.capture.inputs import TOKENS, Cut
from store.arrays import member
from store.corpora import CorpusSpec
from store.identity import JSON, canonical
from store.lengthen import GROWTH

OFFERED: Final = "offered_sha256"
"""Digest of all texts that the last growth drew from, by which the same request is known again."""


@dataclass(frozen=True)
class FormerCorpus:
    """What a corpus was before it grew.

    Attributes:
        content_sha256: SHA-256 of the content.
        length: Number of its texts, or sequences of ids.
        max_sequences: Number of sequences drawn, None for all.
    """

    content_sha256: str
    length: int
    max_sequences: int | None


def growth_of(facts: Mapping[str, JSON]) -> list[FormerCorpus]:
    """Return all that a corpus was and is, by its attributes; nothing if it never grew."""
    return [_former(entry) for entry in _entries(facts)]


def _entries(facts: Mapping[str, JSON]) -> list[Mapping[str, JSON]]:
    listed = facts.get(GROWTH, ())
    assert isinstance(listed, Sequence)
    return [entry for entry in listed if isinstance(entry, Mapping)]


def _former(entry: Mapping[str, JSON]) -> FormerCorpus:
    digest, length, wanted = (entry[name] for name in ("content_sha256", "length", "max_sequences"))
    assert isinstance(length, int)
    assert wanted is None or isinstance(wanted, int)
    return FormerCorpus(str(digest), length, wanted)


def is_last_growth(group: zarr.Group, spec: CorpusSpec, offered_sha256: str) -> bool:
    """Tell whether a corpus became what it is by just this request."""
    facts = group.attrs.asdict()
    *_, last = _entries(facts) or [{}]
    return last.get(OFFERED) == offered_sha256 and _alike(facts, spec, *_SAME, "max_sequences")


def holds_all(group: zarr.Group, spec: CorpusSpec, offered: Sequence[Cut]) -> bool:
    """Tell whether a corpus is all texts that there are, and as many or more are asked for.

    Where each model cuts the texts, more sequences may be in them.
    """
    held, limit = held_cuts(group), _limit(spec.options)
    whole = spec.chunking["unit"] != TOKENS and set(held) == set(offered)
    enough = limit is None or limit >= len(held)
    return whole and enough and _alike(group.attrs.asdict(), spec, *_SAME)


def texts_to_add(group: zarr.Group, spec: CorpusSpec, offered: Sequence[Cut]) -> list[Cut] | None:
    """Return the texts that a corpus lacks, None if what is asked for is not it and more.

    Args:
        group: The group of the corpus.
        spec: What is asked for.
        offered: All texts that there are to choose from.
    """
    facts = group.attrs.asdict()
    held = held_cuts(group)
    known = set(held)
    stored, limit = _limit(facts["options"]), _limit(spec.options)
    if not _alike(facts, spec, *_SAME) or not known <= set(offered):
        return None
    left = [cut for cut in offered if cut not in known]
    if spec.chunking["unit"] == TOKENS:
        grows = left and limit == stored
        more = stored is not None and (limit is None or limit > stored)
        return left if grows or more else None
    documents = np.repeat([0, 1], [len(held), len(left)])
    chosen = draw(documents, [Draw(1, None), Draw(2, limit)], spec.seed)[len(held) :]
    return [left[at - len(held)] for at in chosen] or None


def grown_spec(
    group: zarr.Group, spec: CorpusSpec, lengths: tuple[int, int], offered_sha256: str
) -> CorpusSpec:
    """Return a specification that says what the corpus was.

    Args:
        group: The group of the corpus as it is.
        spec: What it is to be.
        lengths: Number of its texts, or sequences of ids: now, and from then on.
        offered_sha256: Digest of all that was there to choose from.
    """
    facts = group.attrs.asdict()
    digest = str(facts["content_sha256"])
    former = growth_of(facts) or [FormerCorpus(digest, lengths[0], _limit(facts["options"]))]
    now = FormerCorpus(spec.content_sha256, lengths[1], _limit(spec.options))
    last: dict[str, JSON] = {**asdict(now), OFFERED: offered_sha256}
    return replace(spec, growth=[*map(asdict, former), last])


_SAME: Final = ("modality", "chunking", "seed", "special_tokens")


def _alike(facts: Mapping[str, JSON], spec: CorpusSpec, *names: str) -> bool:
    """Compare a stored corpus with one that is asked for, by attributes and options."""
    stored, wanted = ({**one, **_mapping(one["options"])} for one in (facts, spec.attributes()))
    return all(canonical(stored.get(name)) == canonical(wanted.get(name)) for name in names)


def held_cuts(group: zarr.Group) -> list[Cut]:
    """Return the texts of a corpus."""
    columns = (np.asarray(member(group, name)[:]) for name in ("text", "source", "source_start"))
    rows = zip(*columns, strict=True)
    return [Cut(str(text), str(source), int(start)) for text, source, start in rows]


def held_sequences(group: zarr.Group) -> int:
    """Return the number of sequences of a corpus of ids."""
    return int(np.asarray(member(group, "sequence")[-1:]).item()) + 1


def _limit(options: JSON) -> int | None:
    wanted = _mapping(options).get("max_sequences")
    assert wanted is None or isinstance(wanted, int)
    return wanted


def _mapping(value: JSON) -> Mapping[str, JSON]:
    assert isinstance(value, Mapping)
    return value
