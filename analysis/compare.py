"""Measuring how alike layers, steps or models are: only what is missing or stale, committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.comparisons import Compared, check_comparison, run_comparison
from analysis.engines import THREADS, check_scheduler, run_tasks
from analysis.matrices import Over, Subject, boxes_of, find_matrices, is_missing
from analysis.plan import SAMPLE_ROWS
from store.metrics import write_metrics
from store.repository import Repository

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CompareReport:
    """What a run did, or would do.

    Attributes:
        over: What was compared.
        computed: Matrices computed, or to be computed.
        up_to_date: Matrices asked for that were current already.
        slabs: Layers read, or to be read, once each for every matrix.
        seconds: Time the run took.
    """

    over: Over
    computed: int
    up_to_date: int
    slabs: int
    seconds: float


def compare(
    repository: Repository | str,
    over: Over,
    subjects: Sequence[Subject],
    *,
    sample: int = SAMPLE_ROWS,
    seed: int = 0,
    scheduler: str = THREADS,
    memory: int | None = None,
    plan: bool = False,
    progress: Progress | None = None,
) -> CompareReport:
    """Compare representations of the same tokens, and commit the matrices to the store.

    - ``layers``: all layers of each step of each model: ``layer_cka`` and the like (step, layer,
      other_layer).
    - ``steps``: all steps of each model, layer by layer: ``step_cka`` (step, layer, other_step).
      A step more makes them stale.
    - ``models``: every layer of a model with every layer of every other, each at the last of its
      steps, over tokens that end at the same characters: ``model_cka`` (step, layer, other_model,
      other_layer), kept with both models.

    A task holds the sampled rows of all that it compares, sample × width × 8 bytes for each, and
    a matrix of 8 × width² bytes for each.

    Args:
        repository: The store, or its URI.
        over: What is compared.
        subjects: The models; at least two of one corpus to compare models.
        sample: Tokens of ``content`` drawn.
        seed: Seed of the draw.
        scheduler: Where the tasks run; see ``analysis.engines.run_tasks``.
        memory: Bytes that each worker has. Our own workers are held to them, and what needs more
            is refused before anything is read.
        plan: Only count what would be computed.
        progress: Called with the number of matrices just done, and of all.

    Raises:
        InputError: If there is nothing to compare with, or a matrix needs more memory than there
            is.
        UnknownNameError: If a model, a step or a layer is not in the store.
        TooFewRowsError: If there are too few tokens that differ.
        NonFiniteRowsError: If rows hold NaN or infinity.
        StoreError: If activations are missing or damaged, or models read different texts.
    """
    started = time.monotonic()
    check_scheduler(scheduler)
    opened = Repository.open(repository) if isinstance(repository, str) else repository
    snapshot = opened.snapshot_id()
    wanted = find_matrices(opened, over, subjects, snapshot=snapshot, sample=sample, seed=seed)
    missing = [matrix for matrix in wanted if is_missing(opened, snapshot, over, matrix)]
    for matrix in missing:
        check_comparison(matrix.task, memory)

    def keep(found: Compared) -> None:
        matrix = next(one for one in missing if one.task == found.task)
        for path, box in boxes_of(over, found).items():
            definitions = matrix.definitions[path]
            write_metrics(opened, path, box, snapshot=snapshot, definitions=definitions)
        if progress is not None:
            progress(1, len(missing))

    if missing and not plan:
        tasks = [matrix.task for matrix in missing]
        run_tasks(run_comparison, tasks, keep, scheduler, memory=memory)
    read = sum(len(matrix.task.slabs) + len(matrix.task.others) for matrix in missing)
    seconds = time.monotonic() - started
    return CompareReport(over, len(missing), len(wanted) - len(missing), read, seconds)
