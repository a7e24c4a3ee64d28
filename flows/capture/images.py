"""Images as a model is shown them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from flows.capture.decoding import decode_image
from flows.capture.errors import InputError
from flows.capture.items import ItemTokens, Read, item_tokens
from flows.capture.preprocessing import Settings, image_processor

if TYPE_CHECKING:
    from flows.capture.checkpoints import Checkpoint
    from flows.capture.extent import Extent
    from flows.capture.media_structure import Shapes


class Images:
    """Images of a corpus, prepared for one checkpoint.

    Args:
        checkpoint: Whose processor prepares them.
        read: Gives the bytes of an image.
        count: Number of images.

    Raises:
        CheckpointError: If the checkpoint has no image processor.
    """

    def __init__(self, checkpoint: Checkpoint, read: Read, count: int) -> None:
        self._processor, _ = image_processor(checkpoint)
        self._read, self._count = read, count
        self._shape: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return self._count

    def shapes(self) -> Shapes:
        """Return the shape of the first image's ``pixel_values`` (channel, row, column)."""
        return {name: tuple(value.shape) for name, value in self.inputs(0).items()}

    def inputs(self, number: int) -> Mapping[str, Tensor]:
        """Return ``pixel_values`` (channel, row, column) of an image.

        Raises:
            InputError: If it has another shape than the first image.
        """
        pixels = self._processor(decode_image(self._read(number)))["pixel_values"]
        assert isinstance(pixels, Tensor)
        shape = tuple(pixels[0].shape)
        self._shape = self._shape or shape
        if shape != self._shape:
            raise InputError(
                f"image {number} has the shape {shape} after preprocessing, others {self._shape}: "
                "expected one for all; let the checkpoint's processor resize and crop"
            )
        return {"pixel_values": pixels[0]}

    def tokens(self, extent: Extent | None) -> ItemTokens:
        """Return the rows that a stack makes of all images."""
        assert extent is not None
        lengths = np.full(self._count, len(extent), dtype=np.int64)
        return item_tokens(
            self,
            numbers=np.arange(self._count),
            lengths=lengths,
            positions=lengths,
            special=np.tile(np.arange(len(extent)) < extent.special, self._count),
            places={name: np.tile(one, self._count) for name, one in extent.places().items()},
        )


def image_settings(checkpoint: Checkpoint) -> Settings:
    """Return everything about the preparation of images that changes values."""
    return {"decoded": "RGB, upright by EXIF", **image_processor(checkpoint)[1]}
