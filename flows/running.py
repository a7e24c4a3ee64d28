"""A checkpoint's model run over a corpus, each of its stacks into a group of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, TypeAlias

from flows.capture.errors import InputError
from flows.capture.rounding import FULL_PRECISION
from flows.capture.tokens import Tokens
from flows.group_facts import model_facts, site_facts
from flows.inputs import corpus_inputs
from flows.job import DEFAULT_SITES, RIVAL_WAIT, CaptureOptions, Job
from flows.layers import Layers, layers_to_run, narrowed
from flows.loading import load_job, shown_tokens, stack_tokens, wanted_sites, with_rows
from flows.losses import TOKEN_LOSS, MeanLoss
from flows.passes import missing_rows, refuse_batch_effects
from flows.streaming import PIECE_BYTES, stream
from store.create import ArraySpec, create_model
from store.errors import NonFiniteError, StoreError, UnknownNameError
from store.identity import JSON
from store.request import AlreadyStored
from store.schema import TOKEN, site_variable
from store.unused import remove_unused_model
from store.write import StepWriter, reserve_step

if TYPE_CHECKING:
    from flows.capture.blocks import RowBlock
    from flows.capture.items import Items
    from flows.capture.parts import Part
    from flows.capture.weights import LoadedModel

__all__ = [
    "DEFAULT_SITES",
    "RIVAL_WAIT",
    "CaptureOptions",
    "Job",
    "load_job",
    "refuse_if_cut",
    "run_job",
    "shown_tokens",
    "stack_tokens",
    "store_parts",
    "unwatched",
    "wanted_sites",
    "with_rows",
]

Progress: TypeAlias = "Callable[[int, int], None]"

CREATION_TRIES: Final = 3
"""How often a model's group is created if others, who fail, take it back each time."""

_REMEDY: Final = "Look at the weights and the dtype, or store and count them: --allow-nonfinite"

_RECORDED_VERSIONS: Final = ("actlas", "icechunk", "numpy", "torch", "transformers", "zarr")


@contextmanager
def unwatched(_name: str) -> Iterator[Progress]:
    """Give work that nobody watches what it tells its progress to."""
    yield lambda _more, _total: None


def run_job(job: Job, progress: Progress | None = None) -> bool:
    """Run a model over a corpus and commit what each of its stacks gave.

    Args:
        job: What to run.
        progress: Called with the number of tokens just done, and of all.

    Returns:
        Whether anything was stored: another process may have been faster.
    """
    shown = corpus_inputs(job.corpus, job.checkpoint)
    if isinstance(shown, Tokens):
        refuse_if_cut(job, shown, shown)
    loaded = load_job(job, shown)
    parts = [(one, stack_tokens(one, shown)) for one in loaded.each_stack()]
    if not isinstance(shown, Tokens):
        refuse_if_cut(job, shown, parts[0][1])
    return store_parts(job, parts, progress)


def refuse_if_cut(job: Job, shown: Tokens | Items, tokens: Tokens) -> None:
    """Refuse sequences that are longer than the model takes, where none may be cut.

    Args:
        job: The job.
        shown: What the model is shown.
        tokens: The rows that its first stack makes of it.

    Raises:
        InputError: If there are any.
    """
    unit = "tokens" if isinstance(shown, Tokens) else "frames"
    if tokens.truncated and not job.options.truncate:
        raise InputError(
            f"{tokens.truncated} of {tokens.n_sequences} sequences of {job.corpus.name} are longer "
            f"than the {tokens.lengths.max()} {unit} that {job.checkpoint.model} takes: cut the "
            "corpus into shorter ones, or let them be truncated"
        )


def store_parts(
    job: Job, parts: Sequence[tuple[LoadedModel, Tokens]], progress: Progress | None = None
) -> bool:
    """Commit what stacks of a loaded model give for tokens.

    Args:
        job: What to store.
        parts: The model with each of its stacks chosen, and what that is shown.
        progress: Called with the number of tokens just done, and of all.

    Returns:
        Whether anything was stored: another process may have been faster.
    """
    total = sum(len(tokens) for _, tokens in parts)
    report = None if progress is None else lambda done: progress(done, total)
    try:
        if not job.grown_from and _are_stages(parts):
            return _store_stages(job, parts, report)
        stored = [_store_stack(job, one, tokens, report) for one, tokens in parts]
    except BaseException:
        with suppress(StoreError):
            remove_unused_model(job.repository, job.path)
        raise
    return any(stored)


def _store_stack(
    job: Job, loaded: LoadedModel, tokens: Tokens, progress: Callable[[int], None] | None
) -> bool:
    tokens = with_rows(job, loaded, tokens)
    writer = _reserve(job, loaded, tokens)
    if isinstance(writer, AlreadyStored):
        return False
    with writer:
        loss = MeanLoss()
        if writer.held_tokens and TOKEN_LOSS in writer.sites:
            loss.add(writer.held_rows(TOKEN_LOSS, whole=True))
        _stream(missing_rows(job, loaded, tokens, writer, loss, progress), [writer], job.options)
        writer.commit(provenance=_provenance(job, tokens, loaded) | {"loss": loss.mean()})
    return True


def _are_stages(parts: Sequence[tuple[LoadedModel, Tokens]]) -> bool:
    """Tell whether stacks are the stages of a model, which one forward pass gives all."""
    from flows.capture.items import ItemTokens

    roots = {id(loaded.stack.root) for loaded, _ in parts}
    items = all(isinstance(tokens, ItemTokens) for _, tokens in parts)
    return items and len(parts) > 1 and len(roots) == 1


def _store_stages(
    job: Job,
    stages: Sequence[tuple[LoadedModel, Tokens]],
    progress: Callable[[int], None] | None,
) -> bool:
    """Run a model once, and store what its stages give, as far as it is not there."""
    from flows.capture.forward import capture_stacks
    from flows.capture.parts import Part

    options = job.options
    with ExitStack() as writing:
        writers: list[StepWriter] = []
        parts: list[Part] = []
        ran: list[Layers] = []
        for loaded, shown in stages:
            tokens = with_rows(job, loaded, shown)
            writer = _reserve(job, loaded, tokens)
            if isinstance(writer, StepWriter):
                writers.append(writing.enter_context(writer))
                ran.append(layers_to_run(writer.layers, loaded.stack.n_blocks))
                kept = (writer.sites, writer.chunk_rows, ran[-1], options.precision)
                parts.append(Part(loaded, tokens, *kept, piece_bytes=PIECE_BYTES))
                refuse_batch_effects(loaded, tokens, writer.sites, ran[-1], options)
        if not parts:
            return False
        blocks = capture_stacks(
            parts,
            batch_tokens=options.batch_tokens,
            allow_nonfinite=True,  # the writers look, in their own thread, and know the step
            progress=progress,
        )
        _stream(narrowed(blocks, writers, ran), writers, options)
        for writer, part in zip(writers, parts, strict=True):
            writer.commit(provenance=_provenance(job, part.tokens, part.loaded))
    return True


def _reserve(job: Job, loaded: LoadedModel, tokens: Tokens) -> StepWriter | AlreadyStored:
    """Create what is missing of the group of a stack, and reserve the step in it."""
    path = "/".join(filter(None, (job.path, loaded.stack.name)))
    for tries_left in reversed(range(CREATION_TRIES)):
        sites = _create(job, loaded, tokens)
        try:
            return reserve_step(
                job.repository,
                path,
                job.checkpoint.step,
                identity=job.identity,
                sites=sites,
                layers=job.options.layers,
                supersede=job.options.supersede,
                rewrite=job.options.rewrite,
                grown_from=job.grown_from,
                allow_nonfinite=job.options.allow_nonfinite,
                wait=job.options.rival_wait,
            )
        except UnknownNameError:
            # Another writer failed, and took the group back before a step was in it.
            if not tries_left:
                raise
    raise AssertionError


def _stream(
    blocks: Iterable[RowBlock], writers: Sequence[StepWriter], options: CaptureOptions
) -> None:
    try:
        stream(blocks, *writers)
    except NonFiniteError as error:
        cause = ""
        if options.precision == "float16":
            cause = " in float16, which ends at 65,504; bfloat16 reaches as far as float32"
        place = error.site, error.layer, error.count, error.where
        raise NonFiniteError(*place, cause=cause, remedy=_REMEDY) from error


def _create(job: Job, loaded: LoadedModel, tokens: Tokens) -> tuple[str, ...]:
    """Create the group of a stack and the arrays of its sites; return the sites to be written."""
    from flows.capture.sites import site_shapes

    stack, sites = loaded.stack, wanted_sites(job, loaded)
    create_model(
        job.repository,
        job.corpus.name,
        job.checkpoint.model,
        stack=stack.name,
        arrays=[
            ArraySpec(
                site_variable(shape.name),
                {**shape.kept_sizes, TOKEN: tokens.n_rows},
                site_facts(job, tokens, shape.name),
            )
            for shape in site_shapes(stack, sites, job.options.layers, tokens.longest)
        ],
        tokens=shown_tokens(loaded, tokens).coordinates(),
        attributes=model_facts(job, loaded, tokens),
        codec=job.options.codec,
    )
    return sites


def _provenance(job: Job, tokens: Tokens, loaded: LoadedModel) -> dict[str, JSON]:
    precision = job.options.precision
    return {
        "revision": job.checkpoint.revision,
        "weights_sha256": job.weights.weights_sha256,
        "weight_files": dict(job.weights.files),
        "tokens_sha256": tokens.sha256(),
        "source_dtype": loaded.source_dtype,
        "precision": "" if precision == FULL_PRECISION else precision,
        "checkpoint": job.checkpoint.place,
        "versions": {
            **{name: version(name) for name in _RECORDED_VERSIONS},
            "attention": loaded.attention,
        },
    }
