"""What a checkpoint's activations will take, from its config and its tokens."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import zarr

from flows.capture.configs import load_config
from flows.capture.errors import CaptureError
from flows.capture.tokens import Tokens
from flows.console import byte_size
from flows.inputs import corpus_tokens, most_tokens, read_corpus
from flows.running import DEFAULT_SITES, CaptureOptions
from store.catalogue import find_step
from store.errors import StoreFullError
from store.layout import chunk_rows, token_chunks
from store.repository import Repository
from store.schema import (
    BLOCK,
    DIM,
    HEAD,
    HEAD_DIM,
    KEY_POSITION,
    KEY_VALUE_HEAD,
    LAYER,
    SITES,
    STEP,
    TOKEN,
    is_module_site,
    node_name,
    site_variable,
)

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from flows.capture.checkpoints import Checkpoint

_VALUE_BYTES: Final = 4

_LEAST_SHARE: Final[Mapping[str, float]] = {"float32": 0.75, "float16": 0.4, "bfloat16": 0.28}
"""Share of the raw bytes that is left of real activations at best, by dtype of their values."""

_WIDEST: Final = 4
"""Width of a hidden layer of the usual proportions, in widths: only a model tells a module's."""

_LONGEST: Final = 1 << 16
"""Longer than any sequence."""


@dataclass(frozen=True)
class Part:
    """What a stack of blocks would be run over.

    Attributes:
        dims: Size of every dimension that a site of it may have, but step and token.
        n_tokens: Number of its tokens, or rows.
    """

    dims: Mapping[str, int]
    n_tokens: int


@dataclass(frozen=True)
class Sizes:
    """What the activations of one checkpoint are.

    Attributes:
        raw_bytes: Bytes of them as float32.
        least_bytes: Bytes that are written at least.
        chunks: Chunks that hold them.
    """

    raw_bytes: int
    least_bytes: int
    chunks: int


def text_part(checkpoint: Checkpoint, n_tokens: int, longest: int) -> Part:
    """Return what a model of text would be run over.

    Args:
        checkpoint: Its checkpoint.
        n_tokens: Number of tokens that it is shown.
        longest: Tokens of the longest sequence.

    Raises:
        CheckpointError: If its config cannot be read.
    """
    text = load_config(checkpoint).get_text_config()
    blocks, width = int(text.num_hidden_layers), int(text.hidden_size)
    return Part(_dims(blocks, width, text, longest), n_tokens)


def activation_sizes(
    checkpoint: Checkpoint, parts: Sequence[Part], options: CaptureOptions
) -> Sizes:
    """Return what the activations of a checkpoint will be.

    Sites that a model turns out not to have are counted all the same.

    Args:
        checkpoint: The checkpoint.
        parts: What each of its stacks is run over.
        options: How it is run and stored.

    Raises:
        CheckpointError: If its config cannot be read.
    """
    raw, chunks = 0, 0
    for part in parts:
        values, arrays, widest = 0, 0, 0
        for name in _known_sites(options):
            dims = [dim for dim in site_variable(name).dims if dim not in (STEP, TOKEN)]
            sizes = {**part.dims, **_kept(options)}
            known = {dim: sizes.get(dim, _WIDEST * sizes[DIM]) for dim in dims}
            values += math.prod(known.values())
            row = math.prod(known[dim] for dim in dims if dim not in (LAYER, BLOCK))
            widest = max(widest, row)
            arrays += math.prod(sizes[dim] for dim in dims if dim in (LAYER, BLOCK))
        raw += values * part.n_tokens * _VALUE_BYTES
        rows = chunk_rows(part.dims[DIM], part.n_tokens, widest)
        chunks += arrays * token_chunks(part.n_tokens, rows)
    own = str(getattr(load_config(checkpoint), "dtype", None)).removeprefix("torch.")
    share = min(_LEAST_SHARE.get(dtype, 1.0) for dtype in (own, options.precision))
    return Sizes(raw, int(share * raw), chunks)


def _known_sites(options: CaptureOptions) -> list[str]:
    """Return the sites whose size can be told; others are refused when the model is run."""
    wanted = options.sites or DEFAULT_SITES
    return [name for name in wanted if name in SITES or is_module_site(name)]


def _kept(options: CaptureOptions) -> dict[str, int]:
    layers = options.layers
    return {} if layers is None else {LAYER: len(layers), BLOCK: sum(n > 0 for n in layers)}


def refuse_what_does_not_fit(
    store_uri: str, checkpoints: Sequence[Checkpoint], corpus: str, options: CaptureOptions
) -> None:
    """Refuse checkpoints whose activations cannot all fit the disk of a store.

    Steps that the store has are taken as stored, whatever they were made from, and checkpoints
    that cannot be read are left to whoever runs them. Images and sounds are not looked at: their
    rows are not known before they are decoded.

    Raises:
        UnknownNameError: If the store has no such corpus.
        StoreFullError: If there is less room than is needed at best.
    """
    repository = Repository.open(store_uri)
    directory = repository.location.directory
    source = read_corpus(repository, corpus)
    # Of each sequence so few rows may be kept that the number of tokens says nothing.
    if directory is None or source.has_items or options.rows.facts():
        return
    free = shutil.disk_usage(directory).free
    missing = [
        checkpoint
        for checkpoint in checkpoints
        if not _is_there(repository, f"{corpus}/{node_name(checkpoint.model)}", checkpoint.step)
    ]
    # Tokens are counted only where there is so little room that their number matters.
    most = _least_bytes(missing, options, lambda _: (most_tokens(source), _LONGEST))
    if most <= free:
        return
    needed = _least_bytes(missing, options, lambda one: _token_sizes(corpus_tokens(source, one)))
    if needed > free:
        raise StoreFullError(
            f"the activations need at least {byte_size(needed)}, and {byte_size(free)} are free"
            f" for {store_uri}; nothing was run. Choose fewer steps, sites or sequences, or run it"
            " nevertheless with --ignore-space"
        )


def _least_bytes(
    checkpoints: Sequence[Checkpoint],
    options: CaptureOptions,
    count: Callable[[Checkpoint], tuple[int, int]],
) -> int:
    """Sum what checkpoints need at best; those of one model need the same."""
    of_model: dict[str, int] = {}
    for checkpoint in checkpoints:
        if checkpoint.model not in of_model:
            with suppress(CaptureError):
                part = text_part(checkpoint, *count(checkpoint))
                sizes = activation_sizes(checkpoint, [part], options)
                of_model[checkpoint.model] = sizes.least_bytes
    return sum(of_model.get(checkpoint.model, 0) for checkpoint in checkpoints)


def _token_sizes(tokens: Tokens) -> tuple[int, int]:
    return len(tokens), int(tokens.lengths.max())


def _is_there(repository: Repository, path: str, step: int) -> bool:
    group = repository.read().get(path)
    if not isinstance(group, zarr.Group) or STEP not in group:
        return False
    return find_step(repository, path, step) is not None


def _dims(blocks: int, width: int, config: PreTrainedConfig, longest: int) -> dict[str, int]:
    own = getattr(config, "num_attention_heads", None)
    heads = own if isinstance(own, int) else 1
    return {
        LAYER: blocks + 1,
        BLOCK: blocks,
        DIM: width,
        HEAD: heads,
        KEY_VALUE_HEAD: int(getattr(config, "num_key_value_heads", None) or heads),
        HEAD_DIM: int(getattr(config, "head_dim", None) or width // heads),
        KEY_POSITION: longest,
    }
