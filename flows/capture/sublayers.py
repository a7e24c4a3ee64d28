"""Which modules of a block give what is added to the residual stream, found by arithmetic.

A block adds the output of its attention and of its feed-forward sublayer to its input. Where
their modules stand, and what they are called, differs; the sum does not. So the outputs of all
modules of a block are noted in one small forward pass, and the pair is searched that satisfies

    output = input + attention + feed-forward                       (norms before the sublayers)
    norm₁ is given input + attention, norm₂ norm₁'s output + feed-forward     (norms after them)

best. What is added can be small beside the stream, most of all in rows of massive activations, so
that sums are added up in the model's own dtype and order, and compared row by row with what was
added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from flows.capture.probe import SEQUENCES, SHAPE, Probe, hidden_argument, hidden_states
from flows.capture.running import evaluating

_TOLERANCE: Final = {"float32": 1e-4, "float64": 1e-4}
_TOLERANCE_ELSEWHERE: Final = 3e-2
"""Error of a sum relative to what was added, in the dtypes of 8 to 11 bits."""

_ROUNDINGS: Final = 2
"""Additions that give the sum; each errs by the dtype's precision, relative to the sum."""

_EXPLAINED: Final = 1.0
"""Misfit from which on rounding is no explanation."""


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
            if not _misfit([output], trace.output, output) < _EXPLAINED:
                continue
            attention = _equal_to(trace, given, trace.given)
            mlp = _equal_to(trace, after, normed)
            if attention is not None and mlp is not None:
                return Sublayers(attention, mlp)
    return None


def _added_to(trace: _Trace, given: Tensor, output: Tensor) -> Sublayers | None:
    """Return the two modules whose outputs make one of the other with what was given, if any do."""
    best: float = _EXPLAINED
    found: Sublayers | None = None
    added = output.float() - given.float()
    for i, (attention, first) in enumerate(trace.outputs):
        for mlp, second in trace.outputs[i + 1 :]:
            sums = [given + first + second, given + second + first, given + (first + second)]
            misfit = _misfit(sums, output, added)
            # Of modules that give the same, such as a dropout after another, the first counts.
            if misfit < best:
                best, found = misfit, Sublayers(attention, mlp)
    return found


def _equal_to(trace: _Trace, output: Tensor, given: Tensor) -> nn.Module | None:
    """Return the module whose output makes one of the other, None if none does."""
    added = output.float() - given.float()
    fits = [(_misfit([given + one], output, added), module) for module, one in trace.outputs]
    misfit, module = min(fits, key=lambda fit: fit[0], default=(_EXPLAINED, None))
    return module if misfit < _EXPLAINED else None


def _misfit(sums: Sequence[Tensor], expected: Tensor, added: Tensor) -> float:
    """Return how far the nearest of some sums is off, by its worst row; `_EXPLAINED` is 1.

    Args:
        sums: The same sum, added up in several orders.
        expected: What it should be (..., dim).
        added: What was added to give that.
    """
    dtype = str(expected.dtype).removeprefix("torch.")
    limit = _TOLERANCE.get(dtype, _TOLERANCE_ELSEWHERE) * added.float().norm(dim=-1)
    limit += _ROUNDINGS * torch.finfo(expected.dtype).eps * expected.float().norm(dim=-1)
    smallest = torch.finfo(torch.float32).tiny
    off = [(one.float() - expected.float()).norm(dim=-1) / (limit + smallest) for one in sums]
    return min(float(one.max()) for one in off)
