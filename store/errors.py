"""What can go wrong with a store; every message says what was got, expected, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

_REMEDY: Final = "Run `actlas repair`, or restore the object from a copy"


class StoreError(Exception):
    """Root of every error the store raises on purpose."""


class StoreNotFoundError(StoreError):
    """There is no activation store at the given place."""


class InvalidLocationError(StoreError):
    """What was given as the place of a store cannot be one."""


class InvalidNameError(StoreError):
    """A name was given that a corpus, a model or a tag cannot have."""


class UnsafeMarginError(StoreError):
    """Garbage was to be collected that a writer could be about to commit."""


class StoreExistsError(StoreError):
    """The place for a new store is taken."""


class FormatVersionError(StoreError):
    """The store was written in a format this version of the program does not know."""


class UnknownNameError(StoreError):
    """A corpus, model, site, step or layer was asked for that the store does not hold."""

    def __init__(self, kind: str, name: object, known: Iterable[object], where: str) -> None:
        super().__init__(f"no {kind} {name!r} in {where}{suggest(str(name), known)}")


class UnknownMomentError(StoreError):
    """A snapshot or a time was asked for that the history of the store does not have."""


class IdentityConflictError(StoreError):
    """Something else is already stored under the same name.

    Attributes:
        differences: One readable line for each part that differs.
    """

    def __init__(self, what: str, differences: Sequence[str], remedy: str) -> None:
        self.differences = tuple(differences)
        lines = "".join(f"\n  {line}" for line in differences)
        super().__init__(f"{what} is already stored, but not the same:{lines}\n{remedy}")


class NonFiniteError(StoreError):
    """Activations to be stored hold NaN or infinity.

    Attributes:
        site: Site of the first offending values.
        layer: Its layer or block, None for a site without that dimension.
        count: Number of offending values in that layer of the block of rows.
        where: Step and group they were for.
    """

    def __init__(
        self,
        site: str,
        layer: int | None,
        count: int,
        where: str,
        *,
        cause: str = "",
        remedy: str = "Allow non-finite values to store and count them",
    ) -> None:
        self.site, self.layer, self.count, self.where = site, layer, count, where
        depth = "" if layer is None else f", layer {layer}"
        values, are = ("value", "is") if count == 1 else ("values", "are")
        super().__init__(
            f"{count} {values} of {site}{depth} of {where} {are} NaN or infinite{cause}; nothing"
            f" was stored. {remedy}"
        )


class InvalidBlockError(StoreError):
    """A block of rows does not fit the array it is meant for."""


class IncompleteError(StoreError):
    """A step was to be committed before all of its activations were written."""


class MissingChunkError(IncompleteError):
    """A chunk of a complete step was never written, or its object is gone."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place}: the chunk is missing. {_REMEDY}")


class CorruptChunkError(StoreError):
    """The bytes of a chunk are not those that were written."""

    def __init__(self, place: str, found: str) -> None:
        super().__init__(f"{place}: the chunk is damaged ({found}). {_REMEDY}")


class TruncatedChunkError(CorruptChunkError):
    """An object holds fewer bytes than were written."""


class StepReservedError(StoreError):
    """Another writer, still alive, is storing the same step."""


class ReservationLostError(StoreError):
    """Another writer took the step over, or finished it, while this one was writing."""


class ConflictError(StoreError):
    """Another commit changed the same part of the store first.

    Attributes:
        paths: Arrays and groups concerned, none when the commit was not to be rebased.
        restructured: Whether all that happened is that arrays written to were resized or
            annotated, so that the same chunks can be written again on top.
    """

    def __init__(
        self, message: str, paths: Iterable[str] = (), *, restructured: bool = False
    ) -> None:
        super().__init__(message)
        self.paths = tuple(sorted(set(paths)))
        self.restructured = restructured


class StoreFullError(StoreError):
    """The disk, or the quota, has no room for what was to be written."""


def suggest(name: str, known: Iterable[object]) -> str:
    """Return the end of a sentence that points at near names, or at all of a few.

    Args:
        name: The name that was not found.
        known: Names that there are.

    Returns:
        ``"; did you mean 'x'?"``, ``"; there are: a, b"``, or ``"; there are none"``.
    """
    names = [str(item) for item in known]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if near:
        return "; did you mean " + " or ".join(repr(item) for item in near) + "?"
    if not names:
        return "; there are none"
    shown = ", ".join(names[:10])
    return f"; there are: {shown}" + (f", and {len(names) - 10} more" if len(names) > 10 else "")
