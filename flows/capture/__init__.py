"""Reads models and runs them; finding, cutting and digesting need no torch.

What is exported is imported when it is first used, as in ``store``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .checkpoints import Checkpoint, find_checkpoints
    from .configs import load_config, longest_input
    from .errors import CaptureError
    from .fingerprints import Fingerprint, fingerprint
    from .inputs import Cut, cut_characters, from_ids, tokenize
    from .tokenizer import load_tokenizer
    from .tokens import Tokens

_MODULE_OF = {
    "CaptureError": "errors",
    "Checkpoint": "checkpoints",
    "Cut": "inputs",
    "Fingerprint": "fingerprints",
    "Tokens": "tokens",
    "cut_characters": "inputs",
    "find_checkpoints": "checkpoints",
    "fingerprint": "fingerprints",
    "from_ids": "inputs",
    "load_config": "configs",
    "load_tokenizer": "tokenizer",
    "longest_input": "configs",
    "tokenize": "inputs",
}

__all__ = [
    "CaptureError",
    "Checkpoint",
    "Cut",
    "Fingerprint",
    "Tokens",
    "cut_characters",
    "find_checkpoints",
    "fingerprint",
    "from_ids",
    "load_config",
    "load_tokenizer",
    "longest_input",
    "tokenize",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
