"""Checkpoints one after another, the next prepared by a thread meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from flows import sweep
from flows.capture.checkpoints import find_checkpoints
from flows.running import CaptureOptions

# As `transformers` does: a module that puts another one in its place when it is imported whole.
SLOW_LIBRARY = """
import sys, time, types
time.sleep(0.5)
whole = types.ModuleType(__name__)
whole.AutoConfig = whole.AutoTokenizer = whole.PreTrainedModel = "whole"
sys.modules[__name__] = whole
"""
TWO_THREADS = """
import threading
from flows.capture.library import import_library
import_library()
def ask():
    from transformers import AutoConfig
    print(AutoConfig)
threads = [threading.Thread(target=ask) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


@pytest.mark.parametrize("imported_first", [True, False])
def test_a_library_that_replaces_itself_is_imported_before_threads_ask(
    tmp_path: Path, imported_first: bool
) -> None:
    (tmp_path / "transformers.py").write_text(SLOW_LIBRARY)
    code = TWO_THREADS if imported_first else TWO_THREADS.replace("import_library()\n", "")
    program = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    # What would happen without it, so that the test shows that it is needed.
    assert done.stdout.split().count("whole") == (2 if imported_first else 1), done.stderr


def test_a_sweep_imports_it_before_its_thread_begins(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    here = threading.current_thread()
    monkeypatch.setattr(
        sweep, "import_library", lambda: seen.append(f"import {threading.current_thread() is here}")
    )
    monkeypatch.setattr(sweep, "_prepare", lambda *_: seen.append("prepare"))
    monkeypatch.setattr(sweep, "_outcome", lambda *_: sweep.Outcome("one", None))
    checkpoints = find_checkpoints(str(run_folder))
    wanted = sweep.Sweep("store", checkpoints, "cats", CaptureOptions())
    assert len(list(sweep.ingest_sweep(wanted, nullcontext))) == len(checkpoints)
    assert seen == ["import True", *["prepare"] * (len(checkpoints) - 1)]
