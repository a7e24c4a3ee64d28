"""What a run leaves to be looked at in Prefect's pages: a table, a figure, progress, a link."""

from __future__ import annotations

import base64
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, cast
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import (
    create_image_artifact,
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from analysis.compute import MeasureReport
from analysis.curves import Abscissa
from analysis.errors import AnalysisError
from analysis.metrics import METRICS
from flows.console import byte_size, duration
from flows.ingestion import IngestResult
from store.metrics import open_metrics
from store.schema import STEP

SHOWN: Final = ("average_cosine", "svd_anisotropy", "two_nn")
"""Metrics of the figure, as far as they were computed."""

_TABLE_ROWS: Final = 200
_LEAST_SECONDS: Final = 5.0
"""Time between two updates of the progress, each of which takes a tenth of a second."""


class Progress:
    """A bar for the checkpoints of a run; nothing where there are none."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._shown_at = 0.0
        self._artifact: UUID | None = None

    def __enter__(self) -> Self:
        if self._total:
            found = create_progress_artifact(
                progress=0.0, key="actlas-progress", description="Checkpoints of this run."
            )
            self._artifact = cast("UUID", found)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._show()

    def advance(self) -> None:
        """Note that one more checkpoint is done with."""
        self._done += 1
        if time.monotonic() - self._shown_at >= _LEAST_SECONDS:
            self._show()

    def _show(self) -> None:
        if self._artifact is not None:
            self._shown_at = time.monotonic()
            update_progress_artifact(self._artifact, progress=100 * self._done / self._total)


def show_ingested(results: Sequence[IngestResult], failures: Mapping[str, str]) -> None:
    """Leave a table of what became of each checkpoint, failures first."""
    rows: list[dict[str, object]] = [
        {"checkpoint": name, "outcome": "failed", "what": reason}
        for name, reason in failures.items()
    ]
    rows += [
        {
            "checkpoint": f"{result.path} step {result.step}",
            "outcome": "stored" if result.ingested else "was there",
            "what": f"{byte_size(_bytes(result))} in {duration(result.seconds)}",
        }
        for result in results
    ]
    create_table_artifact(
        rows[:_TABLE_ROWS],
        key="actlas-ingested",
        description=f"{len(results)} checkpoints done, {len(failures)} failures.",
    )


def _bytes(result: IngestResult) -> int:
    return result.added_bytes if result.ingested else result.stored_bytes


def show_measured(reports: Sequence[MeasureReport], scheduler: str) -> None:
    """Leave a table of what was computed of each model, from how many bytes, and how fast.

    Args:
        reports: What was measured.
        scheduler: Where it was computed.
    """
    rows = [
        {
            "model": report.path,
            "computed": report.computed,
            "up to date": report.up_to_date,
            "read": f"{report.slabs} layers, {byte_size(report.bytes_read)}",
            "took": duration(report.seconds),
            "rate": f"{byte_size(round(report.bytes_read / report.seconds))}/s",
        }
        for report in reports
        if report.computed
    ]
    create_table_artifact(
        rows[:_TABLE_ROWS], key="actlas-measured", description=f"Computed by Dask: {scheduler}."
    )


def dask_page(folder: str | None, path: str) -> Path | None:
    """Return the file for the page of Dask about a model, None where none is wanted.

    Args:
        folder: Where the pages are; it is made.
        path: Group of the model.
    """
    if folder is None:
        return None
    place = Path(folder).expanduser().resolve()
    place.mkdir(parents=True, exist_ok=True)
    return place / f"dask-{path.replace('/', '--')}.html"


def show_dask(reports: Sequence[MeasureReport], folder: str | None) -> None:
    """Leave links to the pages of Dask about what was computed; threads have none."""
    pages = {report.path: dask_page(folder, report.path) for report in reports if report.computed}
    links = [
        f"- {path}: [{page}]({page.as_uri()})"
        for path, page in pages.items()
        if page is not None and page.exists()
    ]
    if links:
        create_markdown_artifact(
            "\n".join(links), key="actlas-dask", description="What Dask did, model by model."
        )


def show_figures(store: str, corpus: str, models: Sequence[str]) -> None:
    """Leave a figure of the metrics of some models as they now stand."""
    # matplotlib is optional, and takes a second to import.
    from analysis.figures import plot_metrics

    results = open_metrics(store, corpus=corpus, models=list(models))
    shown = [name for name in SHOWN if name in results and name in METRICS]
    if not shown:
        return
    along: Abscissa = "step" if results.sizes[STEP] > 1 else "relative_depth"
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "metrics.png"
        try:
            plot_metrics(results, shown, x=along, population="content", output=picture)
        except AnalysisError as error:
            get_run_logger().warning("no figure: %s", error)
            return
        encoded = base64.b64encode(picture.read_bytes()).decode()
    create_image_artifact(
        image_url=f"data:image/png;base64,{encoded}",
        key="actlas-figures",
        description=f"Metrics of {', '.join(models)} over {corpus}.",
    )


def show_report(store: str, output: str | None) -> None:
    """Write the report page where one is wanted, and leave a link to it."""
    if output is None:
        return
    from analysis.report import write_report

    written = write_report(store, Path(output).expanduser().resolve())
    # Browsers do not follow links to files from a page of a server, so that its path is shown.
    create_link_artifact(
        link=written.as_uri(),
        link_text=str(written),
        key="actlas-report",
        description="Everything the store holds and all that was measured.",
    )
