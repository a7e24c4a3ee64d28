"""Several writers of one store at once, on a disk and in an object store, and killed ones."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import multiprocessing.process
import os
import random
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import numpy as np

from benchmarks.activations import PATH, prepare, store_step, synthetic
from benchmarks.figures import Figure
from store.repository import Repository

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "store"))
import seaweedfs

SMALL = (4, 64, 256)
"""A model whose chunks of 4 KiB are small and objects of their own."""

FACTS = {"chunk_rows": 4}
WRITERS = 4


def measure(*, quick: bool) -> Iterator[list[Figure]]:
    """Measure concurrent writers, on the disk and in SeaweedFS on loopback, and kills."""
    each = 8 if quick else 60
    with tempfile.TemporaryDirectory(dir=".") as folder:
        place = Path(folder).resolve()
        yield _writers(str(place / "writers"), each=each, chunk_bytes=_bytes_of_files)
        if seaweedfs.executable() is not None:
            yield _writers_of_objects(place / "server", each=each)
        yield _kills(str(place / "kills"), number=8 if quick else 50)


def _writers_of_objects(place: Path, *, each: int) -> list[Figure]:
    place.mkdir()
    with (
        seaweedfs.serve(place) as endpoint,
        mock.patch.dict(os.environ, {**seaweedfs.KEYS, "AWS_ENDPOINT_URL": endpoint}),
    ):
        uri = f"s3://{seaweedfs.BUCKET}/writers"
        return _writers(uri, each=each, chunk_bytes=_bytes_of_objects)


def _bytes_of_files(uri: str) -> int:
    return sum(path.stat().st_size for path in Path(uri, "chunks").rglob("*") if path.is_file())


def _bytes_of_objects(uri: str) -> int:
    """Sum the objects of chunks, as the server lists them a thousand at a time."""
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    query = {"list-type": "2", "prefix": f"{prefix}/chunks/"}
    total, more = 0, True
    while more:
        address = f"{os.environ['AWS_ENDPOINT_URL']}/{bucket}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address) as answer:
            listing = ElementTree.fromstring(answer.read())
        named = {node.tag.rpartition("}")[2]: node.text for node in listing}
        sizes = (node.text for node in listing.iter() if node.tag.endswith("}Size"))
        total += sum(int(size or 0) for size in sizes)
        more = named.get("IsTruncated") == "true"
        query["continuation-token"] = named.get("NextContinuationToken") or ""
    return total


def _ingest(
    lines: multiprocessing.connection.Connection,
    environment: Mapping[str, str],
    uri: str,
    steps: list[int],
) -> None:
    os.environ.update(environment)
    repository = Repository.open(uri)
    values = synthetic(*SMALL, dtype="float32")
    for step in steps:
        store_step(repository, step, values)
        lines.send(step)


def _start(uri: str, steps: list[int]) -> tuple[multiprocessing.Process, Callable[[], list[int]]]:
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.store_writers"])
    keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_ingest, args=(theirs, keys, uri, steps))
    process.start()
    theirs.close()

    def acknowledged() -> list[int]:
        received: list[int] = []
        try:
            while True:
                received.append(ours.recv())
        except (EOFError, OSError):
            process.join()
            return received

    return process, acknowledged


def _complete(uri: str) -> tuple[list[int], int]:
    """Return the complete steps, and how many others show any value."""
    group = Repository.open(uri).read()[PATH]
    steps, complete = group["step"][:], group["complete"][:]  # type: ignore[index]
    half = sum(
        bool(np.isfinite(group["residual"][int(slot)]).any())  # type: ignore[index]
        for slot in np.flatnonzero(~complete)[:20]
    )
    return [int(step) for step in steps[complete]], half


def _writers(uri: str, *, each: int, chunk_bytes: Callable[[str], int]) -> list[Figure]:
    prepare(uri, SMALL, facts=FACTS)
    firsts = range(0, WRITERS * each, each)
    started = [_start(uri, list(range(first, first + each))) for first in firsts]
    acknowledged = [step for _, collect in started for step in collect()]
    complete, _ = _complete(uri)
    useful = sum(Repository.open(uri).read()[PATH]["stored_bytes"][:])  # type: ignore[index]
    amplification = float(chunk_bytes(uri) / useful)
    every = WRITERS * each
    lost = len(set(acknowledged) - set(complete)) + every - len(acknowledged)
    where = "on S3" if "://" in uri else "on a disk"
    return [
        Figure(f"write amplification of 4 writers {where}", amplification, "x", 1.05, "at most"),
        Figure(f"lost of {every} acknowledged commits {where}", lost, "", 0, "at most"),
    ]


def _kills(uri: str, *, number: int) -> list[Figure]:
    prepare(uri, SMALL, facts=FACTS)
    moments = random.Random(0)
    acknowledged: set[int] = set()
    visible = 0
    for first in range(0, 100 * number, 100):
        process, collect = _start(uri, list(range(first, first + 100)))
        time.sleep(moments.uniform(0.1, 0.8))
        process.kill()
        acknowledged |= set(collect())
        complete, half = _complete(uri)
        visible += half
    lost = len(acknowledged - set(complete))
    return [
        Figure(f"half-visible steps after {number} kills", visible, "", 0, "at most"),
        Figure(f"acknowledged steps lost in {number} kills", lost, "", 0, "at most"),
    ]
