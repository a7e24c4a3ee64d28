"""Which rows of a corpus are kept: all, a few of each sequence, one of each, or their mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flows.capture.errors import InputError
from flows.capture.tokens import Tokens

ALL: Final = "all"
SAMPLE: Final = "sample"
LAST: Final = "last"
FIRST: Final = "first"
MEAN: Final = "mean"


@dataclass(frozen=True)
class RowChoice:
    """Which rows are kept of what a model computes.

    Attributes:
        kind: ``all``; ``sample``, so many tokens of each sequence; ``last``, each sequence's last
            token; ``first``, its first one, where encoders have CLS; ``mean``, one row a
            sequence, the mean over all its tokens. Special tokens are neither drawn nor last.
        per_sequence: How many tokens are drawn of a sequence, at most.
        seed: Seed of that draw.
    """

    kind: str = ALL
    per_sequence: int | None = None
    seed: int = 0

    def facts(self) -> dict[str, str | int]:
        """Return what tells a choice from others, nothing where all rows are kept."""
        if self.kind == ALL:
            return {}
        if self.kind != SAMPLE:
            return {"kind": self.kind}
        assert self.per_sequence is not None
        return {"kind": SAMPLE, "per_sequence": self.per_sequence, "seed": self.seed}

    @staticmethod
    def of_facts(facts: Mapping[str, object]) -> RowChoice:
        """Return the choice that gave its facts."""
        count, seed = facts.get("per_sequence"), facts.get("seed")
        return RowChoice(
            kind=str(facts.get("kind", ALL)),
            per_sequence=count if isinstance(count, int) else None,
            seed=seed if isinstance(seed, int) else 0,
        )


def row_choice(kind: str, per_sequence: int | None) -> RowChoice:
    """Return the choice of a kind, or of so many tokens of each sequence.

    Raises:
        InputError: If both are asked for.
    """
    if per_sequence is None:
        return RowChoice(kind)
    if kind != ALL:
        raise InputError(f"rows of the kind {kind!r} cannot be {per_sequence} tokens a sequence")
    return RowChoice(SAMPLE, per_sequence)


def choose_rows(tokens: Tokens, shown: Tokens, choice: RowChoice) -> Tokens:
    """Return tokens of which only some rows are kept; a model is shown all of them.

    Args:
        tokens: Every token of a corpus.
        shown: The same as the stack that is run sees them.
        choice: Which rows are kept.

    Raises:
        InputError: If no token of the corpus is kept.
    """
    if choice.kind == ALL:
        return tokens
    if choice.kind == MEAN:
        return replace(tokens, pooled=True)
    kept = _kept(shown, choice)
    if not len(kept):
        raise InputError(
            f"no token is kept of {len(tokens)}: all of them are special; choose first or mean"
        )
    return replace(tokens, kept=kept)


def _kept(shown: Tokens, choice: RowChoice) -> NDArray[np.int64]:
    if choice.kind == FIRST:
        return shown.place_offsets[:-1][np.diff(shown.place_offsets) > 0]
    columns = shown.coordinates()
    content = np.flatnonzero(~columns["special"].astype(np.bool_))
    sequence = columns["sequence"].astype(np.int64)[content]
    if choice.kind == LAST:
        ends = np.append(np.diff(sequence) > 0, np.True_)[: len(content)]
        last: NDArray[np.int64] = content[ends]
        return last
    assert choice.per_sequence is not None
    # A number for every row, of added tokens or not, so that later sequences change no draw.
    keys = np.random.default_rng(choice.seed).random(len(columns["special"]))[content]
    order = np.lexsort((keys, sequence))
    starts = np.searchsorted(sequence, sequence)
    rank = np.arange(len(content)) - starts
    return np.sort(content[order[rank < choice.per_sequence]])
