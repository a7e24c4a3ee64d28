"""Where the parts of a model are, found by watching one small forward pass.

No family is named here. The blocks are the outermost `ModuleList` whose members are called
``num_hidden_layers`` times in all and give hidden states: counting calls rather than members
also finds the one block that ALBERT applies twelve times. The final norm is the norm that is
given the output of the last block. A model is causal if a change of the last token leaves the
output for the earlier ones as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Final

from torch import Tensor, nn
from transformers import PreTrainedModel

from flows.capture.attention import find_attention
from flows.capture.causality import is_causal
from flows.capture.configs import decoder_start_id
from flows.capture.errors import StructureError
from flows.capture.masks import MASKED, NEXT
from flows.capture.probe import SEQUENCES, SHAPE, Probe, decoder_probe, hidden_states, text_probe
from flows.capture.running import evaluating
from flows.capture.stack import Stack
from flows.capture.sublayers import find_sublayers

_DOWNSAMPLED: Final = {"canine": ("encoder.layer", "downsampling_rate")}
"""Exceptions: the list of blocks, and the entry of the config with the characters of a row."""


@dataclass(frozen=True)
class Search:
    """Where a stack of text is looked for.

    Attributes:
        root: What is run.
        within: The part that holds the stack.
        probe: Runs it.
        expected: Number of blocks by the config, None if it does not say.
    """

    root: PreTrainedModel
    within: nn.Module
    probe: Probe
    expected: int | None


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


def find_stacks(model: PreTrainedModel, blocks: str | None = None) -> tuple[Stack, ...]:
    """Find the stacks of a text model: one, or the encoder and the decoder.

    Args:
        model: A model with or without a head.
        blocks: Dotted name of the list of blocks, for a model where it cannot be found; that of
            one stack of an encoder-decoder, or of both with a comma between.

    Raises:
        StructureError: If no list of blocks, or more than one, fits; it says what was found.
    """
    config = model.config
    paths = [] if blocks is None else [path.strip() for path in blocks.split(",")]
    if config.model_type in _DOWNSAMPLED and not paths:
        return (_downsampled(model, *_DOWNSAMPLED[config.model_type]),)
    tower = _text_tower(model)
    if tower is not None:
        search = Search(tower, tower, text_probe(tower), tower.config.num_hidden_layers)
        return (replace(find_stack(search, paths), name="text"),)
    if not config.is_encoder_decoder:
        expected = getattr(config.get_text_config(), "num_hidden_layers", None)
        return (find_stack(Search(model, model, text_probe(model), expected), paths),)
    encoder: PreTrainedModel = model.get_encoder()
    expected = getattr(config, "encoder_layers", config.num_hidden_layers)
    first = Search(encoder, encoder, text_probe(encoder), expected)
    layers = getattr(config, "num_decoder_layers", config.num_hidden_layers)
    expected = getattr(config, "decoder_layers", layers)
    second = Search(model, model.get_decoder(), decoder_probe(model), expected)
    return (
        replace(find_stack(first, of_stack(paths, "encoder")), name="encoder", predicts=None),
        replace(
            find_stack(second, of_stack(paths, "decoder")),
            name="decoder",
            predicts=None,
            decoder_start=decoder_start_id(config),
        ),
    )


def _downsampled(model: PreTrainedModel, path: str, rate: str) -> Stack:
    """Return the deep stack of a model of characters, whose rows span several of them."""
    blocks = model.get_submodule(path)
    assert isinstance(blocks, nn.ModuleList)
    return Stack(
        name=None,
        path=path,
        blocks=tuple(blocks),
        n_blocks=len(blocks),
        final_norm=None,
        width=int(model.config.hidden_size),
        causal=False,
        root=model,
        decoder_start=None,
        predicts=None,
        sublayers=None,
        attention=None,
        rate=int(getattr(model.config, rate)),
    )


def _text_tower(model: PreTrainedModel) -> PreTrainedModel | None:
    """Return the text tower of a model that also has one for images or sounds."""
    tower = getattr(model, "text_model", None)
    return tower if "text_config" in model.config.sub_configs and tower is not None else None


def of_stack(paths: Sequence[str], name: str) -> list[str]:
    """Return the paths that are not within the other stack."""
    other = {"encoder": "decoder", "decoder": "encoder"}[name]
    return [path for path in paths if other not in path.split(".")]


def find_stack(search: Search, paths: Sequence[str]) -> Stack:
    """Find one stack; its blocks are the list that fits, or that one of the paths names.

    Raises:
        StructureError: If no list of blocks, or more than one, fits; it says what was found.
    """
    root, probe = search.root, search.probe
    seen = _watch(search)
    found = _chosen(search, seen, paths)
    output = found.output
    assert output is not None
    causal = is_causal(root, output)
    distinct = tuple(found.modules)
    return Stack(
        name=None,
        path=found.path,
        blocks=distinct,
        n_blocks=found.calls,
        final_norm=next((norm for norm, given in seen.norm_inputs if given is output), None),
        width=output.shape[-1],
        causal=causal,
        root=root,
        decoder_start=None,
        predicts=None if seen.logits is None else NEXT if causal else MASKED,
        sublayers=find_sublayers(root, probe, distinct),
        attention=find_attention(root, probe, distinct, found.calls),
        probe=probe,
    )


def _watch(search: Search) -> _Seen:
    """Run two short sequences that differ in their last token, and note what is called."""
    inside = {id(module) for module in search.within.modules()}
    lists = [
        _List(path, module)
        for path, module in search.root.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) and id(module) in inside
    ]
    seen = _Seen(lists)
    with ExitStack() as watching:
        for entry in lists:
            for member in entry.modules:
                watching.callback(member.register_forward_hook(_counting(entry)).remove)
        for module in search.within.modules():
            if "norm" in type(module).__name__.lower():
                watching.callback(module.register_forward_pre_hook(_noting(seen)).remove)
        watching.enter_context(evaluating(search.root))
        seen.logits = getattr(search.probe(SEQUENCES), "logits", None)
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


def _chosen(search: Search, seen: _Seen, paths: Sequence[str]) -> _List:
    usable = [entry for entry in seen.lists if entry.calls and entry.hidden]
    if paths:
        fitting = [entry for entry in usable if _is_named(entry.path, paths)]
    else:
        fitting = [entry for entry in usable if search.expected in (None, entry.calls)]
        fitting = [
            entry
            for entry in fitting
            if not any(entry.path.startswith(other.path + ".") for other in fitting)
        ]
    if len(fitting) != 1:
        listed = "; ".join(entry.describe() for entry in seen.lists) or "no ModuleList at all"
        kind = type(search.root).__name__
        wanted = " or ".join(paths) or (
            f"one list of blocks called num_hidden_layers = {search.expected} times"
        )
        example = next((entry.path for entry in usable), "encoder.layers")
        raise StructureError(
            f"{kind}: expected {wanted}, {len(fitting)} fit; it has {listed}. "
            f"Name the list of blocks, one that is called and gives hidden states, as "
            f"--blocks '{example}'"
        )
    return fitting[0]


def _is_named(path: str, names: Sequence[str]) -> bool:
    """Tell whether a list is meant by one of some names: with a head, a model is deeper."""
    ends = [(f".{path}", f".{name}") for name in names]
    return any(one.endswith(other) or other.endswith(one) for one, other in ends)
