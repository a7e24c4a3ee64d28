"""``actlas metrics``: what can be measured, and what it means."""

from __future__ import annotations

import click

from flows.cli.options import examples, json_option
from flows.console import print_json, print_table


@click.command(
    short_help="List the metrics, with what they mean.",
    epilog=examples("actlas metrics", "actlas metrics --json"),
)
@json_option
def metrics(as_json: bool) -> None:
    """List every metric of `actlas compute`, what it means, costs, and where it comes from.

    Those that need "heads" are of the sites query and key together, and come with them; of sites
    of one number a token, such as attention_entropy, the last ones of the list are computed.

    Metrics that need the same statistics share their cost. A metric of your own is a function of
    analysis.Statistics that can be imported: `actlas compute MODULE:FUNCTION`.
    """
    from analysis.metrics import METRICS
    from analysis.metrics.heads import HEAD_METRICS
    from analysis.metrics.metric import COSTS
    from analysis.metrics.values import VALUE_METRICS

    rows = [
        {
            "name": metric.name,
            "meaning": metric.long_name,
            "unit": metric.units,
            "range": metric.range,
            "needs": metric.needs,
            "cost": COSTS[metric.needs],
            "reference": metric.reference,
        }
        for metric in (*METRICS.values(), *HEAD_METRICS.values(), *VALUE_METRICS)
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
