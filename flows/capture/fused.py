"""Queries, keys and values of models whose attention cannot be watched: a literal table.

Theirs is not looked up by name, so that only the projection that gives all three at once can be
tapped. How each lays them out side by side is known; it is the one thing that is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from flows.capture.attention_rows import RowModules
from flows.capture.rotary import Unrotated


@dataclass(frozen=True)
class Projection:
    """Queries, keys and values within the output of one module a block.

    Attributes:
        query: Where queries are.
        key: Where keys are.
        value: Where values are.
        heads: Number of query heads.
        key_value_heads: Number of key and value heads.
        head_dim: Size of each.
        rotary: Whether queries and keys are rotated by their position after it.
        rows: The modules of attention, which return its probabilities if they have any.
    """

    query: Unrotated
    key: Unrotated
    value: Unrotated
    heads: int
    key_value_heads: int
    head_dim: int
    rotary: bool
    rows: RowModules


Layout = Callable[[PreTrainedConfig, int], tuple[Tensor, Tensor, Tensor] | None]
"""Gives the entries of queries, keys and values, (head, head_dim) each, of a size of a head."""


def _interleaved(config: PreTrainedConfig, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Lay out BLOOM's: query, key and value of one head after the other."""
    entries = torch.arange(config.num_attention_heads * 3 * size).view(-1, 3, size)
    return entries[:, 0], entries[:, 1], entries[:, 2]


def _thirds(config: PreTrainedConfig, size: int) -> tuple[Tensor, Tensor, Tensor] | None:
    """Lay out MPT's: all queries, all keys, all values; none if it clips them afterwards."""
    if config.attn_config.clip_qkv:
        return None
    entries = torch.arange(config.num_attention_heads * 3 * size).view(3, -1, size)
    return entries[0], entries[1], entries[2]


def _falcon(config: PreTrainedConfig, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Lay out Falcon's three: in groups of queries with one key and value, alone, or as BLOOM."""
    heads = config.num_attention_heads
    if config.new_decoder_architecture:
        groups = config.num_kv_heads
        entries = torch.arange((heads + 2 * groups) * size).view(groups, -1, size)
        return entries[:, :-2].reshape(heads, size), entries[:, -2], entries[:, -1]
    if not config.multi_query:
        return _interleaved(config, size)
    entries = torch.arange((heads + 2) * size).view(-1, size)
    return entries[:-2], entries[-2:-1], entries[-1:]


_PROJECTIONS: Final[dict[str, tuple[str, Layout]]] = {
    "bloom": ("self_attention.query_key_value", _interleaved),
    "falcon": ("self_attention.query_key_value", _falcon),
    "mpt": ("attn.Wqkv", _thirds),
}
"""By model type: the name of the projection within a block, and its layout."""

_HIDING: Final = frozenset({"mpt"})
"""Model types whose attention is given a mask that is true where a key is hidden."""


def find_projection(config: PreTrainedConfig, blocks: Sequence[nn.Module]) -> Projection | None:
    """Find the fused projections of a model, None if its type is not in the table."""
    if config.model_type not in _PROJECTIONS:
        return None
    name, layout = _PROJECTIONS[config.model_type]
    heads = int(config.num_attention_heads)
    size = int(config.hidden_size) // heads
    found = layout(config, size)
    if found is None:
        return None
    modules = tuple(block.get_submodule(name) for block in blocks)
    query, key, value = (
        Unrotated(modules, entries.flatten().to(next(modules[0].parameters()).device))
        for entries in found
    )
    rotary = config.model_type == "falcon" and not config.alibi
    attention = tuple(block.get_submodule(name.rpartition(".")[0]) for block in blocks)
    rows = RowModules(attention, config.model_type in _HIDING)
    return Projection(query, key, value, heads, len(found[1]), size, rotary, rows)
