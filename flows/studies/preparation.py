"""What a study needs brought into the store: corpus, models, metrics; each only where missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from analysis.compute import measure
from flows.capture.checkpoints import find_checkpoints
from flows.console import progress_bar
from flows.ingestion import ingest_checkpoint
from flows.measurement import MeasureOptions, Target, find_targets, measure_target
from flows.running import DEFAULT_SITES, CaptureOptions
from flows.studies.corpora import CORPORA, USUAL
from flows.studies.errors import MissingInStoreError, StudyChoiceError
from flows.studies.making import checkpoints_of
from flows.studies.sources import MODEL_SETS, Modality, ModelSource, block_sweep
from flows.studies.study import Study
from store.catalogue import catalogue
from store.errors import StoreNotFoundError
from store.repository import Repository

Tell = Callable[[str], None]

SAMPLE: Final = 4096
"""Tokens among which neighbours are sought, as in the demo."""

Held = Mapping[tuple[str, int], frozenset[str]]
"""For each model and step that is there entirely, the sites that are stored."""


@dataclass(frozen=True)
class Request:
    """What is asked of a study.

    Attributes:
        store: The store.
        models: ``offline``, ``paper``, or models by what `actlas ingest` or `actlas ls` call them.
        corpus: Name of a corpus; None for those of the studies, or the only one there is.
        from_store: Run no model and add no corpus: refuse when something is missing.
        sample: Tokens among which neighbours are sought.
        seed: Seed of that sample.
        output: Folder for what is written; training runs of any study go into ``runs`` beside it.
    """

    store: str
    models: tuple[str, ...]
    corpus: str | None
    from_store: bool
    output: Path
    sample: int = SAMPLE
    seed: int = 0


def prepare(study: Study, request: Request, tell: Tell) -> dict[str, list[str]]:
    """Bring what a study needs into the store: corpora, activations, metrics.

    Args:
        study: The study.
        request: What is asked of it.
        tell: Called with what happens.

    Returns:
        For each corpus, the names of its models in the order wanted, ``id/encoder`` where one stack
        alone is.

    Raises:
        MissingInStoreError: If something is missing and nothing may be run.
        StudyError: If it is not clear which corpus is meant.
        MaterialError: If a package of the offline set is not installed.
    """
    chosen = MODEL_SETS.get(request.models[0])
    sources = [one for one in chosen or () if one.need in study.needs]
    modalities: Sequence[Modality] = [one.modality for one in sources] or [_modality(study)]
    found: dict[str, list[str]] = {}
    for modality in dict.fromkeys(modalities):
        corpus = _corpus(study, request, modality, tell)
        held = _held(request.store, corpus)
        own = [one for one in sources if one.modality == modality]
        wanted = own or _named(study, request, held)
        _ingest_missing(study, request, corpus, wanted, held, tell)
        found[corpus] = list(dict.fromkeys(one.label for one in wanted))
        _measure(study, request, corpus, wanted, tell)
    return found


def _modality(study: Study) -> Modality:
    return "ids" if study.needs == {"block"} else "text"


def _corpus(study: Study, request: Request, modality: Modality, tell: Tell) -> str:
    """Return the name of the corpus that is meant, which is there afterwards."""
    usual = study.corpus if modality == "text" else USUAL[modality]
    is_set = request.models[0] in MODEL_SETS
    name = request.corpus or (
        usual if is_set or modality != "text" else _only_corpus(request.store)
    )
    # One of the user's own that is called the same is taken as it is.
    is_ours = name in CORPORA and (is_set or name not in _corpora(request.store))
    if is_ours and not request.from_store:
        tell(str(CORPORA[name](request.store, name)))
    return name


def _corpora(store: str) -> list[str]:
    try:
        return sorted(Repository.open(store, read_only=True).read().group_keys())
    except StoreNotFoundError:
        return []


def _only_corpus(store: str) -> str:
    known = _corpora(store)
    if len(known) != 1:
        raise StudyChoiceError(
            f"{store} holds the corpora {', '.join(known) or '(none)'}: choose with --corpus"
        )
    return known[0]


def _named(study: Study, request: Request, held: Held) -> list[ModelSource]:
    """Return models by their names in the store, else by what can be ingested."""
    found: list[ModelSource] = []
    for name in request.models:
        steps = tuple(sorted(step for model, step in held if model == name))
        if steps:
            found.append(ModelSource(name, "trajectory", steps=steps))
        elif study.needs == {"block"} and not name.startswith("block"):
            found += block_sweep(name)
        elif request.from_store and not Path(name).exists():
            found.append(ModelSource(name, "trajectory", (name,), ()))
        else:
            checkpoints = find_checkpoints(name)
            steps = tuple(checkpoint.step for checkpoint in checkpoints)
            found.append(ModelSource(checkpoints[0].model, "trajectory", (name,), steps))
    return found


def _held(store: str, corpus: str) -> Held:
    return {
        (name, step.step): frozenset(step.sites)
        for item in catalogue(Repository.open(store, read_only=True), corpus=corpus)
        for step in item.steps
        for name in (item.model, item.path.split("/")[1])
        if step.complete
    }


def _missing_steps(study: Study, model: ModelSource, held: Held) -> list[int]:
    needed = set(study.sites)
    return [
        step
        for step in model.steps
        if (model.name, step) not in held or not needed <= held[model.name, step]
    ]


def _ingest_missing(
    study: Study,
    request: Request,
    corpus: str,
    wanted: Sequence[ModelSource],
    held: Held,
    tell: Tell,
) -> None:
    known = {name for name, _ in held}
    missing = {model.name: _missing_steps(study, model, held) for model in wanted}
    lacking = [model for model in wanted if missing[model.name] or model.name not in known]
    if lacking and request.from_store:
        described = [_describe(study, model.name, missing[model.name]) for model in lacking]
        raise MissingInStoreError(request.store, corpus, described)
    sites = (*DEFAULT_SITES[:1], *study.sites) if study.sites else None
    for model in lacking:
        steps = set(missing[model.name])
        for checkpoint in checkpoints_of(model, request.output.parent / "runs", tell):
            if checkpoint.step not in steps:
                continue
            options = CaptureOptions(sites=sites)
            with progress_bar(f"{checkpoint.model} step {checkpoint.step}") as progress:
                result = ingest_checkpoint(
                    request.store, checkpoint, corpus, options=options, progress=progress
                )
            done = "stored" if result.ingested else "was there"
            tell(f"{result.path} step {result.step}: {done}")


def _describe(study: Study, name: str, steps: Sequence[int]) -> str:
    numbers = f"steps {', '.join(map(str, steps))}" if steps else ""
    sites = f"with the sites {', '.join(study.sites)}" if study.sites else ""
    told = " ".join(filter(None, (numbers, sites)))
    return f"{name} ({told})" if told else name


def _measure(
    study: Study, request: Request, corpus: str, wanted: Sequence[ModelSource], tell: Tell
) -> None:
    options = MeasureOptions(
        metrics=study.all_metrics,
        populations=study.populations,
        sample=request.sample,
        seed=request.seed,
    )
    repository = Repository.open(request.store)
    for target in _targets(repository, corpus, wanted):
        with progress_bar(target.model.path) as progress:
            reports = [measure_target(repository, target, options=options, progress=progress)]
        for site, metrics in study.site_metrics.items():
            reports.append(
                measure(
                    repository,
                    target.model.path,
                    metrics=metrics,
                    populations=study.site_populations,
                    sites=(site,),
                    steps=target.steps,
                )
            )
        computed = sum(report.computed for report in reports)
        up_to_date = sum(report.up_to_date for report in reports)
        tell(f"{target.model.path}: {computed:,} values computed, {up_to_date:,} up to date")


def _targets(repository: Repository, corpus: str, wanted: Sequence[ModelSource]) -> list[Target]:
    """Return the stacks that are looked at, all of a model unless it names one."""
    stacks = {one.name: one.stack for one in wanted}
    return [
        target
        for name, stack in stacks.items()
        for target in find_targets(repository, corpus=corpus, models=[name])
        if stack in (None, target.model.stack)
    ]
