"""Loads a checkpoint's weights into a model, or draws them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, cast

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from flows.capture.agreement import require_agreement
from flows.capture.attention import EAGER
from flows.capture.checkpoints import Checkpoint
from flows.capture.configs import load_config
from flows.capture.devices import AUTO, SPLIT, chosen_device
from flows.capture.errors import CheckpointError
from flows.capture.fetching import with_weights
from flows.capture.generation import forced_entries
from flows.capture.heads import class_of, family_of
from flows.capture.integrity import check_config, check_gguf, weight_files
from flows.capture.media_structure import Shapes, find_media_stacks
from flows.capture.quiet import first_line, quiet, switch_gguf_bar
from flows.capture.stack import Stack
from flows.capture.structure import find_stacks
from flows.capture.tensors import read_tensors
from flows.capture.untrained import draw_model
from flows.capture.untrained_block import set_up_block

_UNUSED_WEIGHTS: Final = "pooler"
"""Part of encoders that stands beside the residual stream and is often not saved."""


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to be run, and where its parts are.

    Attributes:
        model: In evaluation mode, on its device.
        stacks: Its stacks: one, or the encoder and the decoder.
        stack: The one of them that is captured; the first unless another is chosen.
        model_type: Name of its architecture in `transformers`.
        source_dtype: Dtype it computes in.
        attention: Implementation of its attention.
        has_head: Whether it predicts tokens.
    """

    model: PreTrainedModel
    stacks: tuple[Stack, ...]
    stack: Stack
    model_type: str
    source_dtype: str
    attention: str
    has_head: bool

    def each_stack(self) -> Iterator[LoadedModel]:
        """Yield the model once for each of its stacks, with that one chosen."""
        for stack in self.stacks:
            yield replace(self, stack=stack)

    @property
    def causal(self) -> bool:
        """Whether a position sees only itself and earlier ones."""
        return self.stack.causal

    @property
    def device(self) -> torch.device:
        """Where the model takes its inputs."""
        return self.model.device

    @property
    def devices(self) -> set[torch.device]:
        """Every device that holds a part of it."""
        return {parameter.device for parameter in self.model.parameters()}


def load_model(
    checkpoint: Checkpoint,
    *,
    device: str = "auto",
    dtype: torch.dtype | None = None,
    attention: Literal["eager", "sdpa"] | None = None,
    head: bool = False,
    blocks: str | None = None,
    shown: Shapes | None = None,
) -> LoadedModel:
    """Load a model, after a check that its files are whole.

    Code that comes with a checkpoint runs only where it is trusted, and pickles are read as
    weights only.

    Args:
        checkpoint: Which one.
        device: A torch device; ``auto``: CUDA if there is any; ``split``: over all there are, by
            accelerate, for a model that fits none of them.
        dtype: What to compute in; as stored when None (float32 for GGUF and drawn weights).
        attention: Implementation of attention, the model's default when None; only ``eager``
            shows its probabilities.
        head: Whether to load the part that predicts tokens, for the loss.
        blocks: Dotted name of the list of blocks, for a model where it cannot be found.
        shown: What one image or sound looks like to the model, None if it is shown text.

    Raises:
        CheckpointError: If the weights are missing, damaged, incomplete or need foreign code.
        StructureError: If the parts of the model cannot be found, or its eager attention, where
            that is asked for, is another than its default one.
        UnknownDeviceError: If the device is not there.
    """
    if device == SPLIT and checkpoint.random is not None:
        device = AUTO
    place = None if device == SPLIT else chosen_device(device)
    if checkpoint.random is not None:
        model = draw_model(checkpoint, attention=attention, head=head)
    else:
        model = _read_model(checkpoint, dtype, attention, head, split=place is None)
    if place is not None:
        nn.Module.to(model, device=place, dtype=dtype)
    model.eval()
    stacks = (
        find_stacks(model, blocks) if shown is None else find_media_stacks(model, shown, blocks)
    )
    if checkpoint.random is not None and checkpoint.random.block is not None:
        set_up_block(model, stacks, checkpoint.random.block, checkpoint.random.seed)
    if attention == EAGER:
        require_agreement(model, stacks)
    return LoadedModel(
        model=model,
        stacks=stacks,
        stack=stacks[0],
        model_type=str(model.config.model_type),
        source_dtype=str(model.dtype).removeprefix("torch."),
        attention=str(model.config._attn_implementation),
        has_head=head,
    )


def _read_model(
    checkpoint: Checkpoint,
    dtype: torch.dtype | None,
    attention: str | None,
    head: bool,
    *,
    split: bool,
) -> PreTrainedModel:
    directory = with_weights(checkpoint).directory
    assert directory is not None
    files = _checked_files(checkpoint, directory)
    config = load_config(checkpoint)
    if split:
        _require_accelerate()
    builder = None if split else _class(checkpoint, config, head=head)
    build: Callable[..., object] = (builder or family_of(config, head=head)).from_pretrained
    try:
        source = _source(checkpoint, directory, files, None if builder is None else config)
        if split:
            source["device_map"] = "auto"
        with quiet():
            loaded = build(
                **source,
                dtype=dtype or (torch.float32 if checkpoint.gguf else "auto"),
                attn_implementation=attention,
                trust_remote_code=checkpoint.trusted,
                local_files_only=True,
                output_loading_info=True,
            )
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"{checkpoint.source} cannot be loaded: {first_line(error)}"
        ) from error
    model, report = cast("tuple[PreTrainedModel, dict[str, set[str]]]", loaded)
    _check_complete(checkpoint, report["missing_keys"])
    model.config.update(dict(forced_entries(directory)))
    return model


def _checked_files(checkpoint: Checkpoint, directory: Path) -> list[Path]:
    if checkpoint.gguf is not None:
        return [check_gguf(directory / checkpoint.gguf)]
    check_config(directory)
    return weight_files(directory)


def _class(
    checkpoint: Checkpoint, config: PreTrainedConfig, *, head: bool
) -> type[PreTrainedModel] | None:
    """Return the class of a model that its tensors alone make, None where more is needed.

    That is: code that comes with it, how values are unpacked, or a choice among classes.
    """
    has_code = checkpoint.trusted and hasattr(config, "auto_map")
    packed = checkpoint.gguf is not None or getattr(config, "quantization_config", None) is not None
    return None if has_code or packed else class_of(config, head=head)


def _source(
    checkpoint: Checkpoint,
    directory: Path,
    files: Sequence[Path],
    config: PreTrainedConfig | None,
) -> dict[str, object]:
    """Return where `from_pretrained` finds the weights, as arguments of it.

    With a config they are read rather than mapped (`flows.capture.tensors`).
    """
    if config is not None:
        tensors = read_tensors(files)
        return {"pretrained_model_name_or_path": None, "config": config, "state_dict": tensors}
    source: dict[str, object] = {"pretrained_model_name_or_path": directory}
    if checkpoint.gguf is not None:
        switch_gguf_bar()
        source["gguf_file"] = checkpoint.gguf
    return source


def _require_accelerate() -> None:
    if importlib.util.find_spec("accelerate") is None:
        raise CheckpointError(
            f"--device {SPLIT} needs accelerate, which is not installed: pip install accelerate, "
            "or name one device"
        )


def _check_complete(checkpoint: Checkpoint, missing: Iterable[str]) -> None:
    """Refuse weights that `transformers` would silently have drawn."""
    lacking = sorted(name for name in missing if _UNUSED_WEIGHTS not in name)
    if lacking:
        weights = "weight" if len(lacking) == 1 else "weights"
        raise CheckpointError(
            f"{checkpoint.source} at step {checkpoint.step} lacks {len(lacking)} {weights} of its "
            f"model, {lacking[0]} first: its weights and its config do not belong together"
        )
