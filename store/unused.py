"""Taking back what was made for a step that was never stored: groups, a corpus, a store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
import zarr

from .arrays import member
from .errors import StoreError
from .location import locate
from .repository import Repository
from .schema import METRICS_GROUP, STACKS, STEP
from .slots import FREE


def remove_unused_model(repository: Repository, path: str) -> bool:
    """Remove the groups of a model that hold no step, reserved or complete, and no metrics.

    An ingest that fails leaves them behind; they would be listed, and would hold the model to the
    tokens of that attempt.

    Args:
        repository: The store.
        path: Path of the model, ``CORPUS/MODEL``; each of its stacks is looked at by itself.

    Returns:
        Whether anything was removed.
    """

    def change(root: zarr.Group) -> bool:
        unused = [
            name
            for name in (*(f"{path}/{stack}" for stack in STACKS), path)
            if _remove_if_unused(root, name)
        ]
        return bool(unused)

    return repository.update(f"remove {path}, of which nothing was stored", change)


def remove_unused_corpus(repository: Repository, corpus: str) -> bool:
    """Remove a corpus that was created for a model, when no model is over it after all.

    Args:
        repository: The store.
        corpus: Name of the corpus.

    Returns:
        Whether it was removed.
    """

    def change(root: zarr.Group) -> bool:
        group = root.get(corpus)
        if not isinstance(group, zarr.Group) or any(True for _ in group.group_keys()):
            return False
        del root[corpus]
        return True

    return repository.update(f"remove {corpus}, over which nothing was stored", change)


@contextmanager
def opened_for(uri: str | os.PathLike[str]) -> Iterator[Repository]:
    """Open a store, or create it for what follows.

    One that was created on a disk is taken back where that fails, unless it holds something.
    """
    directory = locate(uri).directory
    new = directory is not None and not (directory.is_dir() and any(directory.iterdir()))
    repository = Repository.open_or_create(uri)
    try:
        yield repository
    except BaseException:
        if new and directory is not None:
            with suppress(StoreError, OSError), repository.lock():
                if not any(True for _ in repository.read().group_keys()):
                    shutil.rmtree(directory)
        raise


def _remove_if_unused(root: zarr.Group, path: str) -> bool:
    group = root.get(path)
    if not isinstance(group, zarr.Group):
        return False
    if any(name in group for name in (*STACKS, METRICS_GROUP)):
        return False
    if STEP in group and np.any(np.asarray(member(group, STEP)[:]) != FREE):
        return False
    del root[path]
    return True
