"""The library of models, imported before several threads share it."""

from __future__ import annotations

from typing import Final

_NEEDED: Final = ("AutoConfig", "AutoTokenizer", "PreTrainedModel")
"""What every thread that prepares a checkpoint imports of it."""


def import_library() -> None:
    """Import `transformers` in the thread that calls.

    At the end of its own import it puts another module in its place. A thread that asks for it
    meanwhile is left with the first one, which has none of its names, and fails with ImportError:
    on a slow disk, whenever two threads begin together.
    """
    import transformers

    for name in _NEEDED:
        getattr(transformers, name)
