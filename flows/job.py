"""What is to be run: one checkpoint over one corpus, and how it is to be stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from flows.capture.chosen import RowChoice
from flows.capture.errors import UnknownSiteError
from flows.capture.rounding import FULL_PRECISION, Precision
from flows.inputs import Corpus
from store.codec import DEFAULT_CODEC, Codec
from store.errors import suggest
from store.identity import JSON
from store.repository import Repository
from store.schema import BLOCK, MODULE_PREFIX, SITES, depth_dimension, is_site, node_name

if TYPE_CHECKING:
    from flows.capture.checkpoints import Checkpoint
    from flows.capture.fingerprints import Fingerprint

DEFAULT_SITES: Final = ("residual", "final_norm")
"""What is kept unless told otherwise, as far as the model has it."""

ALL_ROWS: Final = RowChoice()

Dtype: TypeAlias = Literal["float32", "bfloat16", "float16"]

RIVAL_WAIT: Final = timedelta(minutes=10)
"""How long to wait for another living writer of the same step before giving up on it."""


def require_known_sites(sites: Iterable[str]) -> None:
    """Refuse names that are those of no site, whatever the model; which ones it has, it tells.

    Raises:
        UnknownSiteError: If there is one.
    """
    for name in sites:
        if not is_site(name) or name == MODULE_PREFIX:
            raise UnknownSiteError(
                f"{name!r} is not a site, nor '{MODULE_PREFIX}PATH' of a module"
                f"{suggest(name, SITES)}"
            )


def _refuse_blocks(sites: Iterable[str]) -> None:
    """Refuse sites of blocks where layer 0 alone is wanted.

    Raises:
        UnknownSiteError: If there is one.
    """
    for name in sites:
        if depth_dimension(name) == BLOCK:
            raise UnknownSiteError(
                f"{name} has no value at layer 0, the embeddings, which are no block: name layers"
                " from 1 on, or other sites"
            )


@dataclass(frozen=True)
class CaptureOptions:
    """How a checkpoint is run and stored.

    Attributes:
        sites: What to keep; None for :data:`DEFAULT_SITES`, as far as the model has them.
        blocks: Dotted name of the list of blocks, for a model where it cannot be found.
        rows: Which rows are kept of each sequence.
        layers: Which layers are kept, and blocks by the layers they give; all when None.
        dtype: What the model computes in; as its weights are stored when None.
        device: A torch device, ``auto`` for CUDA if there is any, or ``split`` over all there are.
        batch_tokens: Tokens of a batch, by the device when None.
        truncate: Cut sequences that are longer than the model takes, instead of refusing them.
        allow_nonfinite: Store NaN and infinity, counted, instead of refusing them.
        supersede: Replace what is stored under the step from other weights or other inputs.
        precision: Dtype to whose values activations are rounded; float32 leaves them as they are.
        codec: What chunks of arrays that are not there yet are compressed with.
        rewrite: Write anew what is stored from the same, because it is damaged.
        rival_wait: How long to wait for another living writer of the same step.

    Raises:
        UnknownSiteError: If a site has a name that no model's can have, or is one of blocks and
            only layer 0 is wanted.
    """

    sites: tuple[str, ...] | None = None
    blocks: str | None = None
    rows: RowChoice = ALL_ROWS
    layers: tuple[int, ...] | None = None
    dtype: Dtype | None = None
    device: str = "auto"
    batch_tokens: int | None = None
    truncate: bool = True
    allow_nonfinite: bool = False
    supersede: bool = False
    precision: Precision = FULL_PRECISION
    codec: Codec = DEFAULT_CODEC
    rewrite: bool = False
    rival_wait: timedelta = RIVAL_WAIT

    def __post_init__(self) -> None:
        require_known_sites(self.sites or ())
        if self.layers is not None and not any(self.layers):
            _refuse_blocks(self.sites or ())

    def identity(self) -> dict[str, JSON]:
        """Return what of it changes the values that are stored under a name, where it is set.

        Which sites and layers are kept does not: more of them may be added later.
        """
        facts: dict[str, JSON] = {
            "blocks": self.blocks,
            "rows": self.rows.facts() or None,
            "dtype": self.dtype,
        }
        return {name: value for name, value in facts.items() if value is not None}

    def like(self, identity: Mapping[str, JSON]) -> CaptureOptions:
        """Return the options with which a step of some identity is run again."""
        blocks, rows = identity.get("blocks"), identity.get("rows")
        dtype = identity.get("dtype")
        return replace(
            self,
            blocks=None if blocks is None else str(blocks),
            rows=RowChoice.of_facts(rows) if isinstance(rows, Mapping) else ALL_ROWS,
            dtype=next((name for name in get_args(Dtype) if name == dtype), None),
        )


@dataclass(frozen=True)
class Job:
    """One checkpoint to be run over one corpus.

    Attributes:
        repository: The store.
        corpus: The corpus.
        checkpoint: The checkpoint.
        weights: Its fingerprint.
        identity: Everything that changes the values.
        grown_from: The same over what the corpus was before it grew, each time.
        options: How it is run and stored.
        states: What its files looked like before they were digested.
    """

    repository: Repository
    corpus: Corpus
    checkpoint: Checkpoint
    weights: Fingerprint
    identity: Mapping[str, JSON]
    grown_from: tuple[Mapping[str, JSON], ...]
    options: CaptureOptions
    states: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Group of the model; the stacks of an encoder-decoder have groups below it."""
        return f"{self.corpus.name}/{node_name(self.checkpoint.model)}"
