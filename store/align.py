"""Pairing the tokens of two models that cut the same texts differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from .errors import StoreError
from .schema import TOKEN

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Alignment:
    """Two tokenizations of the same texts, cut into the shortest spans that both cut.

    A span ends where a token of either model ends, and holds at least one token of each. Which
    row stands for a span is the caller's choice: its last token has seen all of it, which is what
    a causal model needs; its first is what models with word-initial pieces are often read at; or
    the mean over its tokens.

    Attributes:
        span_of_a: Span of each token of the first model (token,), -1 for special tokens and for
            what the second model did not see.
        span_of_b: The same for the second model (token,).
        document: Number of the corpus text of each span (span,).
        char_end: One past the last character of each span in that text (span,).
    """

    span_of_a: Indices
    span_of_b: Indices
    document: Indices
    char_end: Indices

    @property
    def n_spans(self) -> int:
        """Number of spans."""
        return len(self.document)

    def rows(self, which: Literal["last", "first"] = "last") -> tuple[Indices, Indices]:
        """Return paired row indices (span,): of the first model, and of the second.

        Args:
            which: Whether the last or the first token of a span stands for it.
        """
        return _ends(self.span_of_a, which), _ends(self.span_of_b, which)

    def mean(
        self, a: npt.NDArray[np.floating], b: npt.NDArray[np.floating]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the mean row of each span (span, dim), of the first model and of the second.

        Args:
            a: Rows of the first model (token, dim).
            b: Rows of the second model (token, dim), of any width.

        Raises:
            StoreError: If there is not one row for each token.
        """
        return _mean(self.span_of_a, a), _mean(self.span_of_b, b)


def align(a: xr.Dataset | xr.DataTree, b: xr.Dataset | xr.DataTree) -> Alignment:
    """Join the tokens of two models by where they end in the texts.

    Ends are compared and starts are not, since some tokenizers count the space before a word as
    part of it. Texts are compared by number: both models must have read one corpus, or one of
    them the beginning of what it grew to.

    Args:
        a: Token coordinates ``document``, ``char_start`` and ``char_end`` of the first model: its
            node of :func:`store.open_store`, or its token table.
        b: The same of the second model.

    Raises:
        StoreError: If the models read different corpora, or characters are not known.
    """
    first, second = a.attrs.get("corpus_sha256"), b.attrs.get("corpus_sha256")
    if first != second and first not in _former(b) and second not in _former(a):
        raise StoreError(
            f"tokens of different corpora cannot be aligned: content {first!r} and {second!r}"
        )
    tokens_a, tokens_b = _Ends(_dataset(a)), _Ends(_dataset(b))
    shared = np.intersect1d(tokens_a.keys, tokens_b.keys)
    return Alignment(
        tokens_a.spans(shared), tokens_b.spans(shared), *np.divmod(shared, _KEYS_PER_DOCUMENT)
    )


_KEYS_PER_DOCUMENT = 1 << 31
"""More than an end of a token can be, so that (document, end) makes one sortable number."""


def _former(node: xr.Dataset | xr.DataTree) -> list[object]:
    """Return the digests of what the corpus of a model was before it grew."""
    return list(node.attrs.get("corpus_grown_from", ()))


def _dataset(node: xr.Dataset | xr.DataTree) -> xr.Dataset:
    return node.to_dataset() if isinstance(node, xr.DataTree) else node


class _Ends:
    """Where the tokens of one model end: (document, character) as one number."""

    def __init__(self, tokens: xr.Dataset) -> None:
        missing = {"document", "char_start", "char_end"} - set(map(str, tokens.variables))
        if missing:
            raise StoreError(f"tokens cannot be aligned without {', '.join(sorted(missing))}")
        start, end = tokens["char_start"].values, tokens["char_end"].values.astype(np.int64)
        self.size = tokens.sizes[TOKEN]
        (self.rows,) = np.nonzero((start >= 0) & (end > start))
        if not len(self.rows):
            raise StoreError(
                "tokens cannot be aligned: where they lie in the texts is not known,"
                " as for corpora of token ids"
            )
        document = tokens["document"].values.astype(np.int64)
        self.keys = (document * _KEYS_PER_DOCUMENT + end)[self.rows]

    def spans(self, shared: Indices) -> Indices:
        """Return the span of each token: that of the first shared end at or after its own."""
        spans = np.full(self.size, -1, dtype=np.int64)
        found = np.searchsorted(shared, self.keys)
        inside = found < len(shared)
        document = shared[found[inside]] // _KEYS_PER_DOCUMENT
        inside[inside] = document == self.keys[inside] // _KEYS_PER_DOCUMENT
        spans[self.rows[inside]] = found[inside]
        return spans


def _ends(span_of: Indices, which: Literal["last", "first"]) -> Indices:
    (rows,) = np.nonzero(span_of >= 0)
    rows = rows if which == "first" else rows[::-1]
    _, places = np.unique(span_of[rows], return_index=True)
    return rows[places]


def _mean(span_of: Indices, values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    if len(values) != len(span_of):
        raise StoreError(f"expected one row for each of {len(span_of)} tokens, got {len(values)}")
    (rows,) = np.nonzero(span_of >= 0)
    rows = rows[np.argsort(span_of[rows], kind="stable")]
    numbers, starts, counts = np.unique(span_of[rows], return_index=True, return_counts=True)
    assert len(numbers) == span_of.max(initial=-1) + 1
    sums = np.add.reduceat(values[rows].astype(np.float64), starts, axis=0)
    return sums / counts[:, np.newaxis]
