"""What a model can be run on, and which of it a process uses."""

from __future__ import annotations

from typing import Final

import torch

from flows.capture.errors import UnknownDeviceError

AUTO: Final = "auto"
SPLIT: Final = "split"
"""Spread over all devices there are, for a model that fits none of them."""


def accelerators() -> list[str]:
    """Return the devices that torch can use besides the CPU, each with its name and memory."""
    found = []
    for number in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(number)
        found.append(f"cuda:{number} {facts.name}, {facts.total_memory / 2**30:.0f} GiB")
    if torch.backends.mps.is_available():
        found.append("mps, which shares the memory of the processor")
    return found


def nth_device(device: str, number: int) -> str:
    """Return the device of one of several processes: a GPU each, in turn, where there are any.

    Args:
        device: What was asked for; only ``auto`` and ``cuda`` leave a choice.
        number: Number of the process, from 0.
    """
    if device not in (AUTO, "cuda") or not torch.cuda.is_available():
        return device
    return f"cuda:{number % torch.cuda.device_count()}"


def chosen_device(device: str) -> torch.device:
    """Return a device that can be used, for ``auto`` a GPU if there is one.

    Raises:
        UnknownDeviceError: If torch does not know it, or this machine has none of it.
    """
    if device == AUTO:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise UnknownDeviceError(_no_device(device)) from None
    usable = {
        "cuda": torch.cuda.is_available() and (chosen.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not usable.get(chosen.type, True):
        raise UnknownDeviceError(_no_device(device))
    return chosen


def _no_device(device: str) -> str:
    there = ["cpu", *(found.split()[0].rstrip(",") for found in accelerators())]
    return f"there is no device {device!r} here: expected auto, split, or one of {', '.join(there)}"


def dtype_named(name: str | None) -> torch.dtype | None:
    """Return the dtype of a name such as ``bfloat16``, None for None."""
    if name is None:
        return None
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def share_threads(threads: int) -> None:
    """Let torch use so many threads of the CPU in this process."""
    torch.set_num_threads(threads)
