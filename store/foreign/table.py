"""The small tables that say what dumped tensors are."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from store.errors import StoreError, UnknownNameError
from store.schema import SITES, TOKEN_COORDINATES

ROW = "row"
"""Column of a token table: the row of the tensors that a token has; padding has none."""


@dataclass(frozen=True)
class LabelledTensor:
    """One tensor, and what it holds.

    Attributes:
        path: Its file.
        tensor: Its name in the file, empty where there is only one.
        step: Training step.
        site: Name of the site.
        layer: Layer or block; None for a site without, or when the tensor's first axis is that.
    """

    path: Path
    tensor: str
    step: int
    site: str
    layer: int | None


def read_labels(table: str | os.PathLike[str]) -> list[LabelledTensor]:
    """Read a CSV table with the columns ``file,tensor,step,site,layer``.

    ``file`` is relative to the table's directory; ``tensor`` and ``layer`` may be empty, ``site``
    is ``residual`` when it is.

    Raises:
        StoreError: If columns are missing, or a step or layer is not a whole number.
        UnknownNameError: If there is no such site.
    """
    path = Path(table)
    rows = _rows(path, required=("file", "step"))
    labels = []
    for line, row in enumerate(rows, start=2):
        where = f"{path}, line {line}"
        site = row.get("site") or "residual"
        if site not in SITES:
            raise UnknownNameError("site", site, SITES, where)
        layer = row.get("layer")
        labels.append(
            LabelledTensor(
                path.parent / row["file"],
                row.get("tensor") or "",
                _whole(row["step"], "step", where),
                site,
                _whole(layer, "layer", where) if layer else None,
            )
        )
    if not labels:
        raise StoreError(f"{path} lists no tensors")
    return labels


def labels_of(
    labels: Sequence[LabelledTensor], files: Iterable[Path], *, where: str
) -> list[LabelledTensor]:
    """Return the labels of some files alone.

    Args:
        labels: Labels of tensors.
        files: The files.
        where: What lists them, for messages.

    Raises:
        UnknownNameError: If a file has no label.
    """
    known = {label.path.resolve(): str(label.path) for label in labels}
    wanted = [file.resolve() for file in files]
    for file in wanted:
        if file not in known:
            raise UnknownNameError("file", str(file), known.values(), where)
    return [label for label in labels if label.path.resolve() in wanted]


def read_tokens(table: str | os.PathLike[str]) -> dict[str, npt.NDArray[np.int64]]:
    """Read a CSV table of tokens, one a line, with any of the token coordinates as columns.

    A column ``row`` gives the row of the tensors that a token has, when some rows are padding.

    Raises:
        StoreError: If there is no column ``sequence``, or a value is not a whole number.
        UnknownNameError: If a column is not a token coordinate.
    """
    path = Path(table)
    rows = _rows(path, required=("sequence",))
    columns = {}
    for name in rows[0] if rows else ():
        if name not in (*TOKEN_COORDINATES, ROW):
            raise UnknownNameError("token coordinate", name, (*TOKEN_COORDINATES, ROW), str(path))
        numbers = [_whole(row[name], name, f"{path}, line {at + 2}") for at, row in enumerate(rows)]
        columns[name] = np.array(numbers, dtype=np.int64)
    return columns


def _rows(path: Path, required: tuple[str, ...]) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        names = reader.fieldnames or ()
        missing = [name for name in required if name not in names]
        if missing:
            raise StoreError(
                f"{path} has the columns {', '.join(names) or 'none'}; {', '.join(missing)} missing"
            )
        return list(reader)


def _whole(text: str, name: str, where: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise StoreError(f"{where}: {name} is {text!r}; expected a whole number") from error
