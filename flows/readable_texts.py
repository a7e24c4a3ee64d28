"""Texts that are looked at one by one, so that an empty or damaged one keeps no other out."""

from __future__ import annotations

from collections.abc import Callable, Collection

from flows.added_corpus import Skipped
from flows.capture.errors import InputError


def readable_texts(
    names: Collection[str], read: Callable[[str], str | None], *, strict: bool
) -> tuple[dict[str, str], tuple[Skipped, ...]]:
    """Return the texts that can be read and are not blank, and what is wrong with the others.

    Args:
        names: Names of the texts.
        read: Reads one of them.
        strict: Refuse all of them if there is one that would be left out.

    Raises:
        InputError: If none is left, or, where strict, one would be left out.
    """
    good: dict[str, str] = {}
    skipped: list[Skipped] = []
    for name in names:
        try:
            text = read(name)
            if text is None or not text.strip():
                raise InputError("it holds no text")
            good[name] = text
        except InputError as error:
            if strict:
                raise InputError(f"{name}: {error}; leave --strict out to skip it") from error
            skipped.append(Skipped(name, str(error)))
    if not good:
        first = f", {skipped[0].name} first: {skipped[0].reason}" if skipped else ""
        raise InputError(f"none of {len(names)} texts can be read{first}")
    return good, tuple(skipped)
