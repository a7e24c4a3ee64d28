"""Near names for what was mistyped, without the store's or the metrics' weight."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence: names like the one given, or what there is."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    return f"; there are: {', '.join(names)}" if names else "; there is none"
