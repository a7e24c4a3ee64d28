"""What is left to do about a checkpoint that the store may hold in part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flows.capture.tokens import Tokens
from flows.ingestion import grows, held_steps, of_stored_sites
from flows.inputs import corpus_tokens
from flows.job import Job
from flows.layers import lacking
from flows.stack_sizes import Held
from store.identity import step_difference
from store.schema import sites_among

if TYPE_CHECKING:
    from flows.capture.items import Items
    from store.catalogue import HeldStep


@dataclass(frozen=True)
class Outstanding:
    """What is left to do about a checkpoint.

    Attributes:
        job: The job, for those sites and layers alone that are lacking.
        shown: What the model is to be shown.
        held: What the store holds of the step, and what it lacks, by path of a stack.
    """

    job: Job
    shown: Tokens | Items
    held: Mapping[str, Held] = field(default_factory=dict)


def held_rows(job: Job) -> int:
    """Return how many rows a step has along the token axis, of the first of its stacks."""
    return next((step.n_tokens for step in _held(job).values()), 0)


def cut_sequences(job: Job) -> int:
    """Return how many sequences were cut when the first stack of a model was stored."""
    root = job.repository.read()
    cut = next((root[path].attrs.get("truncated_sequences") for path in _held(job)), 0)
    return cut if isinstance(cut, int) else 0


def outstanding(job: Job, shown: Tokens | Items) -> list[Outstanding]:
    """Find out what is left to do about a step that is not stored whole.

    Where the corpus grew, that is first its new sequences, at the sites and layers that the step
    has, and then what the step lacks of those asked for.

    Args:
        job: What is asked for.
        shown: All that the model would be shown.

    Returns:
        What is run, one after the other.
    """
    held = _held(job)
    growing = isinstance(shown, Tokens) and grows(job)
    differs = any(step_difference(step.identity, job.identity) for step in held.values())
    if differs and not growing:
        return [Outstanding(job, shown)]
    left = {
        path: replace(_of(job, path, step, lacking(step, job.options)), n_rows=0)
        for path, step in held.items()
    }
    parts = []
    every_stack = 0 < len(left) == len(held_steps(job))
    if growing:
        assert isinstance(shown, Tokens)
        parts.append(_growth(job, shown, held))
        if every_stack and not any(one.lacking for one in left.values()):
            return parts
    if not every_stack:
        return [*parts, Outstanding(job, shown, left)]
    sites = sites_among({site for one in left.values() for site in one.lacking})
    options = replace(job.options, sites=sites, layers=_layers(left))
    return [*parts, Outstanding(replace(job, options=options), shown, left)]


def _growth(job: Job, shown: Tokens, held: Mapping[str, HeldStep]) -> Outstanding:
    former = corpus_tokens(job.corpus.earlier()[-1], job.checkpoint)
    later = range(former.n_sequences, shown.n_sequences)
    new = shown.select(later) if later else shown
    every = {path: _of(job, path, step, _all_of(step)) for path, step in held.items()}
    return Outstanding(of_stored_sites(job), new, every)


def _held(job: Job) -> dict[str, HeldStep]:
    return {path: step for path, step in held_steps(job).items() if step is not None}


def _of(job: Job, path: str, step: HeldStep, missing: Mapping[str, tuple[int, ...]]) -> Held:
    rows = job.repository.read()[path].attrs["chunk_rows"]
    assert isinstance(rows, int)
    return Held(missing, step.n_tokens, rows)


def _all_of(step: HeldStep) -> dict[str, tuple[int, ...]]:
    return {site: tuple(step.layers.get(site, ())) for site in step.sites}


def _layers(left: Mapping[str, Held]) -> tuple[int, ...] | None:
    """Return all layers that are lacking anywhere, None where no site that is has any."""
    numbers = {n for one in left.values() for own in one.lacking.values() for n in own}
    return tuple(sorted(numbers)) or None
