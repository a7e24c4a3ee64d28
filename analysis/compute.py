"""Measuring what the store holds: only what is missing or stale, committed beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import xarray as xr

from analysis.boxes import RESIDUAL, labelled_results
from analysis.choose import MetricLike, make_plan
from analysis.engines import THREADS, check_scheduler, run_tasks
from analysis.head_pairs import HeadPairResult, HeadPairTask
from analysis.head_work import HeadWork, divide_metrics, find_head_work
from analysis.plan import SAMPLE_ROWS
from analysis.stretches import Outcome, StretchCollector, StretchResult, Task, divide, run_task
from analysis.tasks import SlabResult, SlabTask, batch_tasks, check_tasks, slab_bytes
from analysis.work import definitions_of, find_work
from store.metrics import Definition, write_metrics
from store.repository import Repository
from store.slab import Slab

COMMIT_SECONDS: Final = 30.0
"""Time between commits: what a run that is killed can lose."""

BATCH_BYTES: Final = 32 << 20
"""Bytes that a task reads at least, for the scheduler's time not to be felt."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class MeasureReport:
    """What a run did, or would do.

    Attributes:
        path: Group of the model.
        computed: Values (metric, step, layer, population) computed, or to be computed.
        up_to_date: Values asked for that were current already.
        slabs: Slabs read, or to be read, once each.
        bytes_read: Bytes of their values in memory.
        snapshot: Snapshot of the store that the activations were read from.
        seconds: Time the run took.
        left_out: Metrics that need whole sequences, where only some rows of them are kept.
    """

    path: str
    computed: int
    up_to_date: int
    slabs: int
    bytes_read: int
    snapshot: str
    seconds: float
    left_out: tuple[str, ...] = ()


def measure(
    repository: Repository | str,
    path: str,
    *,
    metrics: Iterable[MetricLike] | None = None,
    populations: Sequence[str] | None = None,
    steps: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
    sites: Sequence[str] = (RESIDUAL,),
    scheduler: str = THREADS,
    seed: int = 0,
    sample: int = SAMPLE_ROWS,
    exclude_own_sequence: bool = False,
    memory: int | None = None,
    plan: bool = False,
    progress: Progress | None = None,
) -> MeasureReport:
    """Compute metrics of stored activations, and commit them to the store.

    Each slab of which anything is missing or stale is read once, by one task. Results are
    committed by this process, every half minute and at the end, so that a run that is killed
    keeps what it had; a run that fails keeps what was done.

    Args:
        repository: The store, or its URI.
        path: ``corpus/model`` or ``corpus/model/stack``.
        metrics: Names of metrics, functions of ``Statistics`` of one's own, or their import names
            ``module:function``, which workers must be able to import; None for all.
        populations: Names of populations; None for all of them for metrics of moments, and
            ``content`` alone for metrics of neighbours.
        steps: Steps, None for all complete ones.
        layers: Layers or blocks, None for all.
        sites: Sites. The variables of any but ``residual`` have its name before theirs. Of a site
            with one number a token, such as ``attention_entropy``, ``mean``, ``deviation`` and
            ``mean_by_position`` are measured instead; of ``attention_first_key`` the
            ``attention_sink_rate``, too, and of ``attention_received`` the
            ``attention_sink_rate_by_key``. Where both ``query`` and ``key`` are among them, they
            are compared with each other, too: ``cosine_mean_query_key`` and
            ``average_cosine_query_key``; with ``_rotary`` after it of ``query_rotary`` and
            ``key_rotary``.
        scheduler: ``threads``, ``local[:N]`` or the address of a Dask scheduler.
        seed: Seed of the sample of rows that neighbours are sought in.
        sample: Number of those rows.
        exclude_own_sequence: Whether neighbours are sought in other sequences only.
        memory: Bytes that each worker has. What is measured keeps to them, our own workers are
            held to them, and what cannot is refused before anything is read.
        plan: Only count what would be computed.
        progress: Called with the number of slabs just done, and of all.

    Raises:
        UnknownMetricError: If there is no metric of a name.
        UnknownPopulationError: If there is no population of a name.
        NonFiniteRowsError: If activations are NaN or infinite that were not stored as such.
        InputError: If a layer needs more memory than there is.
        SchedulerError: If the scheduler does not exist or does not answer.
        StoreError: If activations are missing or damaged, or results cannot be stored.
    """
    started = time.monotonic()
    check_scheduler(scheduler)
    opened = Repository.open(repository) if isinstance(repository, str) else repository
    snapshot = opened.snapshot_id()
    single, paired = divide_metrics(metrics, sites)
    wanted = make_plan(
        single,
        populations,
        labelled=True,
        seed=seed,
        sample=sample,
        exclude_own_sequence=exclude_own_sequence,
        memory=memory,
    )
    work = {
        site: find_work(opened, path, snapshot, wanted, site=site, steps=steps, layers=layers)
        for site in (sites if wanted.metrics else ())
    }
    heads = find_head_work(
        opened, path, snapshot, wanted, paired, sites=sites, steps=steps, layers=layers
    )
    tasks = [task for found in work.values() for task in found.tasks]
    check_tasks(tasks)
    if (tasks or heads.tasks) and not plan:
        definitions = [one for site in work for one in definitions_of(work[site].plan, site)]
        definitions += heads.definitions
        total = len(tasks) + len(heads.tasks)
        committer = _Committer(opened, path, snapshot, definitions, total, progress)
        committer.run(tasks, heads, scheduler, memory)
    read = [task.slab for task in tasks]
    read += [slab for task in heads.tasks for slab in (task.queries, task.keys)]
    return MeasureReport(
        path,
        computed=sum(found.missing for found in work.values()) + heads.missing,
        up_to_date=sum(found.current for found in work.values()) + heads.current,
        slabs=len(read),
        bytes_read=sum(map(slab_bytes, read)),
        snapshot=snapshot,
        seconds=time.monotonic() - started,
        left_out=tuple(sorted({name for found in work.values() for name in found.left_out})),
    )


class _Committer:
    """Runs tasks and commits their results as they come."""

    def __init__(
        self,
        repository: Repository,
        path: str,
        snapshot: str,
        definitions: Sequence[Definition],
        total: int,
        progress: Progress | None,
    ) -> None:
        self._repository = repository
        self._path = path
        self._snapshot = snapshot
        self._definitions = {definition.metric: definition for definition in definitions}
        self._total = total
        self._progress = progress
        self._results: list[SlabResult] = []
        self._boxes: list[xr.Dataset] = []
        self._stretches = StretchCollector()
        self._told: set[Slab | HeadPairTask] = set()
        self._committed = time.monotonic()

    def run(
        self, tasks: Sequence[SlabTask], heads: HeadWork, scheduler: str, memory: int | None
    ) -> None:
        """Run tasks; whatever stops them, commit what was done."""
        try:
            whole, stretches = divide(tasks)
            pending: list[Task] = [*batch_tasks(whole, BATCH_BYTES), *stretches, *heads.tasks]
            while pending:
                run_tasks(run_task, pending, self._receive, scheduler, memory=memory)
                pending = [*self._stretches.again]
                self._stretches.again.clear()
        finally:
            self._commit()

    def _receive(self, outcome: Outcome) -> None:
        done: list[Slab | HeadPairTask] = []
        if isinstance(outcome, HeadPairResult):
            self._boxes.append(outcome.box)
            done.append(outcome.task)
        else:
            results = self._whole(outcome)
            self._results += results
            done += [result.task.slab for result in results]
        if time.monotonic() - self._committed > COMMIT_SECONDS:
            self._commit()
        for one in done:
            # Neighbours of a divided layer are a result of their own.
            if self._progress is not None and one not in self._told:
                self._told.add(one)
                self._progress(1, self._total)

    def _whole(self, outcome: Sequence[SlabResult] | StretchResult) -> Sequence[SlabResult]:
        """Return the results of whole slabs that an outcome brings."""
        if not isinstance(outcome, StretchResult):
            return outcome
        finished = self._stretches.add(outcome)
        return [] if finished is None else [finished]

    def _commit(self) -> None:
        results, self._results = self._results, []
        boxes, self._boxes = [*labelled_results(results), *self._boxes], []
        if boxes:
            names = {str(name) for box in boxes for name in box.data_vars}
            definitions = [one for name, one in self._definitions.items() if name in names]
            write_metrics(
                self._repository,
                self._path,
                boxes,
                snapshot=self._snapshot,
                definitions=definitions,
            )
        self._committed = time.monotonic()
