"""Metrics as methods of xarray objects: ``dataset.geometry.svd_anisotropy()``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import xarray as xr

from analysis.choose import MetricLike
from analysis.errors import UnknownMetricError
from analysis.labelled import compute_metrics
from analysis.metrics import METRICS
from analysis.plan import SAMPLE_ROWS


class Geometry:
    """The geometry of the activations of a Dataset or DataArray, as ``data.geometry``.

    Every metric is a method that takes the options of ``compute_metrics`` and returns the
    variable of its values.
    """

    def __init__(self, data: xr.Dataset | xr.DataArray) -> None:
        self._data = data

    def compute(
        self,
        metrics: Iterable[MetricLike] | None = None,
        *,
        populations: Iterable[str] | None = None,
        site: str = "residual",
        causal: bool | None = None,
        errors: bool = True,
        seed: int = 0,
        sample: int = SAMPLE_ROWS,
    ) -> xr.Dataset:
        """Compute several metrics in one pass; see ``compute_metrics``."""
        return compute_metrics(
            self._data,
            metrics,
            populations=None if populations is None else tuple(populations),
            site=site,
            causal=causal,
            errors=errors,
            seed=seed,
            sample=sample,
        )

    def __getattr__(self, name: str) -> Callable[..., xr.DataArray]:
        if name not in METRICS:
            raise AttributeError(str(UnknownMetricError(name, METRICS)))

        def method(**options: object) -> xr.DataArray:
            compute: Callable[..., xr.Dataset] = self.compute
            return compute([name], **({"errors": False} | options))[name]

        method.__name__ = name
        method.__doc__ = METRICS[name].function.__doc__
        return method

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *METRICS})
