"""What a metric value depends on besides the activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from store.identity import JSON, canonical
from store.schema import (
    BLOCK,
    HEAD,
    KEY_VALUE_HEAD,
    LAYER,
    OTHER_LAYER,
    OTHER_MODEL,
    OTHER_STEP,
    POPULATION,
    STEP,
)

KEY_DIMS: Final = (
    STEP,
    LAYER,
    BLOCK,
    HEAD,
    KEY_VALUE_HEAD,
    POPULATION,
    OTHER_MODEL,
    OTHER_STEP,
    OTHER_LAYER,
)
"""Dimensions along which each value has a provenance of its own; others belong to the value."""


@dataclass(frozen=True)
class Definition:
    """A metric as it is wanted, or as it was computed.

    Attributes:
        metric: Name of the result variable.
        version: Version of its definition, at least 1.
        settings: Everything else that changes its values, as ``{"seed": 0, "sample": 10000}``.
    """

    metric: str
    version: int
    settings: Mapping[str, JSON] = field(default_factory=dict)

    def key(self) -> tuple[int, str]:
        """Return what two definitions of one metric share exactly when they are the same."""
        return self.version, canonical(self.settings)
