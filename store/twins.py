"""Which steps of a model have the same weights, or a part of them in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Twins:
    """The other steps that a step shares weights with.

    Attributes:
        same: Steps with the same weights, ascending.
        partly: Steps with other weights that have a weight file in common with it, ascending.
    """

    same: tuple[int, ...]
    partly: tuple[int, ...]


def find_twins(weights: Mapping[int, str], files: Mapping[int, Mapping[str, str]]) -> list[Twins]:
    """Note for every step which others have its weights, or a part of them.

    Args:
        weights: Digest of the weights of each step, empty where it is not known.
        files: Digest of each weight file by name, of the steps where they are known.

    Returns:
        An entry a step, in the order of ``weights``.
    """
    by_weights: dict[str, set[int]] = {}
    by_file: dict[str, set[int]] = {}
    for step, digest in weights.items():
        by_weights.setdefault(digest, set()).add(step)
        for part in files.get(step, {}).values():
            by_file.setdefault(part, set()).add(step)
    found = []
    for step, digest in weights.items():
        same = by_weights[digest] - {step} if digest else set()
        partly = {other for part in files.get(step, {}).values() for other in by_file[part]}
        found.append(Twins(tuple(sorted(same)), tuple(sorted(partly - same - {step}))))
    return found
