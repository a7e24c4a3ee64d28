"""A store in memory or on a disk, and a toy model to fill it with."""

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync

import store

_NUMBERS = itertools.count()
_TOY = Path(__file__).with_name("toy.py")


@pytest.fixture(scope="session")
def toy():
    """The module toy.py."""
    specification = importlib.util.spec_from_file_location("toy", _TOY)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def memory_uri():
    """The URI of a new place in this process's memory."""
    return f"memory://test-{next(_NUMBERS)}"


@pytest.fixture(params=["memory", "disk"])
def uri(request, memory_uri, tmp_path):
    """The URI of a place for a store: in memory, then on the disk."""
    return memory_uri if request.param == "memory" else str(tmp_path / "store")


@pytest.fixture
def start_toy():
    """Start toy.py as a process of its own: ``start_toy(uri, variant, *steps)``."""
    started = []

    def start(*arguments, **environment):
        source = str(Path(store.__file__).parents[1])
        process = subprocess.Popen(
            [sys.executable, str(_TOY), *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": source, **environment},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def disk_repository(toy, tmp_path, monkeypatch):
    """The toy model on a disk, every chunk an object of its own."""
    monkeypatch.setattr("store.configuration.INLINE_BYTES", 0)
    return toy.prepare(str(tmp_path / "store"))


@pytest.fixture
def chunk_file():
    """Find the object of a chunk: ``chunk_file(repository, key)``, with the key Zarr gives it."""

    def find(repository, key):
        store = repository.read().store
        encoded = sync(store.get(key, default_buffer_prototype())).to_bytes()
        chunks = Path(repository.uri) / "chunks"
        (path,) = (p for p in chunks.rglob("*") if p.is_file() and p.read_bytes() == encoded)
        return path

    return find
