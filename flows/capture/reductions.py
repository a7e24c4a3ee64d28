"""Numbers that sum up a row of attention, computed while the row is there.

The probabilities of all layers at once would be the largest thing in memory; one layer's are
there anyway. A row is what one head at one position gives to the keys that it may see.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flows.capture.attention_rows import AttentionRows


def whole(rows: AttentionRows) -> Tensor:
    """Return the probabilities of each row themselves, by position of the key."""
    return rows.probabilities


def entropy(rows: AttentionRows) -> Tensor:
    """Return the entropy of each row by the logarithm of the number of keys that it may see.

    −Σ A log A / log n, from 0 for one key alone to 1 for equal parts; 0 where n is 1.

    Args:
        rows: Rows of probabilities A.

    Returns:
        (sequence, head, position).
    """
    probabilities = _probabilities(rows)
    total = -torch.xlogy(probabilities, probabilities).sum(dim=-1)
    visible = _visible(rows).sum(dim=-1)
    return torch.where(visible > 1, total / visible.clamp(min=2).log(), 0.0)


def largest(rows: AttentionRows) -> Tensor:
    """Return the largest probability of each row, (sequence, head, position)."""
    return _probabilities(rows).amax(dim=-1)


def first_key(rows: AttentionRows) -> Tensor:
    """Return the probability of the first key of the sequence, (sequence, head, position)."""
    return _probabilities(rows)[..., 0]


def received(rows: AttentionRows) -> Tensor:
    """Return the mean probability that each position is given as a key, over the rows that see it.

    In a causal model the rows at the position and after it see it; padding, which no row sees, is
    no row either. A position that attends only to itself gives itself 1.

    Returns:
        (sequence, head, position), for key k Σ_i A_ik over the number of i that see k.
    """
    visible = _visible(rows)
    # A row of padding sees tokens, but not itself.
    seeing = visible & visible.diagonal(dim1=-2, dim2=-1)[..., None]
    given = (_probabilities(rows) * seeing).sum(dim=-2)
    return given / seeing.sum(dim=-2).clamp(min=1)


def logit_deviation(rows: AttentionRows) -> Tensor:
    """Return the standard deviation of the logits of each row over the keys it may see.

    Taken from log A, which differs from the logits by a constant for each row. Where a
    probability underflows to 0, its logarithm is taken to be that of the dtype's least normal
    number, so that the deviation of such a row is a lower bound.

    Returns:
        (sequence, head, position), 0 for a row of one key.
    """
    probabilities, visible = _probabilities(rows), _visible(rows)
    floor = torch.finfo(rows.probabilities.dtype).tiny
    # In one place: such a tensor is the largest thing that a block makes.
    logits = probabilities.clamp(min=floor).log_().masked_fill_(~visible, 0.0)
    count = visible.sum(dim=-1).clamp(min=1)
    mean = logits.sum(dim=-1) / count
    squares = logits.sub_(mean[..., None]).masked_fill_(~visible, 0.0).square_().sum(dim=-1)
    return (squares / count).sqrt()


def _probabilities(rows: AttentionRows) -> Tensor:
    return rows.probabilities.float()


def _visible(rows: AttentionRows) -> Tensor:
    """Return which keys each row may see, (..., position, key_position) as in the mask.

    All heads mostly see the same: sums over one of them cost as much less.
    """
    shape = rows.probabilities.shape[-2:]
    mask = rows.mask
    if mask is None:
        return torch.ones(shape, dtype=torch.bool, device=rows.probabilities.device)
    if mask.dtype != torch.bool:
        # What is added to the logits of a hidden key is the dtype's lowest number, or near it.
        mask = mask > torch.finfo(mask.dtype).min / 2
    return mask.expand(*mask.shape[:-2], *shape)
