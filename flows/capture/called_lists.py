"""Which lists of modules are called in a forward pass, how often, and with what they answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from torch import Tensor, nn
from transformers import PreTrainedModel

from flows.capture.probe import Probe, as_rows, hidden_states
from flows.capture.running import evaluating

SHOWN: Final = 2
"""Images or sounds that a probe shows."""


@dataclass
class CalledList:
    """What was seen of the members of one list.

    Attributes:
        path: Dotted name.
        modules: Its members.
        given: Shape of what the first call was given, as rows (sequence, position, dim).
        outputs: That of what each call gave.
        last: What the last call gave, as it was.
    """

    path: str
    modules: tuple[nn.Module, ...]
    given: tuple[int, ...] | None = None
    outputs: list[tuple[int, ...]] = field(default_factory=list)
    last: Tensor | None = None

    @property
    def is_stack(self) -> bool:
        """Whether all calls gave hidden states of one shape for the inputs shown."""
        shapes = set(self.outputs)
        return len(shapes) == 1 and all(len(s) == 3 and s[0] == SHOWN for s in shapes)

    def describe(self) -> str:
        """Return what it is, for an error."""
        kind = type(self.modules[0]).__name__
        return f"{self.path} ({len(self.modules)} × {kind}, called {len(self.outputs)} times)"


def watch_lists(
    root: PreTrainedModel, probe: Probe
) -> tuple[list[CalledList], list[tuple[nn.Module, Tensor]]]:
    """Run the model, and note the calls of members of lists, and what norms are given."""
    lists = [
        CalledList(path, tuple(module))
        for path, module in root.named_modules()
        if isinstance(module, nn.ModuleList | nn.Sequential) and len(module)
    ]
    norms: list[tuple[nn.Module, Tensor]] = []
    with ExitStack() as watching:
        for entry in lists:
            for member in entry.modules:
                hook = member.register_forward_hook(_counting(entry), with_kwargs=True)
                watching.callback(hook.remove)
        for module in root.modules():
            if "norm" in type(module).__name__.lower():
                hook = module.register_forward_pre_hook(_noting(norms))
                watching.callback(hook.remove)
        watching.enter_context(evaluating(root))
        probe(())
    return lists, norms


def _counting(entry: CalledList) -> Callable[..., None]:
    def hook(
        _member: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object
    ) -> None:
        hidden = hidden_states(output)
        if not entry.outputs:
            tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
            entry.given = next((tuple(as_rows(value).shape) for value in tensors), None)
        entry.outputs.append(() if hidden is None else tuple(as_rows(hidden).shape))
        entry.last = hidden

    return hook


def _noting(norms: list[tuple[nn.Module, Tensor]]) -> Callable[..., None]:
    def hook(module: nn.Module, args: tuple[object, ...]) -> None:
        if args and isinstance(args[0], Tensor):
            norms.append((module, args[0]))

    return hook
