"""From the files of images and sounds to pixels and samples, without a model."""

from __future__ import annotations

import io
import math
import re
from types import ModuleType
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from flows.capture.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image


IMAGE_FORMATS: Final = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""What is decoded, whatever a file is called: raster formats, for which no other program runs."""

IMAGE_SUFFIXES: Final = frozenset(
    {
        *(".bmp", ".gif", ".jfif", ".jp2", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm"),
        *(".ppm", ".tif", ".tiff", ".webp"),
    }
)

SOUND_SUFFIXES: Final = frozenset(
    {
        *(".aif", ".aiff", ".au", ".caf", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".rf64"),
        *(".w64", ".wav"),
    }
)


def decode_image(content: bytes) -> Image:
    """Decode an image file.

    Raises:
        InputError: If it is no image, or a damaged one.
    """
    _pillow()
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(content), formats=IMAGE_FORMATS) as image:
            return ImageOps.exif_transpose(image).convert("RGB")
    except Exception as error:
        raise InputError(f"it is no readable image: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return what a decoder says, without the address of the bytes in memory."""
    return re.sub(r" ?<_io\.BytesIO[^>]*>", "", str(error)).rstrip(".")


def decode_sound(content: bytes) -> tuple[NDArray[np.float32], int]:
    """Decode a sound file to the mean of its channels (sample,), and its rate.

    Raises:
        InputError: If it is no sound, a damaged one, or an empty one.
    """
    soundfile = _soundfile()
    try:
        samples, rate = soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)
    except Exception as error:
        raise InputError(f"it is no readable sound: {_reason(error)}") from error
    if not len(samples):
        raise InputError("it holds no samples")
    if not np.isfinite(samples).all():
        raise InputError("it holds samples that are NaN or infinite")
    return samples.mean(axis=1, dtype=np.float32), int(rate)


def sound_length(content: bytes) -> tuple[int, int]:
    """Return the number of samples of a sound file, and its rate."""
    found = _soundfile().info(io.BytesIO(content))
    return int(found.frames), int(found.samplerate)


def resampled(samples: NDArray[np.float32], rate: int, wanted: int) -> NDArray[np.float32]:
    """Return samples (sample,) at another rate, by polyphase filtering."""
    if rate == wanted:
        return samples
    # Loaded where it is needed: it takes longer than most commands do.
    from scipy.signal import resample_poly

    divisor = math.gcd(rate, wanted)
    changed: NDArray[np.float32] = resample_poly(samples, wanted // divisor, rate // divisor)
    return changed.astype(np.float32)


def _soundfile() -> ModuleType:
    try:
        import soundfile
    except ImportError as error:
        raise InputError("sounds need soundfile: pip install 'actlas[audio]'") from error
    module: ModuleType = soundfile
    return module


def _pillow() -> None:
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise InputError("images need Pillow: pip install 'actlas[images]'") from error
