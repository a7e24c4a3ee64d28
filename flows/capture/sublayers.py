"""Which modules of a block give what is added to the residual stream, found by arithmetic.

A block adds the output of its attention and of its feed-forward sublayer to its input. Where
their modules stand, and what they are called, differs; the sum does not. So the outputs of all
modules of a block are noted in one small forward pass, and the pair is searched that satisfies

    output = input + attention + feed-forward                       (norms before the sublayers)
    norm₁ is given input + attention, norm₂ norm₁'s output + feed-forward     (norms after them)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from flows.capture.probe import SEQUENCES, SHAPE, Probe, hidden_argument, hidden_states
from flows.capture.running import evaluating

_TOLERANCE: Final = {"float32": 1e-4, "float64": 1e-4}
_TOLERANCE_ELSEWHERE: Final = 3e-2
"""Error of the sum relative to the block's output, in the dtypes of 8 to 11 bits."""


@dataclass(frozen=True)
class Sublayers:
    """The modules of one block whose outputs are added to the residual stream.

    Attributes:
        attention: Gives what the attention sublayer adds.
        mlp: Gives what the feed-forward sublayer adds.
    """

    attention: nn.Module
    mlp: nn.Module


@dataclass
class _Trace:
    """What was seen during one call of a block."""

    given: Tensor
    outputs: list[tuple[nn.Module, Tensor]] = field(default_factory=list)
    norms: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    output: Tensor | None = None


def find_sublayers(
    model: PreTrainedModel,
    probe: Probe,
    blocks: Sequence[nn.Module],
    shape: tuple[int, int] = SHAPE,
) -> tuple[Sublayers, ...] | None:
    """Find the sublayers of every block, None if one does not add up.

    Args:
        model: The model.
        probe: Runs it.
        blocks: Its distinct blocks.
        shape: Sequences and positions of what the probe shows.
    """
    traces = _watch(model, probe, blocks)
    found = [_match(traces[id(block)], shape) for block in blocks if id(block) in traces]
    complete = [entry for entry in found if entry is not None]
    return tuple(complete) if len(complete) == len(blocks) else None


def _watch(model: PreTrainedModel, probe: Probe, blocks: Sequence[nn.Module]) -> dict[int, _Trace]:
    traces: dict[int, _Trace] = {}
    with ExitStack() as watching:
        for block in blocks:
            for handle in _hooks(block, traces):
                watching.callback(handle.remove)
        watching.enter_context(evaluating(model))
        probe(SEQUENCES)
    return traces


def _hooks(block: nn.Module, traces: dict[int, _Trace]) -> Iterator[RemovableHandle]:
    def begin(_block: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        traces[id(block)] = _Trace(hidden_argument(args, kwargs).clone())

    def end(_block: nn.Module, _args: object, output: object) -> None:
        traces[id(block)].output = hidden_states(output)

    def note(module: nn.Module, args: tuple[object, ...], output: object) -> None:
        trace, given, hidden = traces[id(block)], hidden_states(args), hidden_states(output)
        if hidden is None or hidden.numel() != trace.given.numel():
            return
        # Copied, since some blocks add to what a module returned in place.
        hidden = hidden.reshape(trace.given.shape).clone()
        trace.outputs.append((module, hidden))
        if given is not None and "norm" in type(module).__name__.lower():
            trace.norms.append((given.reshape(hidden.shape).clone(), hidden))

    yield block.register_forward_pre_hook(begin, with_kwargs=True)
    yield block.register_forward_hook(end)
    for module in block.modules():
        if module is not block:
            yield module.register_forward_hook(note)


def _match(trace: _Trace, shape: tuple[int, int]) -> Sublayers | None:
    if trace.output is None or trace.output.shape[:-1] != shape:
        return None
    # What is called twice, such as a dropout that both sublayers share, cannot be told apart later.
    calls = Counter(id(module) for module, _ in trace.outputs)
    trace.outputs = [pair for pair in trace.outputs if calls[id(pair[0])] == 1]
    added = _added_to(trace, trace.given, trace.output)
    if added is not None:
        return added
    for given, normed in trace.norms:
        for after, output in trace.norms:
            if not _near(output, trace.output):
                continue
            attention = _equal_to(trace, given - trace.given)
            mlp = _equal_to(trace, after - normed)
            if attention is not None and mlp is not None:
                return Sublayers(attention, mlp)
    return None


def _added_to(trace: _Trace, given: Tensor, output: Tensor) -> Sublayers | None:
    for i, (attention, first) in enumerate(trace.outputs):
        for mlp, second in trace.outputs[i + 1 :]:
            if _near(given + first + second, output):
                return Sublayers(attention, mlp)
    return None


def _equal_to(trace: _Trace, wanted: Tensor) -> nn.Module | None:
    return next((module for module, output in trace.outputs if _near(output, wanted)), None)


def _near(got: Tensor, expected: Tensor) -> bool:
    dtype = str(expected.dtype).removeprefix("torch.")
    limit = _TOLERANCE.get(dtype, _TOLERANCE_ELSEWHERE)
    difference = (got.float() - expected.float()).norm()
    return bool(difference <= limit * expected.float().norm())
