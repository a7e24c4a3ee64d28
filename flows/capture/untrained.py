"""Models whose weights are drawn: the untrained controls."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final, cast

import torch
from torch import nn
from transformers import AutoModel, PreTrainedModel

from flows.capture.checkpoints import Checkpoint
from flows.capture.configs import load_config
from flows.capture.errors import CheckpointError
from flows.capture.heads import family_of
from flows.capture.quiet import first_line, quiet
from flows.capture.untrained_block import draw_common_bias

_BYTES_A_ROUND: Final = 1 << 24


def draw_model(
    checkpoint: Checkpoint, *, attention: str | None = None, head: bool = False
) -> PreTrainedModel:
    """Draw the weights of an untrained model, the same ones for the same seed.

    The generators of the process are left as they were.

    Args:
        checkpoint: One with random weights.
        attention: Implementation of attention; the model's own default when None.
        head: Whether to add the part that predicts tokens.

    Raises:
        CheckpointError: If the config cannot be used.
    """
    assert checkpoint.random is not None
    config = load_config(checkpoint)
    options = {
        "attn_implementation": attention,
        "dtype": torch.float32,
        "trust_remote_code": checkpoint.trusted,
    }
    with torch.random.fork_rng(), quiet():
        torch.manual_seed(checkpoint.random.seed)
        try:
            model: PreTrainedModel = AutoModel.from_config(config, **options)
            if head:
                model = _with_head(model, options)
            if checkpoint.random.block is not None:
                draw_common_bias(model, checkpoint.random.block.common_bias)
        except Exception as error:
            raise CheckpointError(
                f"no model can be built from the config of {checkpoint.source}: {first_line(error)}"
            ) from error
    return model


def _with_head(body: PreTrainedModel, options: Mapping[str, object]) -> PreTrainedModel:
    """Return the same model with a head, whose weights are drawn next.

    A model that is drawn together with its head has other weights, where it lacks parts, such as
    a pooler, that it has on its own.
    """
    build = cast("Callable[..., PreTrainedModel]", family_of(body.config, head=True).from_config)
    model = build(body.config, **options)
    within = getattr(model, model.base_model_prefix)
    within.load_state_dict(body.state_dict(), strict=False)
    return model


def state_sha256(model: nn.Module) -> str:
    """Return the SHA-256 over the names, dtypes, shapes and bytes of all weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
        for part in flat.split(_BYTES_A_ROUND):
            digest.update(part.numpy())
    return digest.hexdigest()
