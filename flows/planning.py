"""What an ingest would do: tokens, bytes, files, time, and whether it fits; no model is loaded."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from flows.capture.configs import load_config
from flows.capture.tokens import Tokens
from flows.ingestion import DEFAULT_OPTIONS, is_stored, prepare_job
from flows.inputs import corpus_inputs, read_corpus
from flows.running import DEFAULT_SITES, CaptureOptions, Job
from store.layout import chunk_rows, token_chunks
from store.repository import Repository
from store.schema import (
    BLOCK,
    DIM,
    HEAD,
    HEAD_DIM,
    KEY_POSITION,
    KEY_VALUE_HEAD,
    LAYER,
    SITES,
    STEP,
    TOKEN,
)

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from flows.capture.checkpoints import Checkpoint

_FORWARD_EFFICIENCY: Final = 0.5
"""Share of the speed of one large matrix product that a forward pass and its writing reach."""

_PARAMETERS_OF_A_BLOCK: Final = 12
"""Weights of a block of the usual proportions, in units of the squared width."""

_VALUE_BYTES: Final = 4


@dataclass(frozen=True)
class PlannedStep:
    """What an ingest would do about one checkpoint.

    Attributes:
        path: Group of the model.
        step: Training step.
        stored: Whether it is there already; then nothing would be done.
        tokens: Length of the token axis.
        raw_bytes: Bytes of its activations before compression: the most that is written.
        files: Chunks that hold them.
        seconds: Time on this CPU, roughly.
        sequences: Sequences of the corpus.
        truncated_sequences: Those that are longer than the model takes, and would be cut.
    """

    path: str
    step: int
    stored: bool
    tokens: int
    raw_bytes: int
    files: int
    seconds: float
    sequences: int
    truncated_sequences: int


@dataclass(frozen=True)
class IngestPlan:
    """What an ingest would do.

    Attributes:
        steps: One entry a checkpoint.
        free_bytes: Free space where the store is, None for an object store.
    """

    steps: tuple[PlannedStep, ...]
    free_bytes: int | None

    @property
    def missing(self) -> tuple[PlannedStep, ...]:
        """The checkpoints that would be run."""
        return tuple(step for step in self.steps if not step.stored)

    @property
    def raw_bytes(self) -> int:
        """The most that would be written."""
        return sum(step.raw_bytes for step in self.missing)

    @property
    def fits(self) -> bool:
        """Whether that is free, as far as one can know."""
        return self.free_bytes is None or self.raw_bytes <= self.free_bytes


def plan_ingest(
    store_uri: str,
    checkpoints: Sequence[Checkpoint],
    corpus: str,
    *,
    options: CaptureOptions = DEFAULT_OPTIONS,
) -> IngestPlan:
    """Find out what ingesting checkpoints would do.

    Checkpoint files are digested and the corpus is tokenized, as for an ingest; sizes come from
    the configs. Sites that a model turns out not to have are counted all the same.

    Args:
        store_uri: The store.
        checkpoints: Checkpoints from :func:`flows.capture.find_checkpoints`.
        corpus: Name of a corpus in the store.
        options: How they would be run and stored.

    Raises:
        UnknownNameError: If the store has no such corpus.
        IdentityConflictError: If something else is stored under a step.
        CaptureError: If a checkpoint is damaged or lacks its tokenizer.
    """
    repository = Repository.open(store_uri)
    source = read_corpus(repository, corpus)
    flops = _matrix_flops()
    known: dict[str, list[_Part]] = {}
    steps = []
    for checkpoint in checkpoints:
        job = prepare_job(repository, source, checkpoint, options)
        key = f"{job.weights.tokenizer_sha256} {job.weights.config_sha256}"
        if key not in known:
            known[key] = _parts(job)
        steps.append(_planned(job, known[key], flops))
    directory = repository.location.directory
    return IngestPlan(
        tuple(steps), None if directory is None else shutil.disk_usage(directory).free
    )


@dataclass(frozen=True)
class _Part:
    """What a stack of blocks would be run over.

    Attributes:
        sizes: Size of every dimension that a site of it may have.
        tokens: Its tokens, or rows.
    """

    sizes: Mapping[str, int]
    tokens: Tokens


def _parts(job: Job) -> list[_Part]:
    config, shown = load_config(job.checkpoint), corpus_inputs(job.corpus, job.checkpoint)
    if isinstance(shown, Tokens):
        return [_Part(_sizes(config, shown), shown)]
    from flows.capture.untrained import outline

    stacks = outline(job.checkpoint, shown.shapes())
    parts = [(stack, shown.tokens(stack.extent)) for stack in stacks]
    return [
        _Part(_dimensions(stack.n_blocks, stack.width, config, tokens), tokens)
        for stack, tokens in parts
    ]


def _planned(job: Job, parts: Sequence[_Part], flops: float) -> PlannedStep:
    """Return what would be done about a checkpoint, all of its stacks together."""
    each = [_planned_part(job, part, flops) for part in parts]
    return replace(
        each[0],
        tokens=sum(part.tokens for part in each),
        raw_bytes=sum(part.raw_bytes for part in each),
        files=sum(part.files for part in each),
        seconds=sum(part.seconds for part in each),
    )


def _planned_part(job: Job, part: _Part, flops: float) -> PlannedStep:
    sizes, tokens = part.sizes, part.tokens
    values, arrays = 0, 0
    for name in job.options.sites or DEFAULT_SITES:
        dims = [dim for dim in SITES[name].dims if dim not in (STEP, TOKEN)]
        values += math.prod(sizes[dim] for dim in dims)
        arrays += math.prod(sizes[dim] for dim in dims if dim in (LAYER, BLOCK))
    parameters = _PARAMETERS_OF_A_BLOCK * sizes[BLOCK] * sizes[DIM] ** 2
    rows = chunk_rows(sizes[DIM], len(tokens))
    return PlannedStep(
        path=job.path,
        step=job.checkpoint.step,
        stored=is_stored(job),
        tokens=len(tokens),
        raw_bytes=values * len(tokens) * _VALUE_BYTES,
        files=arrays * token_chunks(len(tokens), rows),
        seconds=2 * parameters * len(tokens) / (flops * _FORWARD_EFFICIENCY),
        sequences=tokens.n_sequences,
        truncated_sequences=tokens.truncated,
    )


def _sizes(config: PreTrainedConfig, tokens: Tokens) -> Mapping[str, int]:
    """Return the size of every dimension that a site may have, from a config."""
    text = config.get_text_config()
    return _dimensions(int(text.num_hidden_layers), int(text.hidden_size), text, tokens)


def _dimensions(
    blocks: int, width: int, text: PreTrainedConfig, tokens: Tokens
) -> Mapping[str, int]:
    own = getattr(text, "num_attention_heads", None)
    heads = own if isinstance(own, int) else 1
    return {
        LAYER: blocks + 1,
        BLOCK: blocks,
        DIM: width,
        HEAD: heads,
        KEY_VALUE_HEAD: int(getattr(text, "num_key_value_heads", None) or heads),
        HEAD_DIM: int(getattr(text, "head_dim", None) or width // heads),
        KEY_POSITION: int(tokens.lengths.max()),
    }


def _matrix_flops(size: int = 512, repeats: int = 8) -> float:
    """Measure how many floating-point operations a second large matrix products reach here."""
    matrix = np.ones((size, size), dtype=np.float32)
    matrix @ matrix
    started = time.perf_counter()
    for _ in range(repeats):
        matrix @ matrix
    return 2 * size**3 * repeats / (time.perf_counter() - started)
