"""``actlas study``: the experiments of the papers, each one command."""

from __future__ import annotations

from pathlib import Path

import click

from flows.cli.options import NameList, examples, json_option, sample_options, store_option
from flows.console import keep_in_mind, print_json, print_table, say

LIST = "list"


@click.command(
    short_help="Carry out an experiment of the papers.",
    epilog=examples(
        "actlas study LIST",
        "actlas study shape-of-learning",
        "actlas study encoder-decoder --controls -o figures/encoder-decoder",
        "actlas study training-dynamics --models runs/tiny --corpus plays",
    ),
)
@click.argument("name", metavar="NAME|LIST")
@click.option(
    "--models",
    type=NameList(),
    default="offline",
    show_default=True,
    metavar="offline|paper|A,B",
    help="A set of models, or models as `actlas ls` or `actlas ingest` call them; for"
    " untrained-block also configs, such as gpt2.",
)
@click.option(
    "--corpus", metavar="NAME", help="The corpus.  [default: the demo's play, or the only one]"
)
@click.option("--from-store", is_flag=True, help="Run no model: refuse if something is missing.")
@click.option("--controls", is_flag=True, help="Also draw the metrics for each choice of rows.")
@sample_options(4096)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    metavar="DIR",
    help="Folder for figures, numbers and account.  [default: studies/NAME]",
)
@store_option
@json_option
def study(
    name: str,
    models: tuple[str, ...],
    corpus: str | None,
    from_store: bool,
    controls: bool,
    sample: int,
    seed: int,
    output: Path | None,
    store: str,
    as_json: bool,
) -> None:
    """Carry out the study NAME: figures, numbers, and an account of what was measured.

    What the store lacks is run and computed first, and is there for the next study. LIST names
    the studies. The set `offline` needs no network, `paper` takes the papers' models from the
    Hugging Face Hub. Models whose names differ in -seedN alone are drawn as one, with a band over
    its seeds.
    """
    from flows.studies import STUDIES
    from flows.studies.errors import UnknownStudyError
    from flows.studies.preparation import Request
    from flows.studies.run import run_study

    if name.lower() == LIST:
        _list(as_json=as_json)
        return
    if name not in STUDIES:
        raise UnknownStudyError(name, STUDIES)
    keep_in_mind("what was stored and computed by now is kept; the same command goes on from there")
    folder = output or Path("studies") / name
    request = Request(store, models, corpus, from_store, folder, sample, seed)
    files = run_study(
        STUDIES[name],
        request,
        controls=controls,
        tell=lambda text: say(text, err=as_json),
    )
    if as_json:
        print_json({"study": name, "files": [str(file) for file in files]})
        return
    for file in files:
        say(f"Wrote {file}")


def _list(*, as_json: bool) -> None:
    from flows.studies import STUDIES

    rows = [
        {
            "study": study.name,
            "question": study.question,
            "source": study.source,
            "needs": ", ".join(sorted(study.needs)),
            "sites": ", ".join(dict.fromkeys(("residual", *study.sites))),
            "metrics": ", ".join(study.metrics),
        }
        for study in STUDIES.values()
    ]
    if as_json:
        print_json(rows)
        return
    print_table(list(rows[0]), [list(row.values()) for row in rows])
