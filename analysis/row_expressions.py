"""Choosing rows by an expression over what is known of their tokens, such as ``position < 64``.

An expression is Python's: comparisons, ``and``, ``or``, ``not``, ``%`` and numbers. It is parsed,
never run.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.errors import InputError, RowExpressionError

Values = npt.NDArray[np.generic]

COLUMNS: Final[dict[str, str]] = {
    "content": "neither a special token nor, in a causal model, the first of its sequence",
    "special": "added by the tokenizer",
    "last": "the last row of content of its sequence",
    "position": "position within the sequence, from 0",
    "sequence": "number of the sequence",
    "token_id": "id in the vocabulary",
    "frequency": "how often its token occurs in content",
}
"""What an expression can speak of, and what it says of a row."""

_COMPARED: Final[dict[type[ast.cmpop], Callable[[Values, Values], Values]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


@dataclass(frozen=True)
class RowExpression:
    """An expression that is true of some rows.

    Attributes:
        text: The expression, with Python's spaces.
    """

    text: str

    @classmethod
    def parse(cls, text: str) -> RowExpression:
        """Check an expression.

        Raises:
            RowExpressionError: If it is none, or speaks of what is not in ``COLUMNS``.
        """
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            raise _refused(text, f"cannot be read ({error.msg})") from error
        except ValueError as error:
            raise _refused(text, f"cannot be read ({error})") from error
        found = cls(ast.unparse(tree))
        nothing = {name: np.zeros(0, _dtype(name)) for name in COLUMNS}
        found.chosen(nothing)
        return found

    def chosen(self, columns: Mapping[str, Values]) -> npt.NDArray[np.bool_]:
        """Return of which rows (token) the expression is true.

        Args:
            columns: What is known of the rows, each (token), by names in ``COLUMNS``.

        Raises:
            InputError: If the expression speaks of what is not known.
        """
        tree = ast.parse(self.text, mode="eval").body
        values = _Evaluation(self.text, columns).of(tree)
        if values.dtype != np.bool_ or values.ndim != 1:
            raise _refused(self.text, "says nothing of a row")
        chosen: npt.NDArray[np.bool_] = values.astype(np.bool_, copy=False)
        return chosen


class _Evaluation:
    def __init__(self, text: str, columns: Mapping[str, Values]) -> None:
        self._text = text
        self._columns = columns

    def of(self, node: ast.expr) -> Values:
        match node:
            case ast.BoolOp(op=ast.And(), values=parts):
                return functools.reduce(np.logical_and, map(self._truth, parts))
            case ast.BoolOp(values=parts):
                return functools.reduce(np.logical_or, map(self._truth, parts))
            case ast.UnaryOp(op=ast.Not(), operand=part):
                return np.logical_not(self._truth(part))
            case ast.Compare():
                return self._compared(node)
            case ast.BinOp(op=ast.Mod(), left=left, right=ast.Constant(value=int(by))) if by > 0:
                return np.asarray(self.of(left), np.int64) % by
            case ast.Constant(value=int(number)):
                return np.asarray(number)
            case ast.Name(id=name):
                return self._column(name)
        raise _refused(self._text, f"holds {ast.unparse(node)!r}")

    def _truth(self, node: ast.expr) -> Values:
        values = self.of(node)
        if values.dtype != np.bool_:
            raise _refused(self._text, f"takes {ast.unparse(node)!r} for true or false")
        return values

    def _compared(self, node: ast.Compare) -> Values:
        sides = [self.of(side) for side in (node.left, *node.comparators)]
        found = []
        for kind, left, right in zip(node.ops, sides[:-1], sides[1:], strict=True):
            if type(kind) not in _COMPARED:
                raise _refused(self._text, f"holds {ast.unparse(node)!r}")
            found.append(_COMPARED[type(kind)](left, right))
        return functools.reduce(np.logical_and, found)

    def _column(self, name: str) -> Values:
        if name in self._columns:
            return self._columns[name]
        if name in COLUMNS:
            raise InputError(f"rows chosen by {self._text!r}: nothing is known of {name!r} here")
        raise _refused(self._text, f"speaks of {name!r}")


def _dtype(name: str) -> type[np.generic]:
    return np.bool_ if name in ("content", "special", "last") else np.int64


def _refused(text: str, why: str) -> RowExpressionError:
    return RowExpressionError(
        f"rows cannot be chosen by {text!r}: it {why}; expected comparisons of"
        f" {', '.join(COLUMNS)} with numbers, joined by and, or, not; for example"
        " 'content and position < 64'"
    )
