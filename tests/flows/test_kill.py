"""An ingest that is killed at any moment leaves whole steps behind, and can be taken up again."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

import numpy as np
import pytest

from flows.capture.checkpoints import find_checkpoints
from flows.corpora import Chunking, add_texts
from flows.ingestion import ingest_checkpoint
from flows.job import CaptureOptions
from store import open_store
from store.catalogue import catalogue
from store.repository import Repository
from store.verify import census

KILLS = 10
KILLS_OF_EXTENSIONS = 5
EXTENDED = CaptureOptions(sites=("residual", "final_norm", "mlp_output"))


def ingest_run(store: str, folder: str) -> None:
    """Ingest every checkpoint of a folder; what the processes to be killed do."""
    import torch

    torch.set_num_threads(1)
    for checkpoint in find_checkpoints(folder):
        ingest_checkpoint(store, checkpoint, "cats")


def extend_run(store: str, folder: str) -> None:
    """Ingest every checkpoint over its grown corpus, and with a site that no step has yet."""
    import torch

    torch.set_num_threads(1)
    for checkpoint in find_checkpoints(folder):
        ingest_checkpoint(store, checkpoint, "cats", options=EXTENDED)


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Start processes with everything imported, so that kills hit the ingest and not imports."""
    context = multiprocessing.get_context("forkserver")
    model = "transformers.models.gpt_neox.modeling_gpt_neox"
    context.set_forkserver_preload(["flows.capture.forward", "flows.ingestion", "store", model])
    # The server that they fork from imports all that before the first: its time is no ingest's.
    first = context.Process(target=time.sleep, args=(0,))
    first.start()
    first.join()
    return context


def seconds_of(
    processes: ForkServerContext, run: Callable[[str, str], None], store: str, folder: Path
) -> float:
    """Let a run end in a process of its own, and return how long it took."""
    started = time.monotonic()
    process = processes.Process(target=run, args=(store, str(folder)))
    process.start()
    process.join()
    return time.monotonic() - started


def values(store: str) -> dict[int, np.ndarray]:
    """Return the residual stream of every step that is visible."""
    tree = open_store(store)
    if "cats/tiny" not in tree.groups and "/cats/tiny" not in tree.groups:
        return {}
    residual = tree["cats/tiny"].residual
    return {int(step): residual.sel(step=step).values for step in residual.step.values}


@pytest.mark.slow(minutes=1)
def test_killed_at_random_moments(
    store: str, run_folder: Path, tmp_path: Path, processes: ForkServerContext
) -> None:
    undisturbed = str(tmp_path / "undisturbed")
    shutil.copytree(store, undisturbed)
    took = seconds_of(processes, ingest_run, undisturbed, run_folder)
    expected = values(undisturbed)
    assert list(expected) == [0, 5, 10]
    seen = set()
    for kill in range(KILLS):
        trial = str(tmp_path / f"kill-{kill}")
        shutil.copytree(store, trial)
        process = processes.Process(target=ingest_run, args=(trial, str(run_folder)))
        process.start()
        time.sleep(random.Random(kill).uniform(0, took))
        process.kill()
        process.join()
        left = values(trial)
        seen.add(len(left))
        for step, rows in left.items():
            np.testing.assert_array_equal(rows, expected[step])
        ingest_run(trial, str(run_folder))
        for step, rows in values(trial).items():
            np.testing.assert_array_equal(rows, expected[step])
        assert list(values(trial)) == [0, 5, 10]
        assert census(Repository.open(trial)) == []
    assert len(seen) > 1, "every kill came at the same stage; the test says nothing"


def shown(store: str) -> dict[tuple[int, str], np.ndarray]:
    """Return what is visible of each step: its sites, (layer or block, token, dim) or less."""
    tree = open_store(store)["cats/tiny"].to_dataset()
    (held,) = catalogue(Repository.open(store))
    return {
        (step.step, site): tree[site].sel(step=step.step).values
        for step in held.steps
        for site in step.sites
    }


@pytest.mark.slow
def test_killed_while_steps_are_extended(
    store: str, run_folder: Path, text: str, tmp_path: Path, processes: ForkServerContext
) -> None:
    ingest_run(store, str(run_folder))
    before = shown(store)
    add_texts(store, "cats", {"cats.txt": text}, chunking=Chunking("chars", 50), max_sequences=30)
    undisturbed = str(tmp_path / "undisturbed")
    shutil.copytree(store, undisturbed)
    took = seconds_of(processes, extend_run, undisturbed, run_folder)
    expected = shown(undisturbed)
    assert {site for _, site in expected} == set(EXTENDED.sites or ())
    seen = set()
    for kill in range(KILLS_OF_EXTENSIONS):
        trial = str(tmp_path / f"kill-{kill}")
        shutil.copytree(store, trial)
        process = processes.Process(target=extend_run, args=(trial, str(run_folder)))
        process.start()
        # One kill in each part of the time, so that few of them meet growth and the new site.
        time.sleep(took * random.Random(kill).uniform(kill, kill + 1) / KILLS_OF_EXTENSIONS)
        process.kill()
        process.join()
        left = shown(trial)
        assert set(before) <= set(left) <= set(expected)
        for key, rows in left.items():
            # What came later lies behind what was there: what is shown is the beginning.
            np.testing.assert_array_equal(rows, expected[key][..., : rows.shape[-2], :])
        seen.add(tuple(sorted(key for key in left if key not in before)))
        assert census(Repository.open(trial)) == []
        extend_run(trial, str(run_folder))
        again = shown(trial)
        assert set(again) == set(expected)
        for key, rows in again.items():
            np.testing.assert_array_equal(rows, expected[key])
        assert census(Repository.open(trial)) == []
    assert len(seen) > 1, "every kill came at the same stage; the test says nothing"
