"""What of a process is in memory, by the kernel's own account.

`ru_maxrss` of a process begins with that of the one that started it, so that it tells nothing
about a small process of a large parent; these figures begin with the program.
"""

from __future__ import annotations

from pathlib import Path

_STATUS = Path("/proc/self/status")
_FORGET_THE_PEAK = "5"


def resident() -> int:
    """Return the bytes of this process that are in memory now."""
    return _read("VmRSS:")


def peak() -> int:
    """Return the most bytes that were since it began, or since `forget_peak`."""
    return _read("VmHWM:")


def forget_peak() -> None:
    """Let the peak be what is in memory now."""
    Path("/proc/self/clear_refs").write_text(_FORGET_THE_PEAK)


def _read(field: str) -> int:
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024
