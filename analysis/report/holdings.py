"""What the store holds, as the tables of a report show it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from analysis.report.measured import Measured
from store.catalogue import HeldStep
from store.identity import JSON

_DIGEST: Final = 12
"""Characters of a SHA-256 that are shown: enough to compare by eye."""


def describe_holding(measured: Measured) -> dict[str, JSON]:
    """Describe one model: its sizes, and its steps column by column."""
    held = measured.held
    return {
        "corpus": held.corpus,
        "label": measured.label,
        "path": held.path,
        "type": measured.model_type,
        "kind": measured.kind,
        "stack": held.stack,
        "sites": list(held.sites),
        "tokens": held.n_tokens,
        "layers": len(held.layers),
        "depth": list(measured.depth or (0.0, 1 / max(1, len(held.layers) - 1))),
        "width": held.width,
        "bytes": held.stored_bytes,
        "metrics": len(measured.metric_names),
        "steps": _columns(held.steps),
    }


def _columns(steps: Sequence[HeldStep]) -> dict[str, JSON]:
    return {
        "step": [held.step for held in steps],
        "complete": [held.complete for held in steps],
        "revision": [held.revision for held in steps],
        "weights": [held.weights_sha256[:_DIGEST] for held in steps],
        "dtype": [held.source_dtype for held in steps],
        "loss": [None if math.isnan(held.loss) else float(f"{held.loss:.6g}") for held in steps],
        "nonfinite": [held.nonfinite for held in steps],
        "bytes": [held.stored_bytes for held in steps],
        "ingested": [held.ingested_at for held in steps],
        "duplicates": [list(held.duplicates) for held in steps],
    }
