"""The modules that add to the residual stream are found however little they add."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from flows.capture.sublayers import find_sublayers

SHAPE = (2, 3)
WIDTH = 16


class Block(nn.Module):
    """Adds what two maps give, as a block does, and has modules beside them that add nothing.

    Args:
        scale: Size of what is added, relative to the stream.
        parallel: Whether both are added at once.
    """

    def __init__(self, scale: float, *, parallel: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.gate = nn.Linear(WIDTH, WIDTH)
        self.attention = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout()
        self.mlp = nn.Linear(WIDTH, WIDTH)
        self.parallel = parallel
        with torch.no_grad():
            for own in (self.gate, self.attention, self.mlp):
                own.weight.mul_(scale)
                own.bias.zero_()

    def forward(self, hidden_states: Tensor) -> Tensor:
        rows = self.norm(hidden_states)
        self.gate(rows)
        attended = self.dropout(self.attention(rows))
        if self.parallel:
            return hidden_states + (attended + self.mlp(rows))
        hidden_states = hidden_states + attended
        return hidden_states + self.mlp(self.norm(hidden_states))


def stream(massive: float) -> Tensor:
    """Return rows of norm 4, the first of each sequence so many times as large."""
    rows = torch.randn(*SHAPE, WIDTH, generator=torch.Generator().manual_seed(0))
    rows[:, 0] *= massive
    return rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize(("scale", "massive"), [(1.0, 1.0), (0.05, 1.0), (0.3, 1000.0)])
def test_what_adds_little_is_not_taken_for_what_adds_nothing(
    dtype: torch.dtype, parallel: bool, scale: float, massive: float
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Block(scale, parallel=parallel)).to(dtype)
    rows = stream(massive).to(dtype)
    found = find_sublayers(model, lambda _: model(rows), [model[0]], SHAPE)
    assert found is not None
    assert found[0].attention is model[0].attention
    assert found[0].mlp is model[0].mlp


def test_a_block_that_adds_something_else_has_none() -> None:
    class Scaled(Block):
        def forward(self, hidden_states: Tensor) -> Tensor:
            return hidden_states + 1.5 * self.mlp(self.norm(hidden_states))

    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        model = nn.Sequential(Scaled(0.3, parallel=False)).to(dtype)
        rows = stream(1000.0).to(dtype)
        assert find_sublayers(model, lambda _, m=model, r=rows: m(r), [model[0]], SHAPE) is None
