"""Whether actlas can work here: versions, arithmetic, disk, settings and the store."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from flows.console import byte_size
from store.errors import StoreError, StoreNotFoundError

Verdict = Literal["good", "notice", "bad"]

LIBRARIES: Final = (
    "numpy",
    "scipy",
    "xarray",
    "zarr",
    "icechunk",
    "dask",
    "torch",
    "transformers",
    "prefect",
)
EXTRAS: Final = {
    "plots": "matplotlib",
    "explore": "bokeh",
    "export": "pyarrow",
    "images": "PIL",
    "audio": "soundfile",
    "datasets": "datasets",
    "slurm": "dask_jobqueue",
}
"""A module of each optional part, by the part's name."""

PROBE_BYTES: Final = 64 << 20
SLOW_DISK: Final = 50e6
"""Bytes a second: below this, storing activations takes longer than computing them."""

LEAST_FREE: Final = 5 << 30


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes:
        subject: What.
        verdict: Whether it is good, worth a notice, or keeps actlas from working.
        detail: What was found, and what to do if it is not good.
    """

    subject: str
    verdict: Verdict
    detail: str


def examine(uri: str, unknown: Sequence[str] = ()) -> list[Finding]:
    """Look at everything that actlas needs; nothing but a temporary file is written.

    Args:
        uri: The store, which may not exist yet.
        unknown: What is to be told of environment variables that nothing reads.
    """
    return [
        _versions(),
        _extras(),
        _processor(),
        _arithmetic(),
        _graphics(),
        _disk(uri),
        _variables(unknown),
        _store(uri),
    ]


def _versions() -> Finding:
    told = [f"actlas {_version('actlas')}", f"Python {platform.python_version()}"]
    told += [f"{name} {_version(name)}" for name in LIBRARIES]
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        return Finding("versions", "bad", f"missing: {', '.join(missing)}; install actlas again")
    return Finding("versions", "good", ", ".join(told))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


def _extras() -> Finding:
    missing = [extra for extra, module in EXTRAS.items() if find_spec(module) is None]
    if not missing:
        return Finding("optional parts", "good", f"all: {', '.join(EXTRAS)}")
    wanted = ",".join(missing)
    return Finding(
        "optional parts", "notice", f"without {wanted}: pip install 'actlas[{wanted}]' adds them"
    )


def _processor() -> Finding:
    try:
        memory = byte_size(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (OSError, ValueError):  # a name that this system does not know
        memory = "an unknown amount"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    detail = f"{platform.machine()}, {cores} cores, {memory} of memory"
    return Finding("processor", "good", f"{detail}, {platform.system()} {platform.release()}")


def _arithmetic() -> Finding:
    import numpy as np
    from threadpoolctl import threadpool_info

    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((512, 512), dtype=np.float32) for _ in range(2))
    exact = left.astype(np.float64) @ right.astype(np.float64)
    # Each element is a sum of 512 products: float32 gives it to about √512 half units.
    off = float(np.abs(left @ right - exact).max())
    libraries = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    told = ", ".join(
        f"{pool['internal_api']} {pool['version']} ({pool.get('architecture', 'unknown')}),"
        f" {pool['num_threads']} threads"
        for pool in libraries
    )
    if off > 1e-3:
        return Finding("BLAS", "bad", f"{told}: a product of matrices is off by {off:.1e}")
    return Finding("BLAS", "good", f"{told or 'unknown'}; a product of matrices is right")


def _graphics() -> Finding:
    from flows.capture.devices import accelerators

    found = accelerators()
    return Finding("GPU", "good", "; ".join(found) if found else "none that torch can use: CPU")


def _disk(uri: str) -> Finding:
    folder = _local_folder(uri)
    if folder is None:
        return Finding("disk", "good", "the store is not on a local disk")
    free = shutil.disk_usage(folder).free
    try:
        written, read = _speeds(folder)
    except OSError as error:
        return Finding("disk", "bad", f"cannot write to {folder}: {error.strerror or error}")
    detail = (
        f"writes {byte_size(round(written))}/s to the platter, reads {byte_size(round(read))}/s"
        f" from memory or disk, {byte_size(free)} free in {folder}"
    )
    if free < LEAST_FREE:
        return Finding("disk", "notice", f"{detail}: little room for activations")
    if written < SLOW_DISK:
        return Finding("disk", "notice", f"{detail}: a slow disk, storing will set the pace")
    return Finding("disk", "good", detail)


def _local_folder(uri: str) -> Path | None:
    """Return the nearest folder that exists where a store is or would be."""
    if "://" in uri:
        return None
    folder = Path(uri).expanduser().resolve()
    while not folder.is_dir():
        folder = folder.parent
    return folder


def _speeds(folder: Path) -> tuple[float, float]:
    """Return bytes a second of writing through to the disk, and of reading back."""
    from store.durable import flush_to_disk

    content = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=folder) as file:

        def write() -> None:
            for _ in range(PROBE_BYTES >> 20):
                file.write(content)
            file.flush()
            flush_to_disk(file.fileno())

        def read() -> None:
            file.seek(0)
            while file.read(1 << 20):
                pass

        return PROBE_BYTES / _seconds(write), PROBE_BYTES / _seconds(read)


def _seconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return max(time.perf_counter() - started, 1e-9)


def _variables(unknown: Sequence[str]) -> Finding:
    found = sorted(name for name in os.environ if name.startswith("ACTLAS_"))
    told = ", ".join(f"{name}={os.environ[name]}" for name in found)
    if unknown:
        return Finding("environment", "notice", "; ".join((told, *unknown)))
    return Finding("environment", "good", told or "no ACTLAS_ variable is set")


def _store(uri: str) -> Finding:
    from store.catalogue import catalogue
    from store.repository import Repository

    try:
        held = catalogue(Repository.open(uri, read_only=True))
    except StoreNotFoundError as error:
        if "://" not in uri and Path(uri).expanduser().exists():
            return Finding("store", "bad", str(error))
        return Finding("store", "notice", f"none at {uri} yet; `actlas corpus add` makes one")
    except StoreError as error:
        return Finding("store", "bad", str(error))
    steps = [step for model in held for step in model.steps]
    whole = sum(step.complete for step in steps)
    size = byte_size(sum(model.stored_bytes for model in held))
    detail = f"{uri}: models: {len(held)}, steps: {whole}, {size}"
    open_slots = len(steps) - whole
    if open_slots:
        return Finding(
            "store",
            "notice",
            f"{detail}; {open_slots} steps are being written, or were begun by a run that died:"
            " ingesting them again takes them over",
        )
    return Finding("store", "good", f"{detail}; `actlas verify` reads every chunk of it")
