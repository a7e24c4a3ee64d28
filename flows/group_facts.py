"""What the group of a model, or of one of its stacks, says about itself in its attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.capture.masks import MASKED_SHARE
from flows.capture.tokens import Tokens
from flows.job import CaptureOptions, Job
from flows.loading import default_sites
from flows.losses import TOKEN_LOSS
from store.identity import JSON
from store.schema import ENCODER_DECODER, LAYER_CHOICE, ROW_CHOICE, SITES_BY_DEFAULT, TOKEN_RATE

if TYPE_CHECKING:
    from flows.capture.weights import LoadedModel


def model_facts(job: Job, loaded: LoadedModel, tokens: Tokens) -> dict[str, JSON]:
    """Return the attributes of the group of the chosen stack.

    Args:
        job: What is run.
        loaded: Its model.
        tokens: What the stack is shown.
    """
    stack = loaded.stack
    return {
        "model_type": loaded.model_type,
        "causal": stack.causal,
        "n_blocks": stack.n_blocks,
        "width": stack.width,
        "special_tokens": job.corpus.special_tokens,
        "n_sequences": tokens.n_sequences,
        "truncated_sequences": tokens.truncated,
        "corpus_sha256": job.corpus.content_sha256,
        SITES_BY_DEFAULT: [*default_sites(loaded)],
        **_stack_facts(loaded),
        **_block_settings(job),
        **_choices(job.options, stack.n_blocks),
    }


def site_facts(job: Job, tokens: Tokens, site: str) -> dict[str, JSON]:
    """Return the attributes of the array of a site, beside those of its declaration.

    Args:
        job: What is run.
        tokens: What the stack is shown.
        site: Name of the site.
    """
    if site != TOKEN_LOSS or tokens.masks is None:
        return {}
    return {
        "masked_share": MASKED_SHARE,
        "masked_seed": job.corpus.seed,
        "mask_token_id": tokens.masks.mask_id,
    }


def _stack_facts(loaded: LoadedModel) -> dict[str, JSON]:
    """Return how a stack belongs to its model, where its name does not say it all."""
    stack = loaded.stack
    names = [one.name for one in loaded.stacks if one.name is not None]
    facts: dict[str, JSON] = {}
    if names and tuple(names) != ENCODER_DECODER:
        facts["stacks"] = [*names]
    if stack.prompt is not None:
        facts["decoder_input_ids"] = [*stack.prompt]
    if stack.rate > 1:
        facts[TOKEN_RATE] = stack.rate
    if stack.depth_blocks not in (None, stack.n_blocks):
        facts |= {"depth_start": stack.depth_start, "depth_blocks": stack.depth_blocks}
    return facts


def _block_settings(job: Job) -> dict[str, JSON]:
    """Return how a single untrained block was set up, nothing for a model."""
    random = job.checkpoint.random
    return {} if random is None or random.block is None else {**random.block.attributes()}


def _choices(options: CaptureOptions, n_blocks: int) -> dict[str, JSON]:
    """Return which rows and layers are kept, nothing where all are."""
    rows = options.rows.facts()
    chosen: dict[str, JSON] = {ROW_CHOICE: rows} if rows else {}
    if options.layers is None or set(options.layers) == {*range(n_blocks + 1)}:
        return chosen
    return chosen | {LAYER_CHOICE: [*options.layers]}
