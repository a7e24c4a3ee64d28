"""What is watched, and what is done with it: options of ``watch`` and of ``flows serve|run``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from flows.cli.capture_options import capture_options
from flows.cli.options import NameList, settle_option, store_option, trust_option
from flows.cli.worker_options import dask_option, memory_option

if TYPE_CHECKING:
    from flows.job import CaptureOptions


def watch_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add what says which checkpoints are looked for; the command takes it as one ``watched``."""

    @click.argument("sources", nargs=-1, required=True, metavar="PATH|HUB_ID…")
    @click.option("--corpus", required=True, metavar="NAME", help="A corpus added before.")
    @settle_option
    @capture_options
    @trust_option
    @click.option(
        "--metrics",
        type=NameList(),
        metavar="A,B|none",
        help="Metrics computed of what was stored; none for none.  [default: all]",
    )
    @click.option(
        "--measured-sites",
        type=NameList(),
        default="residual",
        show_default=True,
        metavar="A,B",
        help="What is measured of what was stored.",
    )
    @memory_option
    @dask_option
    @store_option
    @functools.wraps(command)
    def with_watched(
        *,
        sources: tuple[str, ...],
        corpus: str,
        settle: timedelta,
        options: CaptureOptions,
        trusted: bool,
        metrics: tuple[str, ...] | None,
        measured_sites: tuple[str, ...],
        memory: int | None,
        scheduler: str,
        store: str,
        **others: object,
    ) -> object:
        from flows.measurement import MeasureOptions
        from flows.survey import Watched

        measured = MeasureOptions(
            metrics=metrics, sites=measured_sites, scheduler=scheduler, memory=memory
        )
        watched = Watched(
            store=store,
            sources=sources,
            corpus=corpus,
            capture=options,
            measure=None if metrics == ("none",) else measured,
            settle=settle.total_seconds(),
            trusted=trusted,
        )
        return command(watched=watched, **others)

    return with_watched
