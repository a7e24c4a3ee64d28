"""How a checkpoint wants its images and sounds prepared: its own processor and its settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from flows.capture.configs import load_config
from flows.capture.errors import CheckpointError
from flows.capture.fetching import with_metadata
from flows.capture.integrity import PROCESSOR_FILES
from flows.capture.quiet import first_line, quiet

if TYPE_CHECKING:
    from PIL.Image import Image
    from transformers import PreTrainedConfig
    from transformers.feature_extraction_sequence_utils import SequenceFeatureExtractor
    from transformers.image_processing_utils import BaseImageProcessor

    from flows.capture.checkpoints import Checkpoint

Settings: TypeAlias = "dict[str, JSON]"
JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

_ImageFamily: TypeAlias = "Callable[..., BaseImageProcessor]"
_SoundFamily: TypeAlias = "Callable[..., SequenceFeatureExtractor]"

_USUAL_SIZE: Final = 224
"""Pixels of a side, for an untrained model whose config does not tell."""

_PROCESSED_LIKE: Final = {
    "clip_vision_model": "clip",
    "dinov2_with_registers": "dinov2",
    "siglip_vision_model": "siglip",
}
"""Model types whose images are prepared like those of another one, which alone is listed."""

_WHISPER_STRIDE: Final = 2
"""Mel frames of a position of Whisper's encoder."""


def image_processor(
    checkpoint: Checkpoint,
) -> tuple[Callable[[Image], Mapping[str, object]], Settings]:
    """Return what prepares an image for a checkpoint, and its settings.

    It computes with Pillow, whatever else is installed, so that values do not depend on that.

    Raises:
        CheckpointError: If the checkpoint has no processor, or an unknown one.
    """
    from transformers import AutoImageProcessor

    config = load_config(checkpoint)
    directory = _processor_folder(checkpoint)
    with quiet():
        try:
            processor: BaseImageProcessor = (
                _default_image_processor(config)
                if directory is None
                else AutoImageProcessor.from_pretrained(
                    directory,
                    backend="pil",
                    trust_remote_code=checkpoint.trusted,
                    local_files_only=True,
                )
            )
        except Exception as error:
            raise _unusable(checkpoint, "image processor", error) from error
    settings = _plain(processor.to_dict())
    return lambda image: processor(images=image, return_tensors="pt"), settings


def feature_extractor(
    checkpoint: Checkpoint,
) -> tuple[Callable[[NDArray[np.float32]], Mapping[str, object]], Settings]:
    """Return what prepares one channel of samples for a checkpoint, and its settings.

    Raises:
        CheckpointError: If the checkpoint has no feature extractor, or an unknown one.
    """
    from transformers import AutoFeatureExtractor

    config = load_config(checkpoint)
    directory = _processor_folder(checkpoint)
    with quiet():
        try:
            extractor: SequenceFeatureExtractor = (
                _default_feature_extractor(config)
                if directory is None
                else AutoFeatureExtractor.from_pretrained(
                    directory, trust_remote_code=checkpoint.trusted, local_files_only=True
                )
            )
        except Exception as error:
            raise _unusable(checkpoint, "feature extractor", error) from error
    settings = _plain(extractor.to_dict())
    rate = extractor.sampling_rate
    extract = cast("Callable[..., Mapping[str, object]]", extractor)
    return lambda samples: extract(samples, sampling_rate=rate, return_tensors="pt"), settings


def _processor_folder(checkpoint: Checkpoint) -> Path | None:
    """Return the folder of a checkpoint's processor, None for an untrained model without one."""
    directory = with_metadata(checkpoint).directory
    if directory is not None and any((directory / name).is_file() for name in PROCESSOR_FILES):
        return directory
    if checkpoint.random is not None:
        return None
    raise CheckpointError(
        f"{checkpoint.source} does not say how images or sounds are prepared: expected "
        f"{' or '.join(PROCESSOR_FILES)} in {directory}; copy it there"
    )


def _default_image_processor(config: PreTrainedConfig) -> BaseImageProcessor:
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING

    kind = type(CONFIG_MAPPING[_PROCESSED_LIKE.get(config.model_type, config.model_type)]())
    known = cast("Mapping[type, Mapping[str, _ImageFamily]]", IMAGE_PROCESSOR_MAPPING)
    family = known[kind]["pil"]
    wanted = getattr(getattr(config, "vision_config", config), "image_size", None) or _USUAL_SIZE
    height, width = (wanted, wanted) if isinstance(wanted, int) else wanted
    sizes = {}
    for name in ("size", "crop_size"):
        usual = getattr(family, name, None)
        if usual is not None:
            whole = {"height": height, "width": width}
            sizes[name] = whole if "height" in usual else {"shortest_edge": min(height, width)}
    return family(**sizes)


def _default_feature_extractor(config: PreTrainedConfig) -> SequenceFeatureExtractor:
    from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING

    known = cast("Mapping[type, _SoundFamily]", FEATURE_EXTRACTOR_MAPPING)
    family = known[type(config)]
    usual = family()
    if not hasattr(config, "num_mel_bins") or not hasattr(config, "max_source_positions"):
        return family(feature_size=1, do_normalize=True)
    frames = config.max_source_positions * _WHISPER_STRIDE
    seconds = frames * int(usual.to_dict()["hop_length"]) / usual.sampling_rate
    if seconds != int(seconds):
        raise ValueError(
            f"{config.max_source_positions} positions are {seconds} s, no whole number"
        )
    return family(feature_size=config.num_mel_bins, chunk_length=int(seconds))


def _unusable(checkpoint: Checkpoint, what: str, error: Exception) -> CheckpointError:
    if isinstance(error, KeyError):
        return CheckpointError(
            f"{checkpoint.source} has no {what} that transformers knows for its model type: "
            f"expected one in {PROCESSOR_FILES[0]} beside its config"
        )
    return CheckpointError(f"the {what} of {checkpoint.source} cannot be used: {first_line(error)}")


def _plain(settings: Mapping[str, object]) -> Settings:
    """Return settings as JSON knows them; tables that follow from the others are left out."""
    kept = {name: value for name, value in settings.items() if not isinstance(value, np.ndarray)}
    plain: Settings = json.loads(json.dumps(kept, sort_keys=True, default=str))
    return plain
