"""What flows are asked to do: validated, and explained field by field in the form of a run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from flows.capture.chosen import ALL, SAMPLE, row_choice
from flows.capture.errors import UnknownSiteError
from flows.capture.rounding import FULL_PRECISION, Precision
from flows.job import CaptureOptions, Dtype, require_known_sites
from flows.measurement import MeasureOptions
from store.codec import DEFAULT_CODEC, Codec

if TYPE_CHECKING:
    from flows.survey import Watched

STORE_VARIABLE: Final = "ACTLAS_STORE"
DEFAULT_STORE: Final = "./activations"
DASK_VARIABLE: Final = "ACTLAS_DASK"

SIX_HOURS: Final = 6 * 3600
MONTH: Final = 30 * 24 * 3600

_SITES_MEASURED: Final = "What is measured, as `actlas ls` shows it: residual, query, key …"


def _default_store() -> str:
    return os.environ.get(STORE_VARIABLE, DEFAULT_STORE)


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    store: str = Field(
        default_factory=_default_store,
        description="The activation store, a path or URI; ACTLAS_STORE of the worker when empty.",
    )
    time_limit: int = Field(
        default=SIX_HOURS,
        ge=60,
        le=MONTH,
        description="Seconds that one checkpoint or model may take before its process is ended.",
    )


class _Captured(_Request):
    corpus: str = Field(description="Name of a corpus in the store.")
    sites: list[str] | None = Field(
        default=None, description="What to keep; residual and final_norm when empty."
    )
    blocks: str | None = Field(
        default=None, description="Dotted name of the list of blocks, where it is not found."
    )
    layers: list[int] | None = Field(default=None, description="Layers kept; all when empty.")
    rows: Literal["all", "last", "first", "mean"] = Field(
        default="all", description="Rows kept of a sequence."
    )
    tokens_per_sequence: int | None = Field(
        default=None, ge=1, description="Keep only so many tokens of each sequence, drawn."
    )
    dtype: Dtype | None = Field(
        default=None, description="What models compute in; as their weights are stored when empty."
    )
    device: str = Field(default="auto", description="A torch device, or auto for CUDA if any.")
    batch_tokens: int | None = Field(
        default=None, ge=1, le=1 << 20, description="Tokens of a batch; by the device when empty."
    )
    precision: Precision = Field(
        default=FULL_PRECISION, description="Dtype to whose values activations are rounded."
    )
    codec: Codec = Field(
        default=DEFAULT_CODEC,
        description="Compressor of new arrays: zstd, or lz4 for readers that lack zstd.",
    )
    allow_nonfinite: bool = Field(
        default=False, description="Store NaN and infinity, counted, instead of refusing them."
    )
    truncate: bool = Field(
        default=True, description="Cut sequences longer than the model takes; else refuse them."
    )
    supersede: bool = Field(
        default=False, description="Replace steps stored from other weights or other inputs."
    )
    trust_remote_code: bool = Field(
        default=False, description="Let Python code that comes with a checkpoint run."
    )

    @field_validator("sites")
    @classmethod
    def _known(cls, sites: list[str] | None) -> list[str] | None:
        try:
            require_known_sites(sites or ())
        except UnknownSiteError as error:
            raise ValueError(str(error)) from error
        return sites

    def capture_options(self) -> CaptureOptions:
        """Return how each checkpoint is run and stored."""
        return CaptureOptions(
            sites=None if self.sites is None else tuple(self.sites),
            blocks=self.blocks,
            layers=None if self.layers is None else tuple(sorted(set(self.layers))),
            rows=row_choice(self.rows, self.tokens_per_sequence),
            dtype=self.dtype,
            device=self.device,
            batch_tokens=self.batch_tokens,
            precision=self.precision,
            codec=self.codec,
            allow_nonfinite=self.allow_nonfinite,
            truncate=self.truncate,
            supersede=self.supersede,
        )


class _Measured(_Request):
    metrics: list[str] | None = Field(default=None, description="Metrics; all when empty.")
    populations: list[str] | None = Field(
        default=None,
        description="Rows measured: all, content, typical, unit, or expressions such as"
        " 'content and position < 64'; all four when empty.",
    )
    sample: int = Field(
        default=10_000, ge=10, description="Tokens among which neighbours are sought."
    )
    seed: int = Field(default=0, description="Seed of that sample.")
    exclude_own_sequence: bool = Field(
        default=False, description="Seek the neighbours of a token in other sequences only."
    )
    memory: int | None = Field(
        default=None, ge=1, description="Bytes that each worker has; not limited when empty."
    )
    scheduler: str = Field(
        default_factory=lambda: os.environ.get(DASK_VARIABLE, "threads"),
        description="Where Dask runs: threads, local:N, slurm:FILE, k8s:FILE or an address;"
        " ACTLAS_DASK of the worker when empty.",
    )
    dask_pages: str | None = Field(
        default=None, description="Folder for a page of Dask about each model it has computed."
    )

    report: str | None = Field(
        default=None, description="File to write the report page to after each run with news."
    )

    def _measure_options(self, sites: list[str]) -> MeasureOptions:
        return MeasureOptions(
            sites=tuple(sites),
            metrics=None if self.metrics is None else tuple(self.metrics),
            populations=None if self.populations is None else tuple(self.populations),
            sample=self.sample,
            seed=self.seed,
            scheduler=self.scheduler,
            exclude_own_sequence=self.exclude_own_sequence,
            memory=self.memory,
        )


class IngestRequest(_Captured):
    """What to ingest."""

    models: list[str] = Field(
        min_length=1,
        description="Folders of a checkpoint or of checkpoint-N folders, or random:CONFIG.",
    )
    steps: list[int] | None = Field(
        default=None, description="Training steps wanted; all that are found when empty."
    )
    name: str | None = Field(
        default=None,
        description="Name to store the model under; the folder's or Hub id when empty.",
    )
    seed: int = Field(default=0, ge=0, description="Seed of models random:CONFIG.")
    steps_table: dict[str, int] = Field(
        default_factory=dict,
        description="Steps of revisions, repositories or folders whose names do not tell them.",
    )
    clean_cache: bool = Field(
        default=False,
        description="Delete what was fetched of a checkpoint once it is stored.",
    )
    workers: int = Field(
        default=1,
        ge=1,
        description="Checkpoints run side by side, each by a process with a GPU of its own.",
    )
    ignore_space: bool = Field(
        default=False, description="Run even if the disk cannot hold what will be stored."
    )

    @model_validator(mode="after")
    def _one_name_for_one_model(self) -> Self:
        if self.name is not None and len(self.models) > 1 and not self.steps_table:
            raise ValueError("name goes with one model, or with a steps_table")
        return self


class MeasureRequest(_Measured):
    """What to measure."""

    corpus: str | None = Field(default=None, description="Only this corpus; every one when empty.")
    models: list[str] | None = Field(
        default=None, description="Only these models, by the names `actlas ls` shows."
    )
    steps: list[int] | None = Field(default=None, description="Training steps; all when empty.")
    layers: list[int] | None = Field(default=None, description="Layers; all when empty.")
    sites: list[str] = Field(default=["residual"], min_length=1, description=_SITES_MEASURED)

    def measure_options(self) -> MeasureOptions:
        """Return what to measure of each model and how."""
        return self._measure_options(self.sites)


class WatchRequest(_Captured, _Measured):
    """What to watch, and what to do with each checkpoint that appears."""

    sources: list[str] = Field(
        min_length=1,
        description="Folders of checkpoint-N folders, or OWNER/NAME on the Hub with all its steps.",
    )
    settle: float = Field(
        default=30,
        ge=0,
        le=3600,
        description="Seconds that a checkpoint has to be at rest before it counts as written.",
    )
    measure: bool = Field(default=True, description="Compute metrics of what was ingested.")
    measured_sites: list[str] = Field(
        default=["residual"], min_length=1, description=_SITES_MEASURED
    )

    @classmethod
    def of(cls, watched: Watched) -> Self:
        """Return the request for what `actlas watch` would do."""
        capture, measured = watched.capture, watched.measure or MeasureOptions()
        rows = ALL if capture.rows.kind == SAMPLE else capture.rows.kind
        stated = {**vars(capture), **vars(measured)}
        return cls.model_validate(
            {name: value for name, value in stated.items() if name in cls.model_fields}
            | {
                "store": watched.store,
                "sources": watched.sources,
                "corpus": watched.corpus,
                "sites": capture.sites,
                "rows": rows,
                "tokens_per_sequence": capture.rows.per_sequence,
                "measure": watched.measure is not None,
                "measured_sites": measured.sites,
                "settle": watched.settle,
                "trust_remote_code": watched.trusted,
            }
        )

    def measure_options(self) -> MeasureOptions:
        """Return what to measure of each model that is watched, and how."""
        return self._measure_options(self.measured_sites)
