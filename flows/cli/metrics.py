"""``actlas compute``, ``show`` and ``plot``: questions to the store, never to a model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.moments import Moment, moment_options
from flows.cli.options import (
    FIGURES,
    Chosen,
    NameList,
    OutputFile,
    complete_metric,
    examples,
    json_option,
    none_stored,
    population_option,
    sample_options,
    selection_options,
    store_option,
)
from flows.cli.selecting import select_option
from flows.cli.worker_options import dask_option, memory_option
from flows.console import (
    duration,
    keep_in_mind,
    print_csv,
    print_json,
    print_table,
    progress_bar,
    say,
)

if TYPE_CHECKING:
    from analysis.compute import MeasureReport
    from analysis.curves import Abscissa, Hue
    from flows.measurement import Target


@click.command(
    short_help="Compute metrics that are missing or stale.",
    epilog=examples(
        "actlas compute",
        "actlas compute average_cosine svd_anisotropy two_nn --models tiny-neox --steps 0,64",
        "actlas compute average_cosine --populations 'content and position < 64,last'",
        "actlas compute --plan",
    ),
)
@click.argument("metrics", nargs=-1, metavar="[METRIC…]", shell_complete=complete_metric)
@selection_options
@click.option(
    "--populations",
    type=NameList(),
    metavar="A,B",
    help="Only these rows: all, content, typical, unit, or an expression such as 'content and"
    " position < 64' or 'last'.  [default: all four]",
)
@click.option(
    "--sites",
    type=NameList(),
    default="residual",
    show_default=True,
    metavar="A,B",
    help="What to measure, as `actlas ls` shows it: residual,query,key,attention_entropy…",
)
@sample_options(10_000)
@click.option(
    "--exclude-own-sequence",
    is_flag=True,
    help="Seek the neighbours of a token in other sequences only.",
)
@memory_option
@dask_option
@click.option("--plan", is_flag=True, help="Say what would be computed; compute nothing.")
@store_option
@json_option
def compute(
    metrics: tuple[str, ...],
    chosen: Chosen,
    populations: tuple[str, ...] | None,
    sites: tuple[str, ...],
    sample: int,
    seed: int,
    exclude_own_sequence: bool,
    memory: int | None,
    scheduler: str,
    plan: bool,
    store: str,
    as_json: bool,
) -> None:
    """Compute metrics of stored activations, what is missing or stale; all metrics by default."""
    from flows.failures import count_failures
    from flows.measurement import MeasureOptions, find_targets, measure_target
    from store.errors import CorruptChunkError, MissingChunkError
    from store.repository import Repository

    options = MeasureOptions(
        metrics=metrics or None,
        populations=populations,
        sample=sample,
        seed=seed,
        scheduler=scheduler,
        exclude_own_sequence=exclude_own_sequence,
        memory=memory,
        sites=sites,
    )
    found = find_targets(Repository.open(store), **asdict(chosen))
    # Where no model has them all, it is said of the first what it has.
    targets = [one for one in found if set(sites) <= set(one.model.sites)] or found
    reports = []
    failures = []
    for target in targets:
        path = target.model.path
        keep_in_mind("the values computed by now are stored; the same command goes on from there")
        try:
            with progress_bar(path) as progress:
                report = measure_target(
                    store, target, options=options, plan=plan, progress=progress
                )
        except (CorruptChunkError, MissingChunkError) as error:
            # The other models can be sound.
            if len(targets) == 1:
                raise
            failures.append(f"\n  {path}: {error}")
            continue
        reports.append(report)
        if not as_json:
            (click.echo if plan else say)(_sentence(report, plan=plan))
    if as_json:
        print_json([asdict(report) for report in reports])
    elif not targets:
        say(none_stored(chosen.corpus))
    elif not plan and not failures:
        _say_left_out(found, targets, sites)
        say("Next: actlas show METRIC, or actlas plot METRIC -o FILE.png")
    if failures:
        raise click.ClickException(
            count_failures("models", len(failures), len(targets)) + "".join(failures)
        )


def _say_left_out(found: list[Target], targets: list[Target], sites: tuple[str, ...]) -> None:
    from store.messages import listed_steps

    left_out = [one.model.path for one in found if one not in targets]
    for one in targets:
        held = one.steps_with(sites)
        if steps := [step for step in one.steps if step not in held]:
            left_out.append(f"{one.model.path} {listed_steps(steps)}")
    if left_out:
        say(f"Left out, since they do not hold {', '.join(sites)}: {', '.join(left_out)}")


def _sentence(report: MeasureReport, *, plan: bool) -> str:
    there = f"{report.up_to_date:,} values up to date"
    if report.left_out:
        there += f"; left out, since not every row is kept: {', '.join(report.left_out)}"
    if plan:
        return f"{report.path}: {report.computed:,} values to compute, {there}"
    took = f" in {duration(report.seconds)}" if report.computed else ""
    return f"{report.path}: {report.computed:,} values computed{took}, {there}"


@click.command(
    short_help="Show the values of a metric.",
    epilog=examples(
        "actlas show two_nn --models tiny-neox --steps 0,1000",
        "actlas show average_cosine --population all --csv > cosine.csv",
    ),
)
@click.argument("metric", shell_complete=complete_metric)
@selection_options
@population_option
@select_option
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@moment_options
@store_option
@json_option
def show(
    metric: str,
    chosen: Chosen,
    population: str,
    picked: tuple[tuple[str, tuple[str, ...]], ...],
    as_csv: bool,
    moment: Moment,
    store: str,
    as_json: bool,
) -> None:
    """Show the values of METRIC by model, step and layer, with their standard errors."""
    if as_csv and as_json:
        raise click.UsageError("Give either --json or --csv.")
    from analysis.samples import sample_of, tell_samples
    from flows.results import Selection, metric_table, open_results
    from store.repository import Repository
    from store.schema import SHARED_WEIGHTS

    snapshot = moment.find(Repository.open(store, read_only=True))
    selection = Selection(**asdict(chosen), picked=dict(picked), snapshot=snapshot)
    results = open_results(store, metric, selection)
    rows = [row | {"snapshot": snapshot} for row in metric_table(results, metric, population)]
    if as_json:
        print_json(rows)
        return
    if not rows:
        raise click.ClickException(
            f"{metric} is NaN everywhere for what was chosen, rows: {population}: too few rows, or"
            " steps and layers that it was not computed for; `actlas compute --plan` tells"
        )
    columns = list(rows[0])
    if as_csv:
        print_csv(columns, [list(row.values()) for row in rows])
        return
    told_once = {"snapshot", *(name for name in SHARED_WEIGHTS if not any(r[name] for r in rows))}
    columns = [name for name in columns if name not in told_once]
    print_table(columns, [[_cell(row[name]) for name in columns] for row in rows])
    sample = tell_samples(sample_of(row) for row in rows)
    told = ", ".join(filter(None, (metric, f"rows: {population}", sample)))
    say(f"{told}, with standard errors (nan where there is none), at snapshot {snapshot}")


def _cell(value: str | float) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


@click.command(
    short_help="Draw a metric over depth or training.",
    epilog=examples(
        "actlas plot average_cosine -o cosine.png",
        "actlas plot two_nn --x step --models tiny-neox -o dimension.pdf",
        "actlas plot attention_entropy_mean --select head=0,3 -o heads.png",
    ),
)
@click.argument("metric", shell_complete=complete_metric)
@click.option(
    "--x",
    type=click.Choice(["relative_depth", "layer", "step"]),
    default="relative_depth",
    show_default=True,
    help="What runs along the figure.",
)
@click.option(
    "--hue",
    type=click.Choice(["model", "step", "population"]),
    default="model",
    show_default=True,
    help="What tells the curves apart.",
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(*FIGURES),
    required=True,
    metavar="FILE.png",
    help="The figure to write: .png, .pdf or .svg.",
)
@selection_options
@population_option
@select_option
@moment_options
@store_option
@json_option
def plot(
    metric: str,
    x: Abscissa,
    hue: Hue,
    output: Path,
    chosen: Chosen,
    population: str,
    picked: tuple[tuple[str, tuple[str, ...]], ...],
    moment: Moment,
    store: str,
    as_json: bool,
) -> None:
    """Draw METRIC over depth or training, with bands of one standard error.

    Of attention heads it is the mean, and each is a thin line; --select head=3 draws one of them.
    """
    from analysis.figures import plot_metric
    from flows.results import Selection, open_results
    from store.repository import Repository

    snapshot = moment.find(Repository.open(store, read_only=True))
    selection = Selection(**asdict(chosen), picked=dict(picked), snapshot=snapshot)
    results = open_results(store, metric, selection)
    if len(results) > 1:
        raise click.UsageError(
            f"One figure shows one corpus, and {metric} is there for {', '.join(results)}:"
            " choose with --corpus."
        )
    (found,) = results.values()
    plot_metric(found, metric, x=x, hue=hue, population=population, output=output)
    if as_json:
        print_json({"written": str(output)})
        return
    say(f"Wrote {output}")
