"""Where a site has no value by definition, so that NaN there is no fault."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import zarr

from .arrays import member
from .schema import Variable


def undefined_tokens(group: zarr.Group, variable: Variable) -> npt.NDArray[np.bool_] | None:
    """Tell at which tokens a site may be NaN by definition, None for nowhere.

    A model that is not causal has a loss only where a token was masked.
    """
    if not variable.first_position:
        return None
    if not group.attrs.get("causal", True):
        return np.ones(member(group, "position").shape, dtype=np.bool_)
    return np.asarray(member(group, "position")[:]) < variable.first_position
