"""What a model can be run on, and which of it a process uses."""

from __future__ import annotations

from typing import Final

import torch

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
