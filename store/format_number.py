"""The number that tells readers which version of the format a store needs."""

from __future__ import annotations

import zarr

from .schema import FIRST_FORMAT, FORMAT_ATTRIBUTE


def require_format(root: zarr.Group, version: int) -> None:
    """Raise the number of a store's format to a version, if it is lower.

    Args:
        root: The root group, in a transaction.
        version: Version that readers have to know from now on.
    """
    stored = root.attrs.get(FORMAT_ATTRIBUTE, FIRST_FORMAT)
    assert isinstance(stored, int)
    if stored < version:
        root.attrs[FORMAT_ATTRIBUTE] = version
