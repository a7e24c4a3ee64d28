"""What kinds of input a model takes, as far as its config tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flows.capture.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

TEXT: Final = "text"
IMAGE: Final = "image"
AUDIO: Final = "audio"

_PARTS: Final = {"text_config": TEXT, "vision_config": IMAGE, "audio_config": AUDIO}
"""Configs of the parts of a model that takes several kinds."""

_SIGNS: Final = {"num_mel_bins": AUDIO, "feat_extract_norm": AUDIO, "num_channels": IMAGE}
"""Entries that only a config of a model of that kind has, the surest first."""

_OPTIONS: Final = {TEXT: "--text", IMAGE: "--images", AUDIO: "--audio"}


def modalities(config: PreTrainedConfig) -> frozenset[str]:
    """Return the kinds of input that a model takes."""
    parts = {kind for name, kind in _PARTS.items() if name in config.sub_configs}
    if parts:
        return frozenset(parts)
    return frozenset([next((kind for name, kind in _SIGNS.items() if hasattr(config, name)), TEXT)])


def require_modality(config: PreTrainedConfig, source: str, wanted: str, corpus: str) -> None:
    """Refuse a corpus that a model cannot be shown.

    Args:
        config: The model's config.
        source: What the user named as the model.
        wanted: Kind of input that the corpus holds.
        corpus: Name of the corpus.

    Raises:
        InputError: If the model takes other kinds of input.
    """
    taken = modalities(config)
    if wanted not in taken:
        kinds = " or ".join(sorted(taken))
        options = " or ".join(_OPTIONS[kind] for kind in sorted(taken))
        raise InputError(
            f"{source} is a {config.model_type}, which takes {kinds}, and corpus {corpus!r} holds"
            f" {wanted}: choose another model, or a corpus added with {options}"
        )
