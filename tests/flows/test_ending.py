from __future__ import annotations

import subprocess
import sys

import pytest

# Not before finalization, this object's destructor would make the exit code 70.
PROGRAM = """
import atexit, os, sys
from flows.ending import ended_before_finalization

class Finalized:
    def __del__(self):
        os._exit(70)

with ended_before_finalization():
    sys.finalized = Finalized()
    atexit.register(lambda: print("at exit"))
    print("done")
    {ending}
"""


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("pass", 0),
        ("sys.exit()", 0),
        ("sys.exit(2)", 2),
        ("sys.exit('a message')", 1),
        ("raise RuntimeError('a defect')", 1),
    ],
)
def test_a_process_ends_with_its_code_and_all_its_output(ending: str, code: int) -> None:
    program = PROGRAM.format(ending=ending)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == "done\nat exit\n"
    assert ("a message" in done.stderr) == ("a message" in ending)
    assert ("RuntimeError: a defect" in done.stderr) == ("a defect" in ending)
