"""Looks into attention: the queries, keys, values and probabilities of every block.

Models of `transformers` compute attention through a function that is looked up by name for each
call. For as long as someone watches, that function is wrapped: the original still computes, so
that nothing changes for the model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from flows.capture.attention_rows import AttentionRows, RowModules
from flows.capture.errors import StructureError
from flows.capture.fused import find_projection
from flows.capture.probe import Probe
from flows.capture.rotary import Unrotated, find_unrotated, is_rotated
from flows.capture.running import evaluating

_Function = Callable[..., tuple[Tensor, Tensor | None]]

EAGER: Final = "eager"
"""Name of the implementation that shows its probabilities."""

_EAGER_FUNCTION: Final = "eager_attention_forward"

_PROBE_SHAPE: Final = (16, 3)
_PROBE: Final = torch.arange(48).reshape(_PROBE_SHAPE).tolist()
"""Sixteen first tokens: in few-bit dtypes, one alone would not tell entries apart."""


@dataclass(frozen=True)
class AttentionCall:
    """One computation of attention.

    Attributes:
        module: The attention module.
        query: (sequence, head, position, head_dim), after any rotary embedding.
        key: (sequence, key_value_head, position, head_dim), after any rotary embedding.
        value: (sequence, key_value_head, position, head_dim).
        mask: What is added to the logits, broadcast to (sequence, head, position, key_position).
        probabilities: (sequence, head, position, key_position), None unless eager.
    """

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    probabilities: Tensor | None

    @property
    def rows(self) -> AttentionRows:
        """What each head at each position gives to the keys, where it is eager."""
        assert self.probabilities is not None
        return AttentionRows(self.probabilities, self.mask)


Watcher = Callable[[int, AttentionCall], None]
"""Takes the index of the block and its self-attention."""


@dataclass(frozen=True)
class Attention:
    """What the attention of a stack is like.

    Attributes:
        implementation: Name under which its function is looked up, None if it is not.
        heads: Number of query heads.
        key_value_heads: Number of key and value heads.
        head_dim: Size of a query and of a key.
        value_dim: Size of a value.
        rotary: Whether queries and keys are rotated by their position.
        query: Where queries are found before that, None if nowhere or if there is no rotation.
        key: The same for keys.
        value: Where values are found, where attention itself cannot be watched.
        returned_rows: The modules that return probabilities, where it cannot be watched.
    """

    implementation: str | None
    heads: int
    key_value_heads: int
    head_dim: int
    value_dim: int
    rotary: bool
    query: Unrotated | None
    key: Unrotated | None
    value: Unrotated | None = None
    returned_rows: RowModules | None = None

    @property
    def shows_rows(self) -> bool:
        """Whether the probabilities of each row can be had."""
        return self.implementation == EAGER or self.returned_rows is not None


@contextmanager
def watching_attention(
    implementation: str, blocks: Sequence[nn.Module], n_blocks: int, watcher: Watcher
) -> Iterator[None]:
    """Show the self-attention of each block to a watcher, until the end of the `with` block.

    Args:
        implementation: Name under which the model looks its attention function up.
        blocks: The distinct blocks.
        n_blocks: How many times one is called in a forward pass.
        watcher: What to call.
    """
    original: _Function | None = ALL_ATTENTION_FUNCTIONS.get(implementation)
    own = {id(module) for block in blocks for module in block.modules()}
    entered = 0
    shown = True

    def enter(_block: nn.Module, _args: object) -> None:
        nonlocal entered, shown
        entered, shown = entered % n_blocks + 1, False

    def attend(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *args: object,
        **kwargs: object,
    ) -> tuple[Tensor, Tensor | None]:
        nonlocal shown
        function = original or _eager_function(module)
        output, probabilities = function(module, query, key, value, mask, *args, **kwargs)
        # The first attention of a block is its self-attention, a second one looks elsewhere.
        if id(module) in own and not shown:
            shown = True
            watcher(entered - 1, AttentionCall(module, query, key, value, mask, probabilities))
        return output, probabilities

    with ExitStack() as attached:
        for block in blocks:
            attached.callback(block.register_forward_pre_hook(enter).remove)
        ALL_ATTENTION_FUNCTIONS[implementation] = attend
        attached.callback(_restore, implementation, original)
        yield


def _restore(implementation: str, original: _Function | None) -> None:
    del ALL_ATTENTION_FUNCTIONS[implementation]
    if ALL_ATTENTION_FUNCTIONS.get(implementation) is not original:
        ALL_ATTENTION_FUNCTIONS[implementation] = original


def _eager_function(module: nn.Module) -> _Function:
    # Not in the table: each model file has its own, as the default of its look-up.
    file = sys.modules[type(module).__module__]
    function: _Function | None = getattr(file, _EAGER_FUNCTION, None)
    if function is None:
        raise StructureError(
            f"{type(module).__name__} has no {_EAGER_FUNCTION} beside it: its attention cannot "
            "be watched"
        )
    return function


def find_attention(
    model: PreTrainedModel,
    probe: Probe,
    blocks: Sequence[nn.Module],
    n_blocks: int,
    shape: tuple[int, int] = _PROBE_SHAPE,
) -> Attention | None:
    """Look at the attention of every block in a small forward pass.

    Args:
        model: The model.
        probe: Runs it.
        blocks: Its distinct blocks.
        n_blocks: How many times one is called in a forward pass.
        shape: Sequences and positions of what the probe shows.

    Returns:
        What it is like, None if a block has none, has another one than the first block, or
        computes it in a way that cannot be watched, or over other positions than its own.
    """
    implementation = str(model.config._attn_implementation)
    calls: list[AttentionCall] = []
    outputs: dict[int, dict[str, Tensor]] = {id(block): {} for block in blocks}
    heads_first: set[str] = set()
    with ExitStack() as watching:
        for block in blocks:
            for name, module in block.named_modules():
                hook = _noting(outputs[id(block)], name, shape, heads_first)
                watching.callback(module.register_forward_hook(hook).remove)
        watching.enter_context(
            watching_attention(
                implementation, blocks, n_blocks, lambda _block, call: calls.append(call)
            )
        )
        watching.enter_context(evaluating(model))
        try:
            probe(_PROBE)
        except StructureError:
            return None
    if not calls:
        return _unwatched(model, blocks)
    shapes = {(call.query.shape, call.key.shape, call.value.shape) for call in calls}
    if len(calls) != n_blocks or len(shapes) != 1:
        return None
    if any((len(given), given.shape[2]) != shape for given in (calls[0].query, calls[0].key)):
        return None
    queries = [call.query.transpose(1, 2).flatten(2) for call in calls]
    keys = [call.key.transpose(1, 2).flatten(2) for call in calls]
    noted = [outputs[id(block)] for block in blocks]
    query = find_unrotated(blocks, noted, queries, heads_first)
    key = find_unrotated(blocks, noted, keys, heads_first)
    named = any("rotary" in type(module).__name__.lower() for module in model.modules())
    rotary = named if query is None else is_rotated(query, noted[0], queries[0])
    return Attention(
        implementation=implementation,
        heads=calls[0].query.shape[1],
        key_value_heads=calls[0].key.shape[1],
        head_dim=calls[0].query.shape[-1],
        value_dim=calls[0].value.shape[-1],
        rotary=rotary,
        query=query,
        key=key,
    )


def _unwatched(model: PreTrainedModel, blocks: Sequence[nn.Module]) -> Attention | None:
    found = find_projection(model.config, blocks)
    if found is None:
        return None
    return Attention(
        implementation=None,
        heads=found.heads,
        key_value_heads=found.key_value_heads,
        head_dim=found.head_dim,
        value_dim=found.head_dim,
        rotary=found.rotary,
        query=found.query,
        key=found.key,
        value=found.value,
        returned_rows=found.rows if model.config._attn_implementation == EAGER else None,
    )


def _noting(
    outputs: dict[str, Tensor], name: str, shape: tuple[int, int], heads_first: set[str]
) -> Callable[[nn.Module, object, object], None]:
    def hook(_module: nn.Module, _args: object, output: object) -> None:
        if not isinstance(output, Tensor):
            return
        if output.shape[:2] == shape:
            outputs[name] = output.flatten(2).clone()
        elif output.dim() == 4 and output.transpose(1, 2).shape[:2] == shape:
            outputs[name] = output.transpose(1, 2).flatten(2).clone()
            heads_first.add(name)

    return hook
