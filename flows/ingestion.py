"""One checkpoint into the store: find out whether it is there, run the model, commit once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, TypeAlias

from flows.capture.fingerprints import Fingerprint, fingerprint
from flows.inputs import Corpus, corpus_tokens, read_corpus
from flows.streaming import stream
from store.catalogue import find_step
from store.create import ArraySpec, create_model
from store.errors import UnknownNameError
from store.identity import JSON, identity_difference
from store.repository import Repository
from store.schema import SITES, TOKEN, node_name
from store.slots import AlreadyStored
from store.write import reserve_step

if TYPE_CHECKING:
    from flows.capture.checkpoints import Checkpoint
    from flows.capture.tokens import Tokens
    from flows.capture.weights import LoadedModel

Progress: TypeAlias = "Callable[[int, int], None]"

DEFAULT_SITES: Final = ("residual", "final_norm")
"""What is kept unless told otherwise, as far as the model has it."""

RIVAL_WAIT: Final = timedelta(minutes=10)
"""How long to wait for another living writer of the same step before giving up on it."""

_RECORDED_VERSIONS: Final = ("actlas", "icechunk", "numpy", "torch", "transformers", "zarr")


@dataclass(frozen=True)
class CaptureOptions:
    """How a checkpoint is run and stored.

    Attributes:
        sites: What to keep; None for :data:`DEFAULT_SITES`, as far as the model has them.
        device: A torch device, or ``auto`` for CUDA if there is any.
        batch_tokens: Tokens of a batch, by the device when None.
        allow_nonfinite: Store NaN and infinity, counted, instead of refusing them.
        supersede: Replace what is stored under the step from other weights or other inputs.
    """

    sites: tuple[str, ...] | None = None
    device: str = "auto"
    batch_tokens: int | None = None
    allow_nonfinite: bool = False
    supersede: bool = False


DEFAULT_OPTIONS: Final = CaptureOptions()


@dataclass(frozen=True)
class IngestResult:
    """What became of one checkpoint.

    Attributes:
        path: Group of the model, ``CORPUS/MODEL``.
        step: Training step.
        ingested: Whether a model was run; False when all of it was there already.
        sites: Sites the store holds for the step.
        stored_bytes: Encoded bytes of its activations.
        loss: Loss of the model over the corpus in nats a token, NaN if it has none.
        seconds: Time taken.
    """

    path: str
    step: int
    ingested: bool
    sites: tuple[str, ...]
    stored_bytes: int
    loss: float
    seconds: float


def ingest_checkpoint(
    store_uri: str,
    checkpoint: Checkpoint,
    corpus: str,
    *,
    options: CaptureOptions = DEFAULT_OPTIONS,
    progress: Progress | None = None,
) -> IngestResult:
    """Store a checkpoint's activations over a corpus, unless they are there.

    Nothing becomes visible before all of it is there. What is stored under the same step is
    compared by what it was made from, never by its name alone.

    Args:
        store_uri: The store.
        checkpoint: A checkpoint from :func:`flows.capture.find_checkpoints`.
        corpus: Name of a corpus in the store.
        options: How it is run and stored.
        progress: Called with the number of tokens just done, and of all.

    Raises:
        UnknownNameError: If the store has no such corpus.
        IdentityConflictError: If something else is stored under the same step or model name.
        StoreError: If the store cannot take it: full, or another writer has the step.
        CaptureError: If the checkpoint cannot be read or run.
    """
    started = time.monotonic()
    repository = Repository.open(store_uri)
    source = read_corpus(repository, corpus)
    weights = fingerprint(checkpoint)
    path = model_path(corpus, checkpoint)
    identity = step_identity(source, weights)
    ingested = False
    if not is_stored(repository, path, checkpoint.step, identity, options):
        ingested = _run(repository, source, checkpoint, weights, identity, options, progress)
    held = find_step(repository, path, checkpoint.step)
    assert held is not None
    return IngestResult(
        path=path,
        step=held.step,
        ingested=ingested,
        sites=held.sites,
        stored_bytes=held.stored_bytes,
        loss=held.loss,
        seconds=time.monotonic() - started,
    )


def model_path(corpus: str, checkpoint: Checkpoint) -> str:
    """Return the group of a checkpoint's model over a corpus."""
    return f"{corpus}/{node_name(checkpoint.model)}"


def step_identity(corpus: Corpus, weights: Fingerprint) -> dict[str, JSON]:
    """Return everything that changes the values of a step, known without running the model.

    Versions of libraries are recorded with the step rather than compared: a new one is no reason
    to refuse the checkpoints that come after it. With the config they say which attention the
    model's default was.
    """
    return {
        "weights_sha256": weights.weights_sha256,
        "config_sha256": weights.config_sha256,
        "tokenizer_sha256": weights.tokenizer_sha256 if corpus.has_text else None,
        "corpus": corpus.identity(),
        "dtype": "as stored",
        "attention": "default",
    }


def is_stored(
    repository: Repository,
    path: str,
    step: int,
    identity: dict[str, JSON],
    options: CaptureOptions,
) -> bool:
    """Tell whether a step is there with all that is wanted of it, before any model is loaded.

    Raises:
        IdentityConflictError: If something else is there and is not to be superseded.
    """
    try:
        held = find_step(repository, path, step)
    except UnknownNameError:
        return False
    if held is None:
        return False
    if identity_difference(held.identity, identity):
        if not options.supersede:
            # It refuses, and says what differs.
            reserve_step(repository, path, step, identity=identity)
        return False
    return set(options.sites or ()) <= set(held.sites)


def _run(
    repository: Repository,
    source: Corpus,
    checkpoint: Checkpoint,
    weights: Fingerprint,
    identity: dict[str, JSON],
    options: CaptureOptions,
    progress: Progress | None,
) -> bool:
    """Run a model over a corpus and commit; False if another process was faster."""
    # Here, not above: torch takes seconds to import, and what is stored needs none of it.
    from flows.capture.forward import capture
    from flows.capture.weights import load_model

    tokens = corpus_tokens(source, checkpoint)
    loaded = load_model(checkpoint, device=options.device)
    sites = _create(repository, source, checkpoint, loaded, tokens, options.sites)
    writer = reserve_step(
        repository,
        model_path(source.name, checkpoint),
        checkpoint.step,
        identity=identity,
        sites=sites,
        supersede=options.supersede,
        allow_nonfinite=options.allow_nonfinite,
        wait=RIVAL_WAIT,
    )
    if isinstance(writer, AlreadyStored):
        return False
    with writer:
        blocks = capture(
            loaded,
            tokens,
            writer.sites,
            block_rows=writer.chunk_rows,
            batch_tokens=options.batch_tokens,
            allow_nonfinite=True,  # the writer looks, in its own thread, and knows the step
            progress=None if progress is None else lambda done: progress(done, len(tokens)),
        )
        stream(blocks, writer)
        writer.commit(provenance=_provenance(checkpoint, weights, tokens, loaded))
    return True


def _create(
    repository: Repository,
    source: Corpus,
    checkpoint: Checkpoint,
    loaded: LoadedModel,
    tokens: Tokens,
    wanted: tuple[str, ...] | None,
) -> tuple[str, ...]:
    """Create the model's group and the arrays of its sites; return the sites to be written."""
    from flows.capture.sites import available_sites, site_shapes

    available = available_sites(loaded.stack)
    sites = wanted or tuple(name for name in DEFAULT_SITES if name in available)
    create_model(
        repository,
        source.name,
        checkpoint.model,
        arrays=[
            ArraySpec(SITES[shape.name], {**shape.sizes, TOKEN: len(tokens)})
            for shape in site_shapes(loaded.stack, sites)
        ],
        tokens=tokens.coordinates(),
        attributes={
            "model_type": loaded.model_type,
            "causal": loaded.causal,
            "n_blocks": loaded.stack.n_blocks,
            "width": loaded.stack.width,
            "special_tokens": source.special_tokens,
            "n_sequences": tokens.n_sequences,
            "truncated_sequences": tokens.truncated,
            "corpus_sha256": source.content_sha256,
        },
    )
    return sites


def _provenance(
    checkpoint: Checkpoint, weights: Fingerprint, tokens: Tokens, loaded: LoadedModel
) -> dict[str, JSON]:
    return {
        "revision": checkpoint.revision,
        "weights_sha256": weights.weights_sha256,
        "weight_files": dict(weights.files),
        "tokens_sha256": tokens.sha256(),
        "source_dtype": loaded.source_dtype,
        "versions": {name: version(name) for name in _RECORDED_VERSIONS},
    }
