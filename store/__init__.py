"""The activation store: written once per checkpoint, read lazily, verified.

Exports are imported at first use: xarray and Zarr take a second, and many need neither.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

# Icechunk logs to standard output, where programs read our JSON, and describes each call in full,
# the longer the more steps there are. It looks at these when first imported, which is after this.
if "ICECHUNK_LOG" not in os.environ:
    os.environ.setdefault("ICECHUNK_NO_LOGS", "1")

if TYPE_CHECKING:
    from .errors import StoreError
    from .metrics import open_metrics
    from .read import open_store
    from .repository import create_store
    from .stacking import cube

__all__ = ["StoreError", "create_store", "cube", "open_metrics", "open_store"]

_MODULES = dict(zip(__all__, ("errors", "repository", "stacking", "metrics", "read"), strict=True))


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
