"""The door for xarray: ``xarray.open_datatree(uri, engine="actlas")``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

import xarray as xr
from xarray.backends import BackendEntrypoint

from .errors import StoreError, UnknownNameError
from .read import open_store
from .schema import BLOCK, LAYER, STEP, sites_among


class ActlasBackend(BackendEntrypoint):
    """Opens activation stores; every function takes ``snapshot``, ``tag`` and ``as_of``."""

    description: ClassVar[str] = "Open activation stores"
    open_dataset_parameters: ClassVar[tuple[str, ...]] = (
        "filename_or_obj",
        "drop_variables",
        "group",
        "snapshot",
        "tag",
        "as_of",
    )
    supports_groups: ClassVar[bool] = True

    def open_datatree(  # type: ignore[override]  # options of a backend are its own
        self,
        filename_or_obj: str | os.PathLike[str],
        *,
        drop_variables: str | Iterable[str] | None = None,
        snapshot: str | None = None,
        tag: str | None = None,
        as_of: datetime | str | None = None,
    ) -> xr.DataTree:
        """Open a whole store, as :func:`store.open_store` does with ``chunks=None``."""
        groups = self.open_groups_as_dict(
            filename_or_obj, drop_variables=drop_variables, snapshot=snapshot, tag=tag, as_of=as_of
        )
        return xr.DataTree.from_dict(groups)

    def open_groups_as_dict(  # type: ignore[override]  # options of a backend are its own
        self,
        filename_or_obj: str | os.PathLike[str],
        *,
        drop_variables: str | Iterable[str] | None = None,
        snapshot: str | None = None,
        tag: str | None = None,
        as_of: datetime | str | None = None,
    ) -> dict[str, xr.Dataset]:
        """Open every node of a store, by its path."""
        tree = open_store(filename_or_obj, snapshot=snapshot, tag=tag, as_of=as_of, chunks=None)
        dropped = (
            [drop_variables] if isinstance(drop_variables, str) else list(drop_variables or ())
        )
        return {
            node.path: _with_preferred_chunks(
                node.to_dataset(inherit=False).drop_vars(dropped, errors="ignore")
            )
            for node in tree.subtree
        }

    def open_dataset(  # type: ignore[override]  # options of a backend are its own
        self,
        filename_or_obj: str | os.PathLike[str],
        *,
        drop_variables: str | Iterable[str] | None = None,
        group: str | None = None,
        snapshot: str | None = None,
        tag: str | None = None,
        as_of: datetime | str | None = None,
    ) -> xr.Dataset:
        """Open one node: ``group="shakespeare/tiny-neox"``.

        Raises:
            StoreError: If no group is given.
            UnknownNameError: If there is no such node.
        """
        groups = self.open_groups_as_dict(
            filename_or_obj, drop_variables=drop_variables, snapshot=snapshot, tag=tag, as_of=as_of
        )
        names = [path.strip("/") for path in groups if path != "/"]
        if group is None:
            raise StoreError(
                f"a store holds several datasets: give group=, one of {', '.join(names)},"
                " or use xarray.open_datatree"
            )
        if group.strip("/") not in names:
            raise UnknownNameError("group", group, names, str(filename_or_obj))
        return groups["/" + group.strip("/")]


def _with_preferred_chunks(dataset: xr.Dataset) -> xr.Dataset:
    """Let ``chunks={}`` mean one chunk a step and layer, not one for each chunk on disk."""
    for name in sites_among(map(str, dataset.data_vars)):
        sizes = {
            dim: 1 if dim in (STEP, LAYER, BLOCK) else size
            for dim, size in dataset[name].sizes.items()
        }
        dataset[name].encoding["preferred_chunks"] = sizes
    return dataset
