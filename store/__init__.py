"""The activation store: written once per checkpoint, read lazily, verified."""

import os

# Icechunk logs to standard output, where programs read our JSON, unless this is set when it is
# first imported; no module of this package is imported before this line.
os.environ.setdefault("ICECHUNK_LOG", "error")

from .cube import cube
from .errors import StoreError
from .metrics import open_metrics
from .read import open_store
from .repository import Repository

create_store = Repository.create

__all__ = ["StoreError", "create_store", "cube", "open_metrics", "open_store"]
