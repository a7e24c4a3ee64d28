"""A corpus of the store as what a checkpoint's model is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import zarr

from flows.capture.configs import load_config, longest_input
from flows.capture.drawing import Draw
from flows.capture.inputs import from_ids, tokenize
from flows.capture.modality import AUDIO, IMAGE, TEXT, require_modality
from flows.capture.tokenizer import load_tokenizer
from flows.growth import FormerCorpus, growth_of
from store.arrays import member
from store.errors import UnknownNameError
from store.identity import JSON
from store.items import StoredItems
from store.repository import Repository

if TYPE_CHECKING:
    from flows.capture.checkpoints import Checkpoint
    from flows.capture.items import Items
    from flows.capture.tokens import Tokens

_ADDED: Final = 8
"""More tokens than a tokenizer adds to a sequence, and than UTF-8 bytes it leaves alone."""


@dataclass(frozen=True)
class Corpus:
    """A corpus as the store holds it.

    Attributes:
        name: Its name.
        modality: ``text``, ``ids``, ``image`` or ``audio``.
        chunking: How texts become sequences.
        content_sha256: SHA-256 of the content.
        seed: Seed of the draw of sequences.
        max_sequences: Number of sequences drawn, None for all.
        special_tokens: Whether tokenizers add theirs.
        former: What it was before it grew, the shortest first.
        length: Number of its texts, or sequences of ids; the group may hold more by now.
        group: Its group, at the snapshot it was opened at; texts and ids are read from it.
    """

    name: str
    modality: str
    chunking: Mapping[str, JSON]
    content_sha256: str
    seed: int
    max_sequences: int | None
    special_tokens: bool
    former: tuple[FormerCorpus, ...]
    length: int | None
    group: zarr.Group

    @property
    def has_text(self) -> bool:
        """Whether a tokenizer is needed."""
        return self.modality == TEXT

    @property
    def has_items(self) -> bool:
        """Whether it holds images or sounds, which a checkpoint's own processor prepares."""
        return self.modality in (IMAGE, AUDIO)

    def identity(self) -> dict[str, JSON]:
        """Return everything about the corpus that changes what a model is shown."""
        draws = [[one.length, one.max_sequences] for one in self.former]
        grown: dict[str, JSON] = {"grown_from": draws} if draws else {}
        return grown | {
            "content_sha256": self.content_sha256,
            "chunking": self.chunking,
            "seed": self.seed,
            "max_sequences": self.max_sequences,
            "special_tokens": self.special_tokens,
        }

    def earlier(self) -> list[Corpus]:
        """Return what the corpus was before it grew, the shortest first."""
        return [
            replace(
                self,
                content_sha256=one.content_sha256,
                max_sequences=one.max_sequences,
                former=self.former[:number],
                length=one.length,
            )
            for number, one in enumerate(self.former)
        ]


def read_corpus(repository: Repository, name: str) -> Corpus:
    """Open a corpus, without reading its texts.

    Raises:
        UnknownNameError: If the store does not hold it.
    """
    root = repository.read()
    group = root.get(name)
    if not isinstance(group, zarr.Group):
        raise UnknownNameError("corpus", name, sorted(root.group_keys()), repository.uri)
    facts = group.attrs.asdict()
    chunking, seed, options = facts["chunking"], facts["seed"], facts["options"]
    assert isinstance(chunking, Mapping)
    assert isinstance(seed, int)
    assert isinstance(options, Mapping)
    wanted = options.get("max_sequences")
    assert wanted is None or isinstance(wanted, int)
    growth = growth_of(facts)
    return Corpus(
        name=name,
        modality=str(facts["modality"]),
        chunking=chunking,
        content_sha256=str(facts["content_sha256"]),
        seed=seed,
        max_sequences=wanted,
        special_tokens=bool(options.get("special_tokens", False)),
        former=tuple(growth[:-1]),
        length=growth[-1].length if growth else None,
        group=group,
    )


def corpus_inputs(corpus: Corpus, checkpoint: Checkpoint) -> Tokens | Items:
    """Return what a checkpoint's model is shown: tokens, or prepared images or sounds.

    Raises:
        CaptureError: If the model takes other kinds of input, or lacks what prepares them.
    """
    require_kind(corpus, checkpoint)
    if not corpus.has_items:
        return corpus_tokens(corpus, checkpoint)
    stored = StoredItems(corpus.group)
    # Here, not above: they need torch, which takes seconds to import.
    if corpus.modality == IMAGE:
        from flows.capture.images import Images

        return Images(checkpoint, stored.read, len(stored))
    from flows.capture.sounds import Sounds

    return Sounds(checkpoint, stored.read, len(stored))


def require_kind(corpus: Corpus, checkpoint: Checkpoint) -> None:
    """Refuse a corpus of another kind than a checkpoint's model takes, by its config alone.

    Raises:
        InputError: If the model takes other kinds of input.
        CheckpointError: If the config cannot be read.
    """
    kind = corpus.modality if corpus.has_items else TEXT
    require_modality(load_config(checkpoint), checkpoint.source, kind, corpus.name)


def preparation(corpus: Corpus, checkpoint: Checkpoint) -> dict[str, JSON]:
    """Return the settings with which a checkpoint prepares images or sounds, none for text.

    Raises:
        CaptureError: If the model takes other kinds of input, or lacks what prepares them.
    """
    if not corpus.has_items:
        return {}
    require_kind(corpus, checkpoint)
    if corpus.modality == IMAGE:
        from flows.capture.images import image_settings

        return {"preprocessing": image_settings(checkpoint)}
    from flows.capture.sounds import sound_settings

    return {"preprocessing": sound_settings(checkpoint)}


def corpus_tokens(corpus: Corpus, checkpoint: Checkpoint) -> Tokens:
    """Return the tokens of a corpus for a checkpoint's tokenizer, or its ids as they are.

    Raises:
        CaptureError: If the tokenizer is missing, or the texts do not give one sequence.
    """
    config = load_config(checkpoint)
    if not corpus.has_text:
        ids = np.asarray(member(corpus.group, "token_id")[:])
        numbers = np.asarray(member(corpus.group, "sequence")[:])
        sequences = np.split(ids, np.flatnonzero(np.diff(numbers)) + 1)[: corpus.length]
        return from_ids(sequences, max_length=longest_input(config))
    tokenizer = load_tokenizer(checkpoint)
    by_tokens = corpus.chunking["unit"] == "tokens"
    return tokenize(
        [str(text) for text in np.asarray(member(corpus.group, "text")[: corpus.length])],
        tokenizer,
        chunking=corpus.chunking,
        special_tokens=corpus.special_tokens,
        max_length=longest_input(config, tokenizer),
        max_sequences=corpus.max_sequences if by_tokens else None,
        seed=corpus.seed,
        earlier=[Draw(one.length, one.max_sequences) for one in corpus.former if by_tokens],
    )


def most_tokens(corpus: Corpus) -> int:
    """Return a number of tokens that no tokenizer makes more of the corpus than."""
    if not corpus.has_text:
        return member(corpus.group, "token_id").shape[0]
    texts = np.asarray(member(corpus.group, "text")[:])
    return sum(len(str(text).encode()) + _ADDED for text in texts)
