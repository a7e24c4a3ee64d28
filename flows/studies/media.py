"""Pictures and sounds made from a seed, for models of which no corpus can be had offline."""

from __future__ import annotations

import io
import wave
from dataclasses import dataclass
from typing import Final

import numpy as np

from flows.added_corpus import AddedCorpus
from flows.capture.modality import AUDIO, IMAGE
from flows.item_corpora import add_items

_PICTURES: Final = 32
_SIDE: Final = 64
_SLOPES: Final = (0.5, 1.0, 1.5)
"""How fast the spectrum of a picture falls: 1 is about that of photographs."""

_SOUNDS: Final = 12
_RATE: Final = 16_000
_SECONDS: Final = 1.0
_VOICES: Final = ("tone", "chord", "noise")


@dataclass(frozen=True)
class MadeItem:
    """A picture or sound that was made.

    Attributes:
        name: Its name.
        label: What kind it is.
        content: The bytes of its file.
    """

    name: str
    label: str
    content: bytes

    def read(self) -> bytes:
        """Return the bytes of its file."""
        return self.content


def add_pictures(store: str, name: str) -> AddedCorpus:
    """Add noise whose spectrum falls like that of photographs, more or less, in three colours."""
    rng = np.random.default_rng(0)
    items = []
    for number in range(_PICTURES):
        slope = _SLOPES[number % len(_SLOPES)]
        items.append(MadeItem(f"{number:02}.png", f"slope {slope:g}", _picture(rng, slope)))
    return add_items(store, name, IMAGE, items)


def add_sounds(store: str, name: str) -> AddedCorpus:
    """Add tones, chords and noise of one second each."""
    rng = np.random.default_rng(0)
    items = []
    for number in range(_SOUNDS):
        voice = _VOICES[number % len(_VOICES)]
        items.append(MadeItem(f"{number:02}.wav", voice, _sound(rng, voice)))
    return add_items(store, name, AUDIO, items)


def _picture(rng: np.random.Generator, slope: float) -> bytes:
    from PIL import Image

    frequencies = np.fft.fftfreq(_SIDE)
    size = np.hypot(frequencies[:, None], frequencies[None, :])
    size[0, 0] = 1.0
    spectrum = np.fft.fft2(rng.normal(size=(3, _SIDE, _SIDE))) / size**slope
    pixels = np.fft.ifft2(spectrum).real
    pixels -= pixels.min(axis=(1, 2), keepdims=True)
    pixels *= 255 / pixels.max(axis=(1, 2), keepdims=True)
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8).transpose(1, 2, 0)).save(file, "PNG")
    return file.getvalue()


def _sound(rng: np.random.Generator, voice: str) -> bytes:
    time = np.arange(int(_RATE * _SECONDS)) / _RATE
    pitches = rng.uniform(110, 880, {"tone": 1, "chord": 3, "noise": 0}[voice])
    waves = [np.sin(2 * np.pi * pitch * time) for pitch in pitches]
    noise = rng.normal(size=len(time))
    values = sum(waves, start=(1.0 if voice == "noise" else 0.05) * noise)
    samples = (values / np.abs(values).max() * 30_000).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as stream:
        stream.setnchannels(1)
        stream.setsampwidth(2)
        stream.setframerate(_RATE)
        stream.writeframes(samples.tobytes())
    return file.getvalue()
