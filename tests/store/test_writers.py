"""Which writers are known to be dead: those that gave up here, or whose process has ended."""

import os
import subprocess
import sys

import pytest

from store.writers import disown, is_dead, new_writer

NEW = "from store.writers import new_writer; print(new_writer())"


def test_a_writer_lives_until_it_gives_up():
    writer = new_writer()
    assert writer != new_writer()
    assert not is_dead(writer)
    disown(writer)
    assert is_dead(writer)


def test_a_writer_is_dead_once_its_process_has_ended():
    ended = subprocess.run([sys.executable, "-c", NEW], capture_output=True, text=True, check=True)
    assert is_dead(ended.stdout.strip())


# Names are given, for the number of a process differs between those that share out the tests.
@pytest.mark.parametrize(
    "writer",
    ["", "elsewhere/4026531836:1:ab", f"elsewhere:{os.getpid()}:ab", "of another kind"],
    ids=["none", "elsewhere", "elsewhere, of a number that is in use here", "of another kind"],
)
def test_of_a_writer_elsewhere_nothing_is_known(writer):
    assert not is_dead(writer)
