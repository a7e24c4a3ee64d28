"""Each benchmark that the documents name runs to its end and prints its figures, on very little.

Sizes are made small, and what has a process of its own where it is timed is called in this one:
starting them would take most of the time. Whether a bar holds is no question here.
"""

from __future__ import annotations

import importlib
import io
import json
import re
import shlex
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from flows.cli import actlas

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from documents import pieces_of

pytestmark = [pytest.mark.slow(minutes=0.5), pytest.mark.filterwarnings("default")]

COMMANDS = [piece.text for piece in pieces_of(__file__)]
BERT = "random:bert:num_hidden_layers=2,hidden_size=16,num_attention_heads=2,intermediate_size=16,"
BERT += "vocab_size=30522"
FAMILIES = {
    "encoder": "bert:num_hidden_layers=2,hidden_size=16,num_attention_heads=2,vocab_size=30522",
    "decoder": "gpt2:n_layer=2,n_embd=16,n_head=2,vocab_size=30522",
}
ROW = re.compile(r"^\S.{43} +\S+ ", re.MULTILINE)

Patch = pytest.MonkeyPatch


def of(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.{name}")


def with_less(patch: Patch, module: ModuleType, name: str, **less: object) -> None:
    """Have a function be called with other sizes than it is."""
    patch.setattr(module, name, _overruled(getattr(module, name), less))


def _overruled(function: Callable, less: dict[str, object]) -> Callable:
    def called(*arguments: object, **chosen: object) -> object:
        return function(*arguments, **{**chosen, **less})

    return called


class OneThread(ThreadPoolExecutor):
    """Stands for a pool of processes."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(1)


def little_store(patch: Patch) -> None:
    speed, transactions, opening, writers = map(
        of, ("store_speed", "store_transactions", "store_open", "store_writers")
    )
    synthetic = speed.synthetic
    for module in (speed, of("store_floor")):
        patch.setattr(module, "synthetic", lambda *_, dtype: synthetic(2, 64, 64, dtype=dtype))
    patch.setattr(speed, "TOKENS_READ", 2)
    rounds = speed._rounds
    patch.setattr(speed, "_rounds", lambda values, _: rounds(values, 1))
    patch.setattr(transactions, "SHAPE", (2, 8, 64))
    with_less(patch, transactions, "_commits", steps=10)
    fill = opening.fill_blank
    patch.setattr(opening, "fill_blank", lambda place, model, *_: fill(place, model, 2, 2))
    patch.setattr(opening, "OPENINGS", 1)
    once = opening.open_in_new_process
    opened: list[tuple[float, float]] = []

    def open_once(place: Path) -> tuple[float, float]:
        if not opened:
            opened.append(once(place))
        return opened[0]

    patch.setattr(opening, "open_in_new_process", open_once)
    patch.setattr(writers, "WRITERS", 1)
    with_less(patch, writers, "_writers", each=2)
    with_less(patch, writers, "_kills", number=1)
    patch.setattr(writers.seaweedfs, "executable", lambda: None)


def little_plan(patch: Patch) -> None:
    plan = of("plan")

    def run(*arguments: str) -> tuple[object, float]:
        started = time.perf_counter()
        done = CliRunner().invoke(actlas, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout), time.perf_counter() - started

    patch.setattr(plan, "_actlas", run)
    patch.setattr(plan, "DECODER", "random:gpt2:n_layer=2,n_embd=16,n_head=2,vocab_size=8192")
    ratios = plan._ratios
    patch.setattr(plan, "_ratios", lambda model, _: ratios(model, 3))


def little_capture(patch: Patch) -> None:
    contenders, capture = of("capture_contenders"), of("capture")
    patch.setattr(contenders, "MODEL", BERT)
    patch.setattr(capture, "FAMILIES", FAMILIES)
    text = contenders.text
    patch.setattr(contenders, "text", lambda _: text(6))
    patch.setattr(
        capture, "_memory", lambda n, everywhere: said(contenders.main, n, everywhere=everywhere)
    )


def said(work: Callable, *arguments: object, **chosen: object) -> list:
    """Return what a function writes to standard output, as JSON."""
    with redirect_stdout(io.StringIO()) as told:
        work(*arguments, **chosen)
    return json.loads(told.getvalue())


def in_process(script: Path, contender: str, data: Path, *_: object, **__: object) -> object:
    """Run a contender here; None where it is not installed."""
    try:
        return of("processes").Run(*said(of(script.stem).main, contender, str(data)))
    except ModuleNotFoundError:
        return None


def little_analysis(patch: Patch) -> None:
    little_capture(patch)
    moments, neighbors, out, graph = map(of, ("moments", "neighbors", "out_of_core", "graph"))
    for module in (moments, neighbors):
        patch.setattr(module, "run", in_process)
        patch.setattr(module, "WIDTH", 24)
    rows = moments.activations
    patch.setattr(moments, "activations", lambda *_, **__: rows(600, width=24))
    with_less(patch, neighbors, "_once", n=100)
    for variable, value in out.MALLOC.items():
        patch.setenv(variable, value)  # it sets them itself, and would leave them

    class Here:
        def run(self, work: Callable, *arguments: object) -> dict[str, object]:
            return {"here": 0 if work is out._spilled else work(*arguments)}

    patch.setattr(out, "_cluster", lambda _: nullcontext((Here(), out.THREADS)))
    for name, size in (("WIDTH", 32), ("LAYERS", 2), ("WORKERS", 1)):
        patch.setattr(out, name, size)
    prepare, values = out.prepare, out.activations
    few = 1024
    patch.setattr(out, "prepare", lambda at, width, _, *m, **o: prepare(at, width, few, *m, **o))
    patch.setattr(out, "activations", lambda _, width, seed: values(few, width, seed))
    for name, size in (("STEPS", 10), ("LAYERS", 2), ("TOKENS", 2048)):
        patch.setattr(graph, name, size)


def little_scale(patch: Patch) -> None:
    scale = of("scale")
    patch.setattr(scale, "QUICK", (1, 2, 2))
    patch.setattr(scale, "LONG_SECONDS", 1e-9)
    patch.setattr(of("store_open"), "OPENINGS", 1)


def little_loader(patch: Patch) -> None:
    loader = of("loader")
    patch.setattr(loader, "ProcessPoolExecutor", OneThread)
    prepare, synthetic = loader.prepare, loader.synthetic
    patch.setattr(loader, "prepare", lambda place, _: prepare(place, (2, 512, 16)))
    patch.setattr(loader, "synthetic", lambda *_, dtype: synthetic(2, 512, 16, dtype=dtype))


def little_rates(patch: Patch) -> None:
    rates = of("rates")
    patch.setattr(rates, "ProcessPoolExecutor", OneThread)
    run = rates.run
    patch.setattr(rates, "run", lambda *_: run(32, 1024))


def little_explore(patch: Patch) -> None:
    explore = of("explore")
    fill = explore.fill
    patch.setattr(explore, "fill", lambda folder, *_: fill(folder, 1, 2))
    patch.setattr(explore.shutil, "which", lambda _: None)


LESS = {
    name.removeprefix("little_"): lessen
    for name, lessen in list(globals().items())
    if name.startswith("little_")
}


@pytest.mark.parametrize("command", COMMANDS)
def test_it_prints_its_figures(
    command: str, tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, script, *options = shlex.split(command)
    name = Path(script).stem
    monkeypatch.chdir(tmp_path)
    LESS[name](monkeypatch)
    monkeypatch.setattr(sys, "argv", [script, *options, "--quick"])
    assert of(name).main() in (None, 0, 1)
    table = capsys.readouterr().out
    assert len(ROW.findall(table)) >= 2, table
    assert "nan" not in table
    assert list(tmp_path.iterdir()) == []
