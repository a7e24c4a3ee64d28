"""Where queries and keys are before their rotary embedding, found at the position it leaves alone.

A rotation by position 0 changes nothing. So the entries of a query, as attention is given it at
position 0, can be recognised among the outputs of the modules before, wherever and in whatever
order a fused projection has put them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Outputs = Mapping[str, Tensor]
"""Outputs (sequence, position, entry) of the modules of one block by name, in order of calls."""


@dataclass(frozen=True)
class Unrotated:
    """Where a vector of all heads is found before its rotary embedding.

    Attributes:
        modules: One module for each distinct block, whose output holds the vector.
        entries: (head · head_dim,) which entries of that output it consists of.
        heads_first: Whether the output is (sequence, head, position, head_dim).
    """

    modules: tuple[nn.Module, ...]
    entries: Tensor
    heads_first: bool = False

    def vectors(self, output: Tensor) -> Tensor:
        """Return the vectors (sequence, position, head · head_dim) within an output."""
        rows = output.transpose(1, 2) if self.heads_first else output
        return rows.flatten(2)[..., self.entries]


def find_unrotated(
    blocks: Sequence[nn.Module],
    noted: Sequence[Outputs],
    vectors: Sequence[Tensor],
    heads_first: Collection[str],
) -> Unrotated | None:
    """Find the module whose output holds a vector of all heads as it is at position 0.

    Args:
        blocks: The distinct blocks.
        noted: For each, the outputs of its modules.
        vectors: For each call of a block, the vector (sequence, position, head · head_dim).
        heads_first: Names of modules whose outputs had the heads before the positions.
    """
    for name, output in reversed(list(noted[0].items())):
        entries = _entries(output[:, 0], vectors[0][:, 0])
        if entries is None:
            continue
        pairs = zip(noted, vectors, strict=False)
        if all(name in own and _holds(own[name], vector, entries) for own, vector in pairs):
            modules = tuple(block.get_submodule(name) for block in blocks)
            return Unrotated(modules, entries, name in heads_first)
    return None


def _entries(output: Tensor, vector: Tensor) -> Tensor | None:
    """Return where the columns of `vector` (sequence, entry) are among those of `output`."""
    columns = {column.tobytes(): i for i, column in enumerate(_bytes(output))}
    found = [columns.get(column.tobytes()) for column in _bytes(vector)]
    if None in found or len(set(found)) < len(found):
        return None
    return torch.tensor(found, device=output.device)


def _bytes(values: Tensor) -> NDArray[np.float32]:
    # Adding zero makes -0 to 0, which a rotation by nothing may have done, too.
    return np.ascontiguousarray((values.float() + 0.0).cpu().numpy().T)


def _holds(output: Tensor, vector: Tensor, entries: Tensor) -> bool:
    return output.shape[-1] > int(entries.max()) and torch.equal(
        output[:, 0, entries], vector[:, 0]
    )


def is_rotated(found: Unrotated, noted: Outputs, vector: Tensor) -> bool:
    """Tell whether no module gives, at every position, the vector that attention is given.

    Args:
        found: Where the vector is at position 0.
        noted: Outputs of the modules of one block.
        vector: What attention is given there, (sequence, position, head · head_dim).
    """
    return not any(
        output.shape[-1] > int(found.entries.max())
        and torch.equal(output[..., found.entries], vector)
        for output in noted.values()
    )
