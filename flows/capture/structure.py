"""Where the parts of a model are, found by watching one small forward pass.

No family is named here. The blocks are the outermost `ModuleList` whose members are called
``num_hidden_layers`` times in all and give hidden states: counting calls rather than members
also finds the one block that ALBERT applies twelve times. The final norm is the norm that is
given the output of the last block. A model is causal if a change of the last token leaves the
output for the earlier ones as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from flows.capture.attention import Attention, find_attention
from flows.capture.errors import StructureError
from flows.capture.probe import SHAPE, hidden_states, run_probe
from flows.capture.running import evaluating
from flows.capture.sublayers import Sublayers, find_sublayers

_CAUSAL_LEAK = 1e-3
"""Change at an earlier position, relative to the change where the token differs, above which
a model sees what comes later; rounding gives about 1e-6, untrained attention above 5e-3."""


@dataclass(frozen=True)
class Stack:
    """The parts of one stack of blocks.

    Attributes:
        path: Dotted name of the list of blocks within the model.
        blocks: The distinct modules that are called as blocks.
        n_blocks: How many times one is called in a forward pass.
        final_norm: The norm applied to the output of the last block, None if there is none.
        width: Size of the hidden states.
        causal: Whether a position sees only itself and earlier ones.
        root: The module that is run.
        predicts_next: Whether it gives logits for the token after each position.
        sublayers: For each distinct block, what gives what it adds to the residual stream; None
            where that is not the sum of two sublayers.
        attention: What its attention is like; None where it has none that can be watched.
    """

    path: str
    blocks: tuple[nn.Module, ...]
    n_blocks: int
    final_norm: nn.Module | None
    width: int
    causal: bool
    root: nn.Module
    predicts_next: bool
    sublayers: tuple[Sublayers, ...] | None
    attention: Attention | None


@dataclass
class _List:
    """What was seen of the members of one `ModuleList`."""

    path: str
    modules: nn.ModuleList
    calls: int = 0
    hidden: bool = True
    output: Tensor | None = None

    def describe(self) -> str:
        kind = type(self.modules[0]).__name__
        return f"{self.path} ({len(self.modules)} × {kind}, called {self.calls} times)"


@dataclass
class _Seen:
    lists: list[_List]
    norm_inputs: list[tuple[nn.Module, Tensor]] = field(default_factory=list)
    logits: Tensor | None = None


def find_stack(model: PreTrainedModel, blocks: str | None = None) -> Stack:
    """Find the blocks, the final norm and the kind of attention of a text model.

    Args:
        model: A model with or without a head.
        blocks: Dotted name of the list of blocks, for a model where it cannot be found.

    Raises:
        StructureError: If no list of blocks, or more than one, fits; it says what was found.
    """
    seen = _watch(model)
    found = _chosen(model, seen, blocks)
    output = found.output
    assert output is not None
    causal = _is_causal(model, output)
    distinct = tuple(found.modules)
    return Stack(
        path=found.path,
        blocks=distinct,
        n_blocks=found.calls,
        final_norm=next((norm for norm, given in seen.norm_inputs if given is output), None),
        width=output.shape[-1],
        causal=causal,
        root=model,
        predicts_next=causal and seen.logits is not None,
        sublayers=find_sublayers(model, distinct),
        attention=find_attention(model, distinct, found.calls),
    )


def _watch(model: PreTrainedModel) -> _Seen:
    """Run two short sequences that differ in their last token, and note what is called."""
    lists = [
        _List(path, module)
        for path, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module)
    ]
    seen = _Seen(lists)
    with ExitStack() as watching:
        for entry in lists:
            for member in entry.modules:
                watching.callback(member.register_forward_hook(_counting(entry)).remove)
        for module in model.modules():
            if "norm" in type(module).__name__.lower():
                watching.callback(module.register_forward_pre_hook(_noting(seen)).remove)
        watching.enter_context(evaluating(model))
        seen.logits = getattr(run_probe(model), "logits", None)
    return seen


def _counting(entry: _List) -> Callable[[nn.Module, object, object], None]:
    def hook(_member: nn.Module, _args: object, output: object) -> None:
        hidden = hidden_states(output)
        entry.calls += 1
        entry.hidden &= hidden is not None and hidden.shape[:-1] == SHAPE
        entry.output = hidden

    return hook


def _noting(seen: _Seen) -> Callable[[nn.Module, tuple[object, ...]], None]:
    def hook(module: nn.Module, args: tuple[object, ...]) -> None:
        if args and isinstance(args[0], Tensor):
            seen.norm_inputs.append((module, args[0]))

    return hook


def _chosen(model: PreTrainedModel, seen: _Seen, path: str | None) -> _List:
    usable = [entry for entry in seen.lists if entry.calls and entry.hidden]
    if path is not None:
        fitting = [entry for entry in usable if entry.path == path]
    else:
        expected = getattr(model.config.get_text_config(), "num_hidden_layers", None)
        fitting = [entry for entry in usable if expected in (None, entry.calls)]
        fitting = [
            entry
            for entry in fitting
            if not any(entry.path.startswith(other.path + ".") for other in fitting)
        ]
    if len(fitting) != 1:
        listed = "; ".join(entry.describe() for entry in seen.lists) or "no ModuleList at all"
        wanted = path or f"one list of blocks called num_hidden_layers = {expected} times"
        raise StructureError(
            f"{type(model).__name__}: expected {wanted}, {len(fitting)} fit; it has {listed}. "
            "Name the list of blocks with --blocks"
        )
    return fitting[0]


def _is_causal(model: PreTrainedModel, output: Tensor) -> bool:
    if not bool(torch.isfinite(output).all()):
        # Broken weights show nothing; the head that they were saved with does.
        saved_as = model.config.architectures or ()
        return any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in saved_as)
    difference = (output[0].float() - output[1].float()).norm(dim=-1)
    return bool(difference[0] <= _CAUSAL_LEAK * difference[-1])
