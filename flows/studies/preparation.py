"""What a study needs brought into the store: corpus, models, metrics; each only where missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flows.capture.checkpoints import Checkpoint, find_checkpoints
from flows.console import progress_bar
from flows.corpora import Chunking, add_texts
from flows.demo import materials, trajectory
from flows.demo.stages import CHARACTERS, CORPUS, DECODER, ENCODER, PLAY, SEQUENCES, TITLE
from flows.ingestion import ingest_checkpoint
from flows.measurement import MeasureOptions, find_targets, measure_target
from flows.studies.errors import MissingInStoreError, StudyError
from flows.studies.sources import MODEL_SETS
from flows.studies.study import Study
from store.catalogue import catalogue
from store.repository import Repository

Tell = Callable[[str], None]

SAMPLE: Final = 4096
"""Tokens among which neighbours are sought, as in the demo."""


@dataclass(frozen=True)
class Request:
    """What is asked of a study.

    Attributes:
        store: The store.
        models: ``offline``, ``paper``, or models by what `actlas ingest` or `actlas ls` call them.
        corpus: Name of a corpus; None for the play of the demo, or the only one there is.
        from_store: Run no model and add no corpus: refuse when something is missing.
        sample: Tokens among which neighbours are sought.
        seed: Seed of that sample.
        output: Folder for what is written.
    """

    store: str
    models: tuple[str, ...]
    corpus: str | None
    from_store: bool
    output: Path
    sample: int = SAMPLE
    seed: int = 0


@dataclass(frozen=True)
class _Wanted:
    """A model as it is to be had.

    Attributes:
        name: Its name in the store.
        steps: Steps wanted.
        sources: Where missing steps come from; empty for the models of the demo.
    """

    name: str
    steps: tuple[int, ...]
    sources: tuple[str, ...]


def prepare(study: Study, request: Request, tell: Tell) -> tuple[str, list[str]]:
    """Bring what a study needs into the store: corpus, activations, metrics.

    Args:
        study: The study.
        request: What is asked of it.
        tell: Called with what happens.

    Returns:
        The corpus, and the names of the models in the order wanted.

    Raises:
        MissingInStoreError: If something is missing and nothing may be run.
        StudyError: If it is not clear which corpus is meant.
        MaterialError: If a package of the offline set is not installed.
    """
    corpus = _corpus(request, tell)
    held = _held_steps(request.store, corpus)
    wanted = _wanted(study, request, held)
    lacking = [model for model in wanted if _is_missing(model, held)]
    if lacking and request.from_store:
        described = [_describe(model, held) for model in lacking]
        raise MissingInStoreError(request.store, corpus, described)
    for model in lacking:
        _ingest(request, corpus, model, held.get(model.name, set()), tell)
    names = list(dict.fromkeys(model.name for model in wanted))
    _measure(study, request, corpus, names, tell)
    return corpus, names


def _corpus(request: Request, tell: Tell) -> str:
    """Return the name of the corpus that is meant, which is there afterwards."""
    is_set = request.models[0] in MODEL_SETS
    if request.corpus not in (None, CORPUS) or (request.corpus is None and not is_set):
        known = sorted(Repository.open(request.store, read_only=True).read().group_keys())
        if request.corpus is not None:
            return request.corpus
        if len(known) != 1:
            raise StudyError(
                f"{request.store} holds the corpora {', '.join(known) or '(none)'}: choose with"
                " --corpus"
            )
        return known[0]
    if request.from_store:
        return CORPUS
    text = materials.plays()[PLAY]
    chunking = Chunking("chars", CHARACTERS)
    texts = {TITLE: text}
    added = add_texts(request.store, CORPUS, texts, chunking=chunking, max_sequences=SEQUENCES)
    tell(str(added))
    return CORPUS


def _wanted(study: Study, request: Request, held: Mapping[str, set[int]]) -> list[_Wanted]:
    chosen = MODEL_SETS.get(request.models[0])
    if chosen is None:
        return [_named(name, request, held) for name in request.models]
    return [
        _Wanted(source.name, source.steps, source.sources)
        for source in chosen
        if source.need in study.needs
    ]


def _named(name: str, request: Request, held: Mapping[str, set[int]]) -> _Wanted:
    """Return a model by its name in the store, else by what can be ingested."""
    if name in held:
        return _Wanted(name, tuple(sorted(held[name])), ())
    if request.from_store and not Path(name).exists():
        return _Wanted(name, (), (name,))
    found = find_checkpoints(name)
    return _Wanted(found[0].model, tuple(checkpoint.step for checkpoint in found), (name,))


def _held_steps(store: str, corpus: str) -> dict[str, set[int]]:
    return {
        name: {step.step for step in item.steps if step.complete}
        for item in catalogue(Repository.open(store, read_only=True), corpus=corpus)
        for name in (item.model, item.path.split("/")[1])
    }


def _is_missing(model: _Wanted, held: Mapping[str, set[int]]) -> bool:
    return model.name not in held or not set(model.steps) <= held[model.name]


def _describe(model: _Wanted, held: Mapping[str, set[int]]) -> str:
    steps = sorted(set(model.steps) - held.get(model.name, set()))
    return f"{model.name} (steps {', '.join(map(str, steps))})" if steps else model.name


def _ingest(request: Request, corpus: str, model: _Wanted, there: set[int], tell: Tell) -> None:
    for checkpoint in _checkpoints(request, model, tell):
        if checkpoint.step in there:
            continue
        with progress_bar(f"{checkpoint.model} step {checkpoint.step}") as progress:
            result = ingest_checkpoint(request.store, checkpoint, corpus, progress=progress)
        tell(f"{result.path} step {result.step}: {'stored' if result.ingested else 'was there'}")


def _checkpoints(request: Request, model: _Wanted, tell: Tell) -> list[Checkpoint]:
    sources = model.sources or (_offline_source(request, model.name, tell),)
    return [
        checkpoint for source in sources for checkpoint in find_checkpoints(source, name=model.name)
    ]


def _offline_source(request: Request, name: str, tell: Tell) -> str:
    """Return where a model of the demo lies, after training it where it is trained on the spot."""
    if name == ENCODER:
        return str(materials.encoder_directory())
    if name == DECODER:
        return str(materials.decoder_file())
    folder = request.output / "runs" / name
    plays = dict(materials.plays())
    held_out = plays.pop(PLAY)
    trajectory.train(folder, "\n\n".join(plays.values()), held_out, tell)
    return str(folder)


def _measure(
    study: Study, request: Request, corpus: str, models: Sequence[str], tell: Tell
) -> None:
    options = MeasureOptions(metrics=study.metrics, sample=request.sample, seed=request.seed)
    for target in find_targets(Repository.open(request.store), corpus=corpus, models=models):
        with progress_bar(target.model.path) as progress:
            report = measure_target(request.store, target, options=options, progress=progress)
        tell(
            f"{report.path}: {report.computed:,} values computed, {report.up_to_date:,} up to date"
        )
