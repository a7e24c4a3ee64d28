"""How deep a layer lies in its model, so that models of different depth can be set side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from .identity import JSON


def relative_depth(
    facts: Mapping[str, JSON], layers: Sequence[float] | npt.NDArray[np.generic]
) -> npt.NDArray[np.float64]:
    """Return the share of a model's blocks that are passed where layers are: 0 for embeddings.

    Args:
        facts: Attributes of the model's group, or of that of one of its stacks: ``n_blocks``, and
            for a stage ``depth_start`` and ``depth_blocks``.
        layers: Labels of layers (layer,), NaN where there is none.

    Returns:
        (layer,) from 0 to 1; NaN for labels beyond the last layer.
    """
    n_blocks = _number(facts, "n_blocks", 0)
    numbers = np.asarray(layers, dtype=np.float64)
    passed = _number(facts, "depth_start", 0) + numbers
    depths = passed / max(_number(facts, "depth_blocks", n_blocks), 1)
    return np.where(numbers <= n_blocks, depths, np.nan)


def _number(facts: Mapping[str, JSON], name: str, default: int) -> int:
    value = facts.get(name, default)
    assert isinstance(value, int)
    return value
