"""Any module of a model as a site: found by its path, its outputs checked to be rows."""

from __future__ import annotations

import difflib
import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from torch import nn

from flows.capture.called_lists import SHOWN
from flows.capture.errors import UnknownSiteError
from flows.capture.probe import as_rows, hidden_states
from flows.capture.running import evaluating

if TYPE_CHECKING:
    from flows.capture.stack import Stack

PREFIX: Final = "module:"
INDEX: Final = "{i}"
"""Stands for the number of a block in a path."""

_PROBES: Final = ((5, 7), (3, 11))
"""Sequences and positions: two shapes, so that no size of the model is taken for one of them."""


@dataclass(frozen=True)
class ModuleSite:
    """Modules whose outputs are the values of a site.

    Attributes:
        modules: The distinct modules, in the order of the blocks.
        depth: How many times one is called in a forward pass.
        indexed: Whether there is one for each block.
        width: Length of a row.
    """

    modules: tuple[nn.Module, ...]
    depth: int
    indexed: bool
    width: int


def is_module(site: str) -> bool:
    """Tell whether the name of a site is that of a module."""
    return site.startswith(PREFIX)


def find_module(stack: Stack, site: str) -> ModuleSite:
    """Find the modules that a site names, once; they are shown short sequences the first time.

    Args:
        stack: The stack; paths are those within the model, with or without its head.
        site: ``module:PATH``, in whose path ``{i}`` stands for the number of each block.

    Raises:
        UnknownSiteError: If there is none, one does not give a row a token, or they are not
            called once in every block.
    """
    if site not in stack.modules:
        stack.modules[site] = _find(stack, site)
    return stack.modules[site]


def _find(stack: Stack, site: str) -> ModuleSite:
    if stack.probe is None:
        raise UnknownSiteError(f"{site!r}: modules of this model have no row for each of its rows")
    path = site.removeprefix(PREFIX)
    modules = _matching(stack, path)
    if not modules:
        raise UnknownSiteError(_nothing_there(stack, site, path))
    indexed = INDEX in path
    expected = stack.n_blocks if indexed else 1
    shapes = _PROBES if stack.shown_rows is None else ((SHOWN, stack.shown_rows),)
    widths = {_width(stack, site, modules, shape, expected) for shape in shapes}
    if len(widths) != 1:
        raise UnknownSiteError(f"{site!r} gives rows of {len(widths)} lengths: expected one")
    return ModuleSite(modules, expected, indexed, widths.pop())


def _matching(stack: Stack, path: str) -> tuple[nn.Module, ...]:
    """Return the modules of a path, in the order of their numbers, once for each block."""
    blocks = {id(module) for block in stack.blocks for module in block.modules()}
    staged = stack.shown_rows is not None and INDEX in path
    elsewhere = set()
    if stack.name == "decoder":
        elsewhere = {id(module) for module in stack.root.get_encoder().modules()}
    for candidate in _candidates(stack, path):
        pattern = re.compile(re.escape(candidate).replace(re.escape(INDEX), r"(\d+)"))
        found = {
            tuple(map(int, match.groups())): module
            for name, module in stack.root.named_modules()
            if (match := pattern.fullmatch(name)) and len(set(match.groups())) <= 1
            if id(module) not in elsewhere and (id(module) in blocks or not staged)
        }
        if found:
            return tuple(found[number] for number in sorted(found))
    return ()


def _candidates(stack: Stack, path: str) -> list[str]:
    """Return the names that a path may have here: with and without what stands before a body."""
    body = str(getattr(stack.root, "base_model_prefix", ""))
    names = (body, stack.name, f"{body}.{stack.name}", stack.name and f"{stack.name}_model")
    heads = [f"{name}." for name in names if name]
    return [path, *(path.removeprefix(head) for head in heads), *(head + path for head in heads)]


def _nothing_there(stack: Stack, site: str, path: str) -> str:
    names = {re.sub(r"\.\d+(?=\.|$)", f".{INDEX}", name) for name, _ in stack.root.named_modules()}
    near = difflib.get_close_matches(path, sorted(names - {""}), n=3, cutoff=0.3)
    return (
        f"{site!r} names no module of {type(stack.root).__name__}: near ones are "
        f"{', '.join(PREFIX + name for name in near) or 'none'}; {INDEX} stands for the number of "
        "a block"
    )


def _width(
    stack: Stack, site: str, modules: tuple[nn.Module, ...], shape: tuple[int, int], expected: int
) -> int:
    """Return the length of the rows that the modules give for sequences of a shape."""
    outputs: list[object] = []
    with ExitStack() as watching:
        for module in modules:
            hook = module.register_forward_hook(lambda _m, _a, output: outputs.append(output))
            watching.callback(hook.remove)
        watching.enter_context(evaluating(stack.root))
        assert stack.probe is not None
        stack.probe([[(row + i) % 9 for i in range(shape[1])] for row in range(shape[0])])
    if len(outputs) != expected:
        each = f"one in each of {expected} blocks" if INDEX in site else "one"
        raise UnknownSiteError(f"{site!r} is called {len(outputs)} times: expected {each}")
    if stack.shown_rows is not None:
        outputs = [_of_map(output) for output in outputs]
    found = {_row_length(output, shape) for output in outputs}
    if len(found) != 1 or None in found:
        given = ", ".join(sorted({_described(output) for output in outputs}))
        raise UnknownSiteError(
            f"{site!r} gives {given} for {shape[0]} sequences of {shape[1]} tokens: expected one "
            "row of numbers a token, of one length in all blocks"
        )
    return next(length for length in found if length is not None)


def _of_map(output: object) -> object:
    values = hidden_states(output)
    return output if values is None else as_rows(values)


def _row_length(output: object, shape: tuple[int, int]) -> int | None:
    values = hidden_states(output)
    if values is None or not values.is_floating_point():
        return None
    if tuple(values.shape[:2]) == shape and values.dim() > 2:
        return values[0, 0].numel()
    if values.dim() == 2 and len(values) == shape[0] * shape[1]:
        return int(values.shape[1])
    return None


def _described(output: object) -> str:
    values = hidden_states(output)
    return type(output).__name__ if values is None else f"{values.dtype} {tuple(values.shape)}"
