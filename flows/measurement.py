"""Metrics of models in the store: choose the models, measure what is missing, one after another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from analysis.compute import MeasureReport, measure
from store.catalogue import HeldModel, catalogue
from store.errors import UnknownNameError
from store.repository import Repository

Progress: TypeAlias = "Callable[[int, int], None]"


@dataclass(frozen=True)
class MeasureOptions:
    """What to measure of a model and how.

    Attributes:
        metrics: Names of metrics, None for all.
        populations: Names of populations, None for all.
        sample: Rows among which neighbours are sought.
        seed: Seed of that sample.
        scheduler: Where Dask runs: ``threads``, or the address of a scheduler.
        exclude_own_sequence: Whether neighbours are sought in other sequences only.
        memory: Bytes that each worker has, None where that is not stated.
        sites: What is measured.
    """

    metrics: tuple[str, ...] | None = None
    populations: tuple[str, ...] | None = None
    sample: int = 10_000
    seed: int = 0
    scheduler: str = "threads"
    exclude_own_sequence: bool = False
    memory: int | None = None
    sites: tuple[str, ...] = ("residual",)


DEFAULT_OPTIONS: Final = MeasureOptions()


@dataclass(frozen=True)
class Target:
    """One model to be measured, with the part of it that was asked for.

    Attributes:
        model: The model as the catalogue lists it.
        steps: Its complete steps among those wanted.
        layers: Its layers among those wanted.
        named: Whether steps were asked for by number.
    """

    model: HeldModel
    steps: tuple[int, ...]
    layers: tuple[int, ...]
    named: bool = False

    def steps_with(self, sites: Collection[str]) -> tuple[int, ...]:
        """Return the steps that hold all these sites: all of them if named, or if none does.

        Steps that were named, and a model that holds no such site, are for the reader to refuse.
        """
        holding = {step.step for step in self.model.steps if set(sites) <= set(step.sites)}
        kept = tuple(step for step in self.steps if step in holding)
        return self.steps if self.named or not kept else kept


def find_targets(
    repository: Repository,
    *,
    corpus: str | None = None,
    models: Sequence[str] | None = None,
    steps: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
) -> list[Target]:
    """Choose models, and the steps and layers of each that are wanted.

    Args:
        repository: The store.
        corpus: Only this corpus.
        models: Only these models, by id or by the name of their group.
        steps: Steps wanted; each has to be in one of the models.
        layers: Layers wanted; each has to be in one of the models.

    Raises:
        UnknownNameError: If a corpus or model is not in the store, or a step or layer in none of
            the models.
    """
    held = find_models(repository, corpus=corpus, models=models)
    targets = [_target(item, steps, layers) for item in held]
    require_known("step", steps, (step for item in held for step in complete_steps(item)), held)
    require_known("layer", layers, (layer for item in held for layer in item.layers), held)
    return [target for target in targets if target.steps and target.layers]


def find_models(
    repository: Repository,
    *,
    corpus: str | None = None,
    models: Sequence[str] | None = None,
    snapshot: str | None = None,
) -> list[HeldModel]:
    """List models as the catalogue does, several by name.

    Args:
        repository: The store.
        corpus: Only this corpus.
        models: Only these models, by id or by the name of their group.
        snapshot: As of this snapshot, the newest by default.

    Raises:
        UnknownNameError: If a corpus or model is not in the store.
    """
    return [
        item
        for model in ([None] if models is None else models)
        for item in catalogue(repository, corpus=corpus, model=model, snapshot=snapshot)
    ]


def measure_target(
    repository: Repository | str,
    target: Target,
    *,
    options: MeasureOptions = DEFAULT_OPTIONS,
    plan: bool = False,
    progress: Progress | None = None,
) -> MeasureReport:
    """Compute what is missing or stale of the metrics of one model, and commit it once.

    Steps that lack a site asked for are left out, unless they were named.

    Args:
        repository: The store, or its URI.
        target: A model from :func:`find_targets`.
        options: What to measure and how.
        plan: Only count what would be computed.
        progress: Called with the number of layers just done, and of all.

    Raises:
        AnalysisError: If a metric or population is unknown, or the rows are too few.
        StoreError: If activations cannot be read or results cannot be stored.
    """
    return measure(
        repository,
        target.model.path,
        metrics=options.metrics,
        populations=options.populations,
        steps=target.steps_with(options.sites),
        layers=target.layers if len(target.layers) < len(target.model.layers) else None,
        sites=options.sites,
        sample=options.sample,
        seed=options.seed,
        scheduler=options.scheduler,
        exclude_own_sequence=options.exclude_own_sequence,
        memory=options.memory,
        plan=plan,
        progress=progress,
    )


def _target(item: HeldModel, steps: Sequence[int] | None, layers: Sequence[int] | None) -> Target:
    return Target(
        item,
        tuple(step for step in complete_steps(item) if steps is None or step in steps),
        tuple(layer for layer in item.layers if layers is None or layer in layers),
        named=steps is not None,
    )


def complete_steps(item: HeldModel) -> list[int]:
    """Return the steps of a model that are there entirely."""
    return [step.step for step in item.steps if step.complete]


def require_known(
    kind: str, wanted: Sequence[int] | None, known: Iterable[int], held: Sequence[HeldModel]
) -> None:
    """Refuse numbers of steps or layers that no model has.

    Raises:
        UnknownNameError: If one of them is not known.
    """
    there = sorted(set(known))
    for number in wanted or ():
        if number not in there:
            where = ", ".join(item.path for item in held)
            raise UnknownNameError(kind, number, there, where)
