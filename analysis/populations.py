"""Which rows of a layer a metric is about.

The same activations answer differently for different rows: one row in a hundred at ten times the
typical norm takes the share of the first component from 0.004 to 0.48. Populations are choices
over what is stored, computed side by side in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.errors import InputError, UnknownPopulationError
from analysis.frequency import frequency_bins, occurrences
from analysis.row_expressions import COLUMNS, RowExpression

Codes = npt.NDArray[np.int8]

CONTENT: Final = 0
"""Code of a row that a tokenizer made of the text itself, past the first of a causal model."""
SPECIAL: Final = 1
"""Code of a special token (BOS, EOS, CLS, SEP, registers)."""
FIRST: Final = 2
"""Code of the first token of a sequence of a causal model, which attends only to itself."""
UNCHOSEN: Final = 3
"""Code of a row that an expression leaves out, among those that it chooses from."""

OUTLIER_FACTOR: Final = 3.0
"""Rows of ``content`` with a norm above this multiple of their median are outliers."""


@dataclass(frozen=True)
class Population:
    """A named choice of rows.

    Attributes:
        name: Name, as a coordinate of results.
        description: Which rows, in one sentence.
        from_content: Whether special tokens and first tokens are left out.
        typical: Whether norm outliers are left out, too.
        unit: Whether every row is scaled to norm 1; rows of zeros are left out.
        expression: What chooses the rows, from all of them; None where the rules above do.
    """

    name: str
    description: str
    from_content: bool = True
    typical: bool = False
    unit: bool = False
    expression: RowExpression | None = None


POPULATIONS: Final[dict[str, Population]] = {
    population.name: population
    for population in (
        Population("all", "every real row", from_content=False),
        Population("content", "without special tokens and first tokens of a causal model"),
        Population(
            "typical",
            f"content without rows of a norm above {OUTLIER_FACTOR:g} times its median",
            typical=True,
        ),
        Population("unit", "content, every row scaled to norm 1", unit=True),
    )
}


@dataclass(frozen=True)
class TokenTable:
    """What is known about every row, apart from its values.

    Attributes:
        codes: ``CONTENT``, ``SPECIAL`` or ``FIRST`` for each row (token).
        sequence: Number of the sequence of each row (token); None when rows are independent.
        labelled: Whether content could be told from the rest.
        frequencies: Bin of each row (token) by how often its token occurs; None without token ids.
        columns: What expressions can speak of besides (token), by names in ``COLUMNS``.
    """

    codes: Codes
    sequence: npt.NDArray[np.int64] | None
    labelled: bool
    frequencies: Codes | None = None
    columns: Mapping[str, npt.NDArray[np.generic]] = field(default_factory=dict)

    @classmethod
    def unlabelled(cls, n: int) -> TokenTable:
        """Describe rows of which nothing is known: independent, and all alike."""
        return cls(np.full(n, CONTENT, np.int8), None, labelled=False)

    @classmethod
    def from_coordinates(
        cls,
        *,
        special: npt.NDArray[np.bool_],
        position: npt.NDArray[np.integer],
        sequence: npt.NDArray[np.integer],
        causal: bool,
        token_id: npt.NDArray[np.integer] | None = None,
    ) -> TokenTable:
        """Describe rows by their token coordinates (token).

        Args:
            special: Whether the tokenizer added the token.
            position: Position within the sequence, from 0.
            sequence: Number of the sequence.
            causal: Whether tokens attend only to earlier ones, so that the first is apart.
            token_id: Id of the token in the vocabulary, where it is known.

        Raises:
            InputError: If the coordinates have different lengths.
        """
        if not len(special) == len(position) == len(sequence):
            raise InputError(
                "token coordinates must have one length, got"
                f" special {len(special)}, position {len(position)}, sequence {len(sequence)}"
            )
        codes = np.full(len(special), CONTENT, np.int8)
        if causal:
            codes[position == 0] = FIRST
        codes[special] = SPECIAL
        columns = {"special": special, "position": position}
        bins = None
        if token_id is not None:
            bins = frequency_bins(token_id, codes == CONTENT)
            columns["token_id"] = token_id
        numbers = sequence.astype(np.int64)
        return cls(codes, numbers, labelled=True, frequencies=bins, columns=columns)

    def choose(self, expression: RowExpression) -> TokenTable:
        """Return the table in which the rows that an expression chooses are content, and no others.

        Raises:
            InputError: If the expression speaks of what is not known of these rows.
        """
        content = self.codes == CONTENT
        known = {"content": content, **self.columns}
        if self.sequence is not None:
            known["sequence"] = self.sequence
            known["last"] = _last(self.sequence, content)
        if "token_id" in self.columns:
            known["frequency"] = occurrences(self.columns["token_id"].astype(np.int64), content)
        codes = np.where(expression.chosen(known), CONTENT, UNCHOSEN).astype(np.int8)
        return replace(self, codes=codes)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.codes)


def _last(sequence: npt.NDArray[np.int64], content: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which rows (token) are the last of content of their sequence."""
    last = np.zeros(len(sequence), bool)
    rows = np.flatnonzero(content)
    if len(rows):
        last[rows[np.append(np.diff(sequence[rows]) != 0, True)]] = True
    return last


def find_population(name: str) -> Population:
    """Return a population by its name, or made of an expression.

    Raises:
        UnknownPopulationError: If there is none of that name.
        RowExpressionError: If it is neither that nor an expression.
    """
    if name in POPULATIONS:
        return POPULATIONS[name]
    if name.isidentifier() and name not in COLUMNS:
        raise UnknownPopulationError(name, POPULATIONS)
    expression = RowExpression.parse(name)
    return Population(expression.text, f"rows of which {expression.text}", expression=expression)


def choose_populations(names: Iterable[str] | None, *, labelled: bool) -> tuple[Population, ...]:
    """Return the populations asked for, in the order asked for.

    Args:
        names: Names of populations, or expressions over ``COLUMNS``; None for all that have names
            and can be told apart.
        labelled: Whether content can be told from the rest; otherwise only ``all`` can be had.

    Raises:
        UnknownPopulationError: If there is no population of a name.
        RowExpressionError: If an expression cannot choose rows.
        InputError: If a population needs token coordinates and there are none.
    """
    if names is None:
        return tuple(POPULATIONS.values()) if labelled else (POPULATIONS["all"],)
    chosen = tuple(dict.fromkeys(map(find_population, names)))
    for population in chosen:
        if population.from_content and not labelled:
            raise InputError(
                f"population {population.name!r} needs the token coordinates special, position and"
                " sequence, which the rows do not have; ask for 'all', or attach the coordinates"
            )
    return chosen
