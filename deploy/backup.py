#!/usr/bin/env python3
"""Copy a store on a disk to another place, while it is read and written.

    deploy/backup.py /stores/activations /backup/activations

The target is a store itself: restoring is opening it, or the same command the other way round.
A second run copies only what is new. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

IMMUTABLE = ("snapshots", "manifests", "transactions", "chunks")
"""Folders of objects that are written once and never change."""


def read_pointers(store: Path) -> dict[Path, bytes]:
    """Read what names the newest state: branches, tags and the files beside them.

    Raises:
        ValueError: If the folder holds no store.
    """
    paths = [path for path in (*store.glob("*"), *store.glob("refs/*/*")) if path.is_file()]
    if not (store / "snapshots").is_dir() or not paths:
        raise ValueError(f"{store} is not a store: expected a folder with refs/ and snapshots/")
    return {path.relative_to(store): path.read_bytes() for path in paths}


def copy_objects(store: Path, target: Path) -> tuple[int, int]:
    """Copy the objects that the target lacks; return how many, and their bytes."""
    copied, size = 0, 0
    for path in (path for name in IMMUTABLE for path in (store / name).rglob("*")):
        destination = target / path.relative_to(store)
        if path.is_dir() or (destination.exists() and _size(destination) == _size(path)):
            continue
        destination.parent.mkdir(parents=True, exist_ok=True)
        partial = destination.with_name(destination.name + ".partial")
        shutil.copyfile(path, partial)
        partial.replace(destination)
        copied, size = copied + 1, size + _size(destination)
    return copied, size


def publish(pointers: dict[Path, bytes], target: Path) -> None:
    """Move the target on to a state whose objects it holds already."""
    # What a pointer leads to must be on the disk before the pointer is.
    os.sync()
    for name, content in pointers.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        partial.write_bytes(content)
        partial.replace(path)
    for path in target.glob("refs/*/*"):
        if path.relative_to(target) not in pointers:
            path.unlink()
    os.sync()


def back_up(store: Path, target: Path) -> tuple[int, int]:
    """Make the target a copy of the store; return how many objects were copied, and their bytes.

    The pointers are read first and written last. In between, writers only add objects, so that
    all the pointers lead to has been copied. Garbage collection removes objects: it must not run.
    """
    pointers = read_pointers(store)
    copied = copy_objects(store, target)
    publish(pointers, target)
    return copied


def _size(path: Path) -> int:
    return path.stat().st_size


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("store", type=Path, help="folder of the store")
    parser.add_argument("target", type=Path, help="folder of the copy, made when it is missing")
    arguments = parser.parse_args()
    try:
        objects, size = back_up(arguments.store, arguments.target)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"backup.py: {error}\n")
        return 1
    sys.stdout.write(f"{arguments.target}: {objects} new objects, {size / 1e6:.1f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
