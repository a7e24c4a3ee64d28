"""Of the layers that a model was tapped at, only those that are lacking are written."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from flows.capture.blocks import RowBlock
from flows.layers import narrowed

TAPPED = (0, 1, 3, 4)
WANTED = {"residual": (1, 3), "mlp_output": (1, 3, 4), "final_norm": ()}


def labelled(*labels: int) -> np.ndarray:
    """Return two rows at each label, which tell it."""
    return np.float32(np.array(labels).reshape(-1, 1, 1)) * np.ones((1, 2, 3), np.float32)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_pieces_keep_what_is_wanted_in_its_place(size: int) -> None:
    residual = [
        RowBlock(0, 2, {"residual": labelled(*TAPPED[i : i + size])}, depth=i)
        for i in range(0, 4, size)
    ]
    mlp = [RowBlock(0, 2, {"mlp_output": labelled(1, 3, 4)})]
    norm = [RowBlock(0, 2, {"final_norm": np.ones((2, 3), np.float32)})]
    writer = SimpleNamespace(layers=WANTED)
    found = list(narrowed([*residual, *mlp, *norm], [writer], [TAPPED]))
    for site in ("residual", "mlp_output"):
        own = [block for block in found if site in block.values]
        labels = [int(label) for block in own for label in block.values[site][:, 0, 0]]
        assert labels == list(WANTED[site])
        starts = [labels.index(int(block.values[site][0, 0, 0])) for block in own]
        assert [block.depth for block in own] == starts
    assert found[-1] == norm[0]


def test_nothing_is_changed_where_all_layers_were_tapped() -> None:
    block = RowBlock(0, 2, {"residual": labelled(0, 1)}, depth=3)
    assert list(narrowed([block], [SimpleNamespace(layers=WANTED)], [None])) == [block]
