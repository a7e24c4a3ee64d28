"""The model of a job, and the rows that each of its stacks makes of what it is shown."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flows.capture.chosen import MEAN, choose_rows
from flows.capture.errors import CheckpointError, InputError, TokenizerError
from flows.capture.masks import MASKED, draw_masks
from flows.capture.settling import file_states
from flows.capture.tokenizer import load_tokenizer
from flows.capture.tokens import Tokens
from flows.job import DEFAULT_SITES
from flows.losses import TOKEN_LOSS
from store.schema import HEAD, HEAD_DIM, SITES

if TYPE_CHECKING:
    from flows.capture.items import Items
    from flows.capture.weights import LoadedModel
    from flows.job import CaptureOptions, Job


def load_job(job: Job, shown: Tokens | Items) -> LoadedModel:
    """Load the model of a job so that all sites asked for can be captured.

    Args:
        job: The job.
        shown: What the model is to be shown.

    Raises:
        CheckpointError: If it cannot be read, or has changed since it was digested.
    """
    # Here, not above: torch takes seconds to import, and what is stored needs none of it.
    from flows.capture.devices import dtype_named
    from flows.capture.weights import load_model

    loaded = load_model(
        job.checkpoint,
        device=job.options.device,
        dtype=dtype_named(job.options.dtype),
        attention="eager" if _needs_probabilities(job.options) else None,
        head=TOKEN_LOSS in (job.options.sites or ()),
        shown=None if isinstance(shown, Tokens) else shown.shapes(),
        blocks=job.options.blocks,
    )
    if file_states(job.checkpoint) != job.states:
        raise CheckpointError(
            f"{job.checkpoint.source} step {job.checkpoint.step} was written to while it was read,"
            " so that its digests may not be those of its weights; ingest it when it is whole"
        )
    return loaded


def stack_tokens(loaded: LoadedModel, shown: Tokens | Items) -> Tokens:
    """Return the tokens with which the chosen stack is run: rows, where items are shown."""
    if isinstance(shown, Tokens):
        return replace(shown, rate=loaded.stack.rate)
    prompt = loaded.stack.prompt
    if prompt is not None:
        # Here, not above: it needs torch.
        from flows.capture.prompted import Prompted

        shown = Prompted(shown, prompt)
    return shown.tokens(loaded.stack.extent)


def with_rows(job: Job, loaded: LoadedModel, tokens: Tokens) -> Tokens:
    """Return tokens with the choice of rows that a job keeps of the chosen stack.

    Raises:
        InputError: If a site has no mean, no row is left, or tokens cannot be masked.
    """
    if job.options.rows.kind == MEAN and TOKEN_LOSS in (job.options.sites or ()):
        raise InputError(f"{TOKEN_LOSS} has no value for first tokens: keep it without a mean")
    if loaded.stack.predicts == MASKED:
        tokens = replace(tokens, masks=draw_masks(tokens, _mask_id(job, loaded), job.corpus.seed))
    shown = shown_tokens(loaded, tokens)
    if loaded.stack.prompt is not None:
        # It is shown added tokens alone, of which the last one, or some, are kept as of others.
        shown = replace(shown, special=np.zeros_like(shown.special))
    return choose_rows(tokens, shown, job.options.rows)


def wanted_sites(job: Job, loaded: LoadedModel) -> tuple[str, ...]:
    """Return the sites that a job keeps of the chosen stack.

    Raises:
        UnknownSiteError: If no stack of the model has one of them.
    """
    from flows.capture.sites import sites_here

    return sites_here(loaded.stack, loaded.stacks, job.options.sites or default_sites(loaded))


def default_sites(loaded: LoadedModel) -> tuple[str, ...]:
    """Return the sites that are kept of the chosen stack where none are named."""
    from flows.capture.sites import available_sites

    available = available_sites(loaded.stack)
    return tuple(name for name in DEFAULT_SITES if name in available)


def _mask_id(job: Job, loaded: LoadedModel) -> int:
    """Return the id of the token that hides others from a model."""
    found = getattr(loaded.model.config, "mask_token_id", None)
    if found is None:
        with suppress(TokenizerError):
            found = load_tokenizer(job.checkpoint).mask_token_id
    if not isinstance(found, int):
        raise InputError(
            f"{TOKEN_LOSS} of a {loaded.model_type} is that of masked tokens, and which id masks "
            f"them is not known: expected a tokenizer with a mask token beside "
            f"{job.checkpoint.source}; copy it there"
        )
    return found


def shown_tokens(loaded: LoadedModel, tokens: Tokens) -> Tokens:
    """Return the tokens that the rows of the chosen stack belong to."""
    start = loaded.stack.decoder_start
    return tokens if start is None else tokens.shifted(start)


def _needs_probabilities(options: CaptureOptions) -> bool:
    """Tell whether a site is a property of rows of attention, one a head and token."""
    wanted = [SITES[name] for name in options.sites or () if name in SITES]
    return any(HEAD in site.dims and HEAD_DIM not in site.dims for site in wanted)
