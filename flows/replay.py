"""Showing that stored rows are the model's: random sequences are run again, one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from flows.capture.errors import CheckpointError
from flows.inputs import corpus_inputs
from flows.job import CaptureOptions, Job
from flows.layers import layers_to_run, of_layers
from flows.loading import load_job, shown_tokens, stack_tokens, with_rows
from flows.measurement import complete_steps, require_known
from flows.sources import source_job, stored_precision
from store.errors import CorruptChunkError, MissingChunkError
from store.identity import column_difference
from store.schema import BLOCK, LAYER, TOKEN, site_variable
from store.slab import slabs, token_table

if TYPE_CHECKING:
    from flows.capture.tokens import Tokens
    from store.catalogue import HeldModel, HeldStep
    from store.repository import Repository

TOLERANCE: Final[Mapping[str, float]] = {"float32": 1e-5, "float16": 2e-2, "bfloat16": 2e-2}
"""Largest deviation of a row, relative to its norm, by dtype: another batch, another machine."""


@dataclass(frozen=True)
class WorstRow:
    """The stored row that is farthest from what the model gives.

    Attributes:
        site: Name of the site.
        layer: Label of the layer or block, None for a site without either.
        sequence: Number of the sequence.
        position: Position within it.
        deviation: Norm of the difference, relative to the norm of the model's row.
    """

    site: str
    layer: int | None
    sequence: int
    position: int
    deviation: float


@dataclass(frozen=True)
class Replayed:
    """What running sequences of one step again showed.

    Attributes:
        path: Group of the model.
        step: Training step.
        source: Where the checkpoint was found.
        dtype: Dtype the model computes in.
        tolerance: Largest deviation allowed.
        sequences: Numbers of the sequences that were run.
        worst: The worst row; None if stored rows could not be read.
        problem: Why they could not, empty otherwise.
    """

    path: str
    step: int
    source: str
    dtype: str
    tolerance: float
    sequences: tuple[int, ...]
    worst: WorstRow | None
    problem: str = ""

    @property
    def sound(self) -> bool:
        """Whether every row compared is the model's; NaN for a number is not."""
        return self.worst is not None and self.worst.deviation <= self.tolerance


def replay_model(
    repository: Repository,
    held: HeldModel,
    *,
    count: int,
    steps: Sequence[int] | None = None,
    source: str | None = None,
    seed: int = 0,
    device: str = "auto",
    trusted: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[Replayed]:
    """Run random sequences of each step again, alone, and compare every site and layer.

    Args:
        repository: The store.
        held: The model as the catalogue lists it.
        count: Number of sequences to draw, the same ones for every step.
        steps: Steps to check, all complete ones by default.
        source: Where the checkpoints are, by default where the store says.
        seed: Seed of the draw.
        device: A torch device, or ``auto``.
        trusted: Whether Python code that comes with the checkpoints may run.
        progress: Called with the number of steps just done, and of all.

    Raises:
        UnknownNameError: If there is no such step.
        CheckpointError: If the checkpoint of a step is not found, or is not the one stored.
    """
    require_known("step", steps, complete_steps(held), [held])
    chosen = [
        step for step in held.steps if step.complete and (steps is None or step.step in steps)
    ]
    replayed = []
    for step in chosen:
        precision = stored_precision(step)
        options = CaptureOptions(sites=step.sites, device=device, precision=precision)
        job = source_job(repository, held, step, source=source, options=options, trusted=trusted)
        replayed.append(_replay_step(job, held, step, count, seed))
        if progress is not None:
            progress(1, len(chosen))
    return replayed


def _replay_step(job: Job, held: HeldModel, step: HeldStep, count: int, seed: int) -> Replayed:
    from flows.capture.guard import replay

    shown = corpus_inputs(job.corpus, job.checkpoint)
    stacks = load_job(job, shown).each_stack()
    loaded = next(one for one in stacks if one.stack.name == held.stack)
    tokens = with_rows(job, loaded, stack_tokens(loaded, shown))
    snapshot = job.repository.snapshot_id()
    _require_same_tokens(job, held, snapshot, shown_tokens(loaded, tokens))
    visible = tokens.row_offsets[1:] <= held.n_tokens
    filled = np.flatnonzero((np.diff(tokens.row_offsets) > 0) & visible)
    drawn = np.random.default_rng(seed).choice(filled, min(count, len(filled)), replace=False)
    sequences = tuple(sorted(drawn.tolist()))
    precision = job.options.precision
    layers = layers_to_run(step.layers, loaded.stack.n_blocks)
    alone = replay(loaded, tokens, sequences, step.sites, layers=layers, precision=precision)
    alone = {
        number: {site: of_layers(site, rows, step.layers, layers) for site, rows in own.items()}
        for number, own in alone.items()
    }
    worst, problem = None, ""
    try:
        rows = [
            _worst_row(job, held, step, snapshot, site, tokens, {n: alone[n][site] for n in alone})
            for site in step.sites
        ]
        # NaN, where a number was expected, is worse than any deviation.
        worst = max(rows, key=lambda row: np.nan_to_num(row.deviation, nan=np.inf))
    except (MissingChunkError, CorruptChunkError) as error:
        problem = str(error)
    dtype = loaded.source_dtype
    tolerance = max(TOLERANCE.get(name, min(TOLERANCE.values())) for name in (dtype, precision))
    where = job.checkpoint.source
    return Replayed(held.path, step.step, where, dtype, tolerance, sequences, worst, problem)


def _require_same_tokens(job: Job, held: HeldModel, snapshot: str, shown: Tokens) -> None:
    stored = token_table(job.repository.uri, held.path, snapshot)
    lines = [
        line
        for name, column in shown.coordinates().items()
        for line in column_difference(name, stored[name].values, column[: held.n_tokens])
    ]
    if lines:
        listed = "".join(f"\n  {line}" for line in lines)
        raise CheckpointError(
            f"{job.checkpoint.source} cuts {job.corpus.name} into other tokens"
            f" than {held.path} was stored with:{listed}\nInstall the library versions it had"
        )


def _worst_row(
    job: Job,
    held: HeldModel,
    step: HeldStep,
    snapshot: str,
    site: str,
    tokens: Tokens,
    alone: Mapping[int, npt.NDArray[np.float32]],
) -> WorstRow:
    """Compare all layers of a site; ``alone`` has its dimensions but step, by sequence."""
    from flows.capture.guard import deviations

    dims = site_variable(site).dims[1:]
    axis = dims.index(TOKEN)
    index = np.concatenate([np.r_[tokens.sequence_rows(sequence)] for sequence in alone])
    found = slabs(job.repository, held.path, site=site, steps=[step.step], snapshot=snapshot)
    parts = [slab.rows(index) for slab in found]
    stored = np.stack(parts) if dims[0] in (LAYER, BLOCK) else parts[0]
    off = deviations(site, stored, np.concatenate(list(alone.values()), axis=axis))
    at = np.unravel_index(int(np.argmax(off)), off.shape)
    label = found[int(at[0])].label if dims[0] in (LAYER, BLOCK) else None
    token = int(index[at[axis]])
    columns = tokens.coordinates()
    return WorstRow(
        site,
        None if label is None else label[1],
        int(columns["sequence"][token]),
        int(columns["position"][token]),
        float(off[at]),
    )
