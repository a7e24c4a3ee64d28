"""Activations rounded to fewer bits, and kept as float32, where they compress all the better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from torch import Tensor

Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]

PRECISIONS: Final[tuple[Precision, ...]] = get_args(Precision)
FULL_PRECISION: Final[Precision] = "float32"
"""Nothing is rounded: float32 holds every value of the narrower dtypes."""


def rounded(values: Tensor, precision: Precision) -> Tensor:
    """Round values to the nearest ones that a dtype has, ties to even.

    Subnormal values are kept. What lies beyond the largest value of the dtype, 65,504 for
    float16, becomes infinite.

    Args:
        values: Values of any floating dtype.
        precision: Dtype whose values remain.

    Returns:
        The values themselves for float32, else new ones in the dtype asked for.
    """
    import torch

    if precision == FULL_PRECISION:
        return values
    return values.to(torch.bfloat16 if precision == "bfloat16" else torch.float16)
