"""What a model can be run on."""

from __future__ import annotations

import torch


def accelerators() -> list[str]:
    """Return the devices that torch can use besides the CPU, each with its name and memory."""
    found = []
    for number in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(number)
        found.append(f"cuda:{number} {facts.name}, {facts.total_memory / 2**30:.0f} GiB")
    if torch.backends.mps.is_available():
        found.append("mps, which shares the memory of the processor")
    return found
