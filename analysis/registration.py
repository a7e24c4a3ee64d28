"""``data.geometry`` for whoever imports ``analysis``, before xarray or after it.

An accessor is registered with xarray, which takes most of a second to import: so not before it is
imported anyway.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import xarray as xr

    from analysis.accessor import Geometry

ACCESSOR: Final = "geometry"
_XARRAY: Final = "xarray"


def register_accessor() -> None:
    """Register the accessor, now or as soon as xarray has been imported."""
    if _XARRAY in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _AfterXarray())


def _register() -> None:
    import xarray as xr

    xr.register_dataset_accessor(ACCESSOR)(_geometry)
    xr.register_dataarray_accessor(ACCESSOR)(_geometry)


def _geometry(data: xr.Dataset | xr.DataArray) -> Geometry:
    from analysis.accessor import Geometry

    return Geometry(data)


class _AfterXarray:
    """Lets the others find xarray, and registers once it has been run."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname != _XARRAY:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_register(module: ModuleType) -> None:
                run(module)
                _register()

            spec.loader.exec_module = run_and_register  # type: ignore[method-assign]  # for this import
        return spec
