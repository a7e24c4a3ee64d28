"""Sounds as a model is shown them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from flows.capture.configs import load_config
from flows.capture.decoding import decode_sound, resampled, sound_length
from flows.capture.errors import InputError
from flows.capture.items import ItemTokens, Read, item_tokens
from flows.capture.preprocessing import Settings, feature_extractor

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from flows.capture.checkpoints import Checkpoint
    from flows.capture.extent import Extent
    from flows.capture.media_structure import Shapes

_PROBE_SECONDS: Final = 0.5


@dataclass(frozen=True)
class Framing:
    """Which samples the positions of a model are made from.

    Attributes:
        window: Samples that a position sees before attention.
        hop: Samples from one position to the next.
        positions: How many are computed for a sound of any length; None if as many as it has.
    """

    window: int
    hop: int
    positions: int | None

    def rows(self, samples: int) -> int:
        """Return the number of positions that a sound itself fills."""
        if self.positions is not None:
            return min(self.positions, math.ceil(samples / self.hop))
        return max(0, (samples - self.window) // self.hop + 1)


def framing(config: PreTrainedConfig, settings: Settings) -> Framing:
    """Return the framing of a model that convolves samples, or whole 30 s of mel frames.

    Raises:
        InputError: If the model does neither.
    """
    if hasattr(config, "conv_kernel") and hasattr(config, "conv_stride"):
        window, hop = 1, 1
        for kernel, stride in zip(config.conv_kernel, config.conv_stride, strict=True):
            window += (kernel - 1) * hop
            hop *= stride
        return Framing(window, hop, None)
    if hasattr(config, "max_source_positions") and "hop_length" in settings:
        hop = 2 * int(str(settings["hop_length"]))
        return Framing(hop, hop, int(config.max_source_positions))
    raise InputError(
        f"how a {config.model_type} turns samples into positions is not known: expected "
        "conv_kernel and conv_stride in its config, as in wav2vec 2.0, or max_source_positions, as "
        "in Whisper"
    )


class Sounds:
    """Sounds of a corpus, prepared for one checkpoint.

    Args:
        checkpoint: Whose feature extractor prepares them.
        read: Gives the bytes of a sound.
        count: Number of sounds.

    Raises:
        CheckpointError: If the checkpoint has no feature extractor.
        InputError: If it is not known how the model turns samples into positions.
    """

    def __init__(self, checkpoint: Checkpoint, read: Read, count: int) -> None:
        self._extract, settings = feature_extractor(checkpoint)
        self._rate = int(str(settings["sampling_rate"]))
        self._framing = framing(load_config(checkpoint), settings)
        self._read, self._count = read, count

    def __len__(self) -> int:
        return self._count

    def shapes(self) -> Shapes:
        """Return the shape of what half a second gives."""
        noise = np.zeros(max(int(_PROBE_SECONDS * self._rate), self._framing.window), np.float32)
        return {name: tuple(value.shape) for name, value in self._features(noise).items()}

    def inputs(self, number: int) -> Mapping[str, Tensor]:
        """Return ``input_values`` (sample,) or ``input_features`` (bin, frame) of a sound."""
        return self._features(resampled(*decode_sound(self._read(number)), self._rate))

    def tokens(self, extent: Extent | None) -> ItemTokens:
        """Return the rows that the encoder makes of all sounds.

        Raises:
            InputError: If a sound is too short for one row.
        """
        assert extent is None
        own = self._framing
        samples = np.array([self._samples(number) for number in range(self._count)])
        lengths = np.array([own.rows(int(count)) for count in samples], dtype=np.int64)
        if not lengths.all():
            short = int(np.flatnonzero(lengths == 0)[0])
            raise InputError(
                f"sound {short} has {samples[short]} samples at {self._rate} Hz: the model needs "
                f"{own.window} for one position"
            )
        frame = np.concatenate([np.arange(count) for count in lengths])
        start = frame * own.hop
        stop = np.minimum(start + own.window, np.repeat(samples, lengths))
        computed = lengths if own.positions is None else np.full_like(lengths, own.positions)
        cut = 0 if own.positions is None else int((samples > own.positions * own.hop).sum())
        return item_tokens(
            self,
            numbers=np.arange(self._count),
            lengths=lengths,
            positions=computed,
            special=np.zeros(len(frame), dtype=np.bool_),
            places={"sample_start": start, "sample_end": stop},
            truncated=cut,
        )

    def _samples(self, number: int) -> int:
        """Return how many samples a sound has at the model's rate, without decoding it."""
        frames, rate = sound_length(self._read(number))
        divisor = math.gcd(rate, self._rate)
        return -(-frames * (self._rate // divisor) // (rate // divisor))

    def _features(self, samples: NDArray[np.float32]) -> dict[str, Tensor]:
        features = {
            name: value[0]
            for name, value in self._extract(samples).items()
            if name in ("input_values", "input_features") and isinstance(value, Tensor)
        }
        assert features
        return features


def sound_settings(checkpoint: Checkpoint) -> Settings:
    """Return everything about the preparation of sounds that changes values."""
    decoded = "mean of channels, scipy.signal.resample_poly where the rate differs"
    return {"decoded": decoded, **feature_extractor(checkpoint)[1]}
