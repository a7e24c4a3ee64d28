"""Single texts of a corpus, out of many, and what its items are called."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import zarr

from .arrays import member
from .pinned import model_group
from .schema import TEXT


def corpus_texts(
    uri: str, corpus: str, snapshot: str, numbers: npt.NDArray[np.integer]
) -> dict[int, str]:
    """Read some texts of a corpus by their numbers.

    Args:
        uri: Where the store is.
        corpus: Name of the corpus.
        snapshot: Id of the snapshot.
        numbers: Numbers of texts, as the token coordinate ``document`` has them, in any order.

    Returns:
        The texts by number; empty for a corpus of something else than text.

    Raises:
        UnknownNameError: If there is no such corpus.
    """
    stored = model_group(uri, snapshot, corpus).get(TEXT)
    if not isinstance(stored, zarr.Array):
        return {}
    wanted = np.unique(numbers[numbers >= 0])
    texts = np.asarray(stored.oindex[wanted]).tolist() if len(wanted) else []
    return {int(number): str(text) for number, text in zip(wanted, texts, strict=True)}


def item_titles(uri: str, corpus: str, snapshot: str) -> list[str]:
    """Read what the images or sounds of a corpus are called, each with its label.

    Args:
        uri: Where the store is.
        corpus: Name of the corpus.
        snapshot: Id of the snapshot.

    Returns:
        The titles by number, as the token coordinate ``document`` has them; empty for a corpus of
        texts or ids.

    Raises:
        UnknownNameError: If there is no such corpus.
    """
    group = model_group(uri, snapshot, corpus)
    if "item_name" not in group:
        return []
    names, labels = (np.asarray(member(group, name)[:]).tolist() for name in ("item_name", "label"))
    return [
        f"{name} ({label})" if label else str(name)
        for name, label in zip(names, labels, strict=True)
    ]
