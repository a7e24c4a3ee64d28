"""What a monitoring system asks: how much is held, what lags behind, what fails.

The text format is that of Prometheus, version 0.0.4: for a node exporter's textfile collector, or
served for scraping.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flows.survey import Survey, survey
from store.catalogue import catalogue
from store.errors import StoreError
from store.repository import Repository

if TYPE_CHECKING:
    from flows.capture.digests import Digest
    from flows.survey import Watched
    from flows.watching import Round

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LOOPBACK: Final = "127.0.0.1"

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Gauge:
    """One figure, with its value for each combination of labels.

    Attributes:
        name: Its name, after ``actlas_``.
        help: One sentence.
        values: Value by labels.
        kind: ``gauge``, or ``counter`` for what only grows.
    """

    name: str
    help: str
    values: Mapping[Labels, float]
    kind: str = "gauge"


@dataclass
class Counts:
    """What has happened since a watcher was started.

    Attributes:
        rounds: Rounds gone through.
        ingested: Checkpoints stored.
        ingested_bytes: Encoded bytes of their activations.
        failures: Failures by the name of what failed.
        clean_at: When a round last ended without a failure, in seconds since the epoch.
    """

    rounds: int = 0
    ingested: int = 0
    ingested_bytes: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    clean_at: float = 0.0

    def add(self, latest: Round) -> None:
        """Count what a round did."""
        stored = [result for result in latest.ingested if result.ingested]
        self.rounds += 1
        self.ingested += len(stored)
        self.ingested_bytes += sum(result.added_bytes for result in stored)
        for name in latest.failures:
            self.failures[name] = self.failures.get(name, 0) + 1
        if not latest.failures:
            self.clean_at = time.time()

    def gauges(self) -> Iterator[Gauge]:
        """Yield the figures of these counts."""
        failures: dict[Labels, float] = {
            (("name", name),): count for name, count in self.failures.items()
        }
        for name, sentence, count in (
            ("rounds_total", "Rounds of watching.", self.rounds),
            ("ingested_total", "Checkpoints stored by this watcher.", self.ingested),
            ("ingested_bytes_total", "Encoded bytes of their activations.", self.ingested_bytes),
        ):
            yield Gauge(name, sentence, {(): float(count)}, kind="counter")
        yield Gauge("failures_total", "Failures, by what failed.", failures, kind="counter")
        yield Gauge(
            "last_clean_round_timestamp_seconds",
            "When a round last ended without a failure.",
            {(): self.clean_at},
        )


def held_gauges(repository: Repository) -> Iterator[Gauge]:
    """Yield what a store holds, by corpus and model.

    Args:
        repository: The store.
    """
    steps: dict[Labels, float] = {}
    newest: dict[Labels, float] = {}
    stored: dict[Labels, float] = {}
    for model in catalogue(repository):
        labels = (("corpus", model.corpus), ("model", model.model), ("stack", model.stack or ""))
        complete = [step.step for step in model.steps if step.complete]
        steps[labels] = len(complete)
        newest[labels] = max(complete, default=-1)
        stored[labels] = model.stored_bytes
    yield Gauge("steps", "Complete steps in the store.", steps)
    yield Gauge("newest_step", "Newest complete step, -1 for none.", newest)
    yield Gauge("stored_bytes", "Encoded bytes of activations in the store.", stored)


def survey_gauges(found: Survey) -> Iterator[Gauge]:
    """Yield how far a store is behind the sources of checkpoints.

    Args:
        found: What was found in the sources.
    """
    newest: dict[Labels, float] = {
        (("model", model),): step for model, step in found.newest.items()
    }
    broken: dict[Labels, float] = {(("name", name),): 1 for name in found.broken}
    yield Gauge("source_newest_step", "Newest step that a source has.", newest)
    yield Gauge("missing", "Whole checkpoints not in the store.", {(): len(found.missing)})
    yield Gauge("unfinished", "Checkpoints being written.", {(): len(found.unfinished)})
    yield Gauge("broken", "Checkpoints and sources that cannot be read.", broken)
    yield Gauge(
        "lag_seconds",
        "Age of the missing checkpoint that has waited longest.",
        {(): found.lag},
    )


def exposition(gauges: Sequence[Gauge]) -> str:
    """Return figures in the text format of Prometheus."""
    lines: list[str] = []
    for gauge in gauges:
        name = f"actlas_{gauge.name}"
        lines += [f"# HELP {name} {gauge.help}", f"# TYPE {name} {gauge.kind}"]
        for labels, value in gauge.values.items():
            lines.append(f"{name}{_braced(labels)} {value:.17g}")
    return "\n".join(lines) + "\n"


def _braced(labels: Labels) -> str:
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{shown}}}" if shown else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def write_exposition(file: Path, gauges: Sequence[Gauge]) -> None:
    """Write figures to a file that is never half there, readable for the collector.

    Args:
        file: Ends in ``.prom`` for the textfile collector.
        gauges: The figures.
    """
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    aside.write_text(exposition(gauges))
    aside.replace(file)


def serve_metrics(port: int, figures: Callable[[], Sequence[Gauge]]) -> HTTPServer:
    """Open ``/metrics`` on loopback; the caller serves and closes it.

    Args:
        port: Port, 0 for a free one.
        figures: Gives the figures, called for each request.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "only /metrics is here")
                return
            try:
                body = exposition(figures()).encode()
            except (StoreError, OSError) as error:
                self.send_error(503, "the store cannot be read", str(error))
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Leave the log to what goes wrong."""

    return HTTPServer((LOOPBACK, port), Handler)


def gather(store: str, watched: Watched | None, digest: Digest) -> list[Gauge]:
    """Return what a store holds, and how far it is behind its sources.

    Args:
        store: The store.
        watched: Where checkpoints appear; None to leave that out.
        digest: What gives the SHA-256 of a file.

    Raises:
        StoreError: If there is no store, or no such corpus in it.
    """
    gauges = [*held_gauges(Repository.open(store, read_only=True))]
    if watched is not None:
        gauges += survey_gauges(survey(watched, digest))
    return [*gauges, _gathered()]


def round_gauges(watched: Watched, latest: Round, counts: Counts) -> list[Gauge]:
    """Return what a round of watching found and did, and what the store holds after it.

    A store that cannot be read now leaves its figures out: the others tell why.
    """
    gauges = [*counts.gauges(), *survey_gauges(latest.survey), _gathered()]
    with suppress(StoreError, OSError):
        gauges += held_gauges(Repository.open(watched.store, read_only=True))
    return gauges


def _gathered() -> Gauge:
    """Return the time of a gathering, by which a collector sees that it still goes on."""
    return Gauge("gathered_timestamp_seconds", "When this was gathered.", {(): time.time()})
