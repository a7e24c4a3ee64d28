"""Python 3.12 and later have Icechunk 2, which reads and writes the same stores.

Set ``ACTLAS_PYTHON312`` to an interpreter with the packages of ``store/`` and Icechunk 2.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PYTHON = os.environ.get("ACTLAS_PYTHON312")

SCRIPT = """
import sys
import icechunk, toy
from store.repository import Repository
from store.verify import census

assert icechunk.__version__.startswith("2."), icechunk.__version__
repository = Repository.open_or_create(sys.argv[1])
if sys.argv[2] == "create":
    toy.prepare(sys.argv[1])
else:
    toy.assert_stored(repository, 1)
for step in map(int, sys.argv[3:]):
    toy.ingest(repository, step)
    toy.assert_stored(repository, step)
assert census(repository) == []
"""


def run(*arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (HERE, HERE.parents[1])))}
    subprocess.run([PYTHON, "-c", SCRIPT, *arguments], env=environment, check=True)


@pytest.mark.skipif(PYTHON is None, reason="needs ACTLAS_PYTHON312")
def test_the_two_write_one_store_in_turn(toy, tmp_path):
    uri = str(tmp_path / "store")
    repository = toy.prepare(uri)
    toy.ingest(repository, 1)
    run(uri, "open", "2", "3")
    toy.ingest(repository, 4)
    for step in (1, 2, 3, 4):
        toy.assert_stored(repository, step)


@pytest.mark.skipif(PYTHON is None, reason="needs ACTLAS_PYTHON312")
def test_what_the_newer_creates_the_older_reads(toy, tmp_path):
    uri = str(tmp_path / "store")
    run(uri, "create", "1", "2")
    from store.repository import Repository

    assert sys.version_info < (3, 12)
    repository = Repository.open(uri)
    for step in (1, 2):
        toy.assert_stored(repository, step)
