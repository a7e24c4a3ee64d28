"""What a report is made from: one model of the store with its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import xarray as xr

from analysis.metrics.metric import STDERR
from store.catalogue import HeldModel
from store.schema import OTHER


@dataclass(frozen=True)
class Measured:
    """One model over one corpus, with what was measured of it.

    Attributes:
        held: What the store holds of it.
        model_type: Architecture, empty where it is not recorded.
        causal: Whether tokens attend only to earlier ones; None where it is not recorded.
        results: Metrics (step, layer, population, ...), None where nothing was computed.
        depth: Relative depth of layer 0, and how much each layer adds to it; a stage begins within
            its model. None where that is not recorded.
        samples: For each metric of a sample, of which one each value is: JSON of its settings
            (step, layer, population), empty where there is no value.
    """

    held: HeldModel
    model_type: str
    causal: bool | None
    results: xr.Dataset | None
    depth: tuple[float, float] | None = None
    samples: Mapping[str, xr.DataArray] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Its name in figures, told apart from the other stack of the same model."""
        return (
            self.held.model if self.held.stack is None else f"{self.held.model} {self.held.stack}"
        )

    @property
    def kind(self) -> str:
        """``encoder`` or ``decoder``: the stack, or else by how tokens attend; maybe unknown."""
        if self.held.stack is not None:
            return self.held.stack
        return {True: "decoder", False: "encoder", None: ""}[self.causal]

    @cached_property
    def metric_names(self) -> list[str]:
        """Result variables that hold a number, without standard errors of others."""
        if self.results is None:
            return []
        names = [str(name) for name in self.results.data_vars]
        paired = {name + STDERR for name in names}
        return [
            name
            for name in names
            if name not in paired
            and not any(str(dim).startswith(OTHER) for dim in self.results[name].dims)
            and self.results[name].dtype.kind in "fiub"
            and bool(self.results[name].notnull().any())
        ]
