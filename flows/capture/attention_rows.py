"""Rows of attention: what each head at each position gives to the keys.

Where attention is looked up by name, the call that computes it is watched and has them
(`flows.capture.attention`). Of the families of a literal table (`flows.capture.fused`) the module
itself returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

from flows.capture.errors import StructureError


@dataclass(frozen=True)
class AttentionRows:
    """The rows of one computation of attention.

    Attributes:
        probabilities: (sequence, head, position, key_position).
        mask: What is added to the logits, or true where a key may be seen; broadcast to the same.
    """

    probabilities: Tensor
    mask: Tensor | None


@dataclass(frozen=True)
class RowModules:
    """The modules that return rows, where attention is not looked up by name.

    Attributes:
        modules: One in each block, in the order of calls.
        hides: Whether the mask that they are given is true where a key is hidden.
    """

    modules: tuple[nn.Module, ...]
    hides: bool


RowWatcher = Callable[[int, AttentionRows], None]
"""Takes the index of the block and the rows of its self-attention."""


@contextmanager
def watching_rows(found: RowModules, watcher: RowWatcher) -> Iterator[None]:
    """Show the rows that modules return to a watcher, until the end of the `with` block.

    Raises:
        StructureError: During a forward pass, if a module returns none.
    """
    called = 0

    def after(
        module: nn.Module, _args: object, kwargs: Mapping[str, object], output: object
    ) -> None:
        nonlocal called
        watcher(called, AttentionRows(_returned(module, output), _mask(kwargs, found.hides)))
        called = (called + 1) % len(found.modules)

    with ExitStack() as attached:
        for module in found.modules:
            attached.callback(module.register_forward_hook(after, with_kwargs=True).remove)
        yield


def _returned(module: nn.Module, output: object) -> Tensor:
    rows = output[1] if isinstance(output, tuple) and len(output) > 1 else None
    if not isinstance(rows, Tensor) or rows.dim() != 4:
        raise StructureError(
            f"{type(module).__name__} returned no probabilities (sequence, head, position, key): "
            "expected them beside its output; leave sites of attention rows out"
        )
    return rows


def _mask(kwargs: Mapping[str, object], hides: bool) -> Tensor | None:
    mask = kwargs.get("attention_mask")
    if not isinstance(mask, Tensor):
        return None
    return ~mask if hides else mask
