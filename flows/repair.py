"""Putting back what a store has lost: damaged steps are computed again, from the same weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from flows.layers import layers_of
from flows.measurement import complete_steps, require_known
from flows.running import CaptureOptions, Progress, run_job, unwatched
from flows.sources import source_job, stored_precision
from store.catalogue import HeldModel, catalogue
from store.repository import Repository
from store.schema import node_name, sites_among
from store.verify import Finding, census


@dataclass(frozen=True)
class Repair:
    """What was wrong with a model, and what is now.

    Attributes:
        path: ``CORPUS/MODEL``.
        found: What the census found at first.
        repaired: Steps that were computed and stored again.
        left: What a census finds afterwards.
    """

    path: str
    found: tuple[Finding, ...]
    repaired: tuple[int, ...]
    left: tuple[Finding, ...]


def repair_model(
    repository: Repository,
    corpus: str,
    model: str,
    *,
    steps: Sequence[int] | None = None,
    source: str | None = None,
    device: str = "auto",
    trusted: bool = False,
    watched: Callable[[str], AbstractContextManager[Progress]] = unwatched,
) -> Repair:
    """Compute the steps again in which a census finds something, and take another census.

    Nothing is replaced before all of a step is there again, and only by what the same weights,
    tokens and config give.

    Args:
        repository: The store.
        corpus: Name of the corpus.
        model: Id of the model.
        steps: Steps that may be repaired, all by default.
        source: Where the checkpoints are, by default where the store says.
        device: A torch device, or ``auto``.
        trusted: Whether Python code that comes with the checkpoints may run.
        watched: Called with what is under way: a census, in layers, or a step, in tokens.

    Raises:
        UnknownNameError: If there is no such corpus, model or step.
        CheckpointError: If the checkpoint of a step is not found, or is not the one stored.
        StoreError: If the store cannot take it.
    """
    path = f"{corpus}/{node_name(model)}"
    stacks = catalogue(repository, corpus=corpus, model=model)
    require_known("step", steps, {n for held in stacks for n in complete_steps(held)}, stacks)
    found = _census(repository, path, watched)
    bad = {one.step for one in found if one.step is not None}
    repaired = tuple(sorted(bad if steps is None else bad & set(steps)))
    for step in repaired:
        with watched(f"{path} step {step}") as progress:
            _store_again(repository, stacks, step, source, device, progress, trusted=trusted)
    left = _census(repository, path, watched) if repaired else found
    return Repair(path, found, repaired, left)


def _census(
    repository: Repository, path: str, watched: Callable[[str], AbstractContextManager[Progress]]
) -> tuple[Finding, ...]:
    with watched(f"verify {path}") as progress:
        return tuple(census(repository, path, progress=lambda _done, total: progress(1, total)))


def _store_again(
    repository: Repository,
    stacks: Sequence[HeldModel],
    step: int,
    source: str | None,
    device: str,
    progress: Progress,
    *,
    trusted: bool,
) -> None:
    """Run a checkpoint once more for all that the groups of its stacks have of the step."""
    there = [(held, one) for held in stacks for one in held.steps if one.step == step]
    stored = {site for _, one in there for site in one.sites}
    held, one = there[0]
    options = CaptureOptions(
        sites=sites_among(stored),
        layers=layers_of(one for _, one in there),
        device=device,
        precision=stored_precision(one),
        allow_nonfinite=any(one.nonfinite for _, one in there),
        rewrite=True,
    )
    job = source_job(
        *(repository, held, one), source=source, options=options, newest=True, trusted=trusted
    )
    run_job(job, progress)
