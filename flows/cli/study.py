"""``actlas study``: the experiments of the papers, each one command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.options import NameList, examples, json_option, sample_options, store_option
from flows.cli.reporting import exit_code
from flows.console import keep_in_mind, print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flows.studies.preparation import Request

LIST = "list"
ALL = "all"


@click.command(
    short_help="Carry out an experiment of the papers.",
    epilog=examples(
        "actlas study LIST",
        "actlas study shape-of-learning",
        "actlas study encoder-decoder --controls -o figures/encoder-decoder",
        "actlas study training-dynamics --models runs/tiny --corpus plays",
        "actlas study ALL --from-store",
    ),
)
@click.argument("names", nargs=-1, required=True, metavar="NAME…|ALL|LIST")
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
    help="Folder for figures, numbers and account; of several studies, for their folders."
    "  [default: studies/NAME]",
)
@store_option
@json_option
def study(
    names: tuple[str, ...],
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
    the studies; ALL carries out each, and one of several that fails stops no other. The set
    `offline` needs no network, `paper` takes the papers' models from the Hugging Face Hub. Models
    whose names differ in -seedN alone are drawn as one, with a band over its seeds.
    """
    from flows.failures import raise_failures
    from flows.studies.preparation import Request

    if [name.lower() for name in names] == [LIST]:
        _list(as_json=as_json)
        return
    chosen = _chosen(names)
    keep_in_mind("what was stored and computed by now is kept; the same command goes on from there")
    several = len(chosen) > 1
    request = Request(store, models, corpus, from_store, output or Path("studies"), sample, seed)
    if output is None or several:
        folders = {name: request.output / name for name in chosen}
    else:
        folders = {chosen[0]: output}
    requests = {name: replace(request, output=folder) for name, folder in folders.items()}
    written, failures = _carry_out(requests, controls=controls, as_json=as_json)
    if as_json:
        documents = [{"study": name, "files": files} for name, files in written.items()]
        print_json(documents if several else documents[0])
    raise_failures("studies", failures, len(chosen))


def _chosen(names: tuple[str, ...]) -> list[str]:
    from flows.studies import STUDIES
    from flows.studies.errors import UnknownStudyError

    if [name.lower() for name in names] == [ALL]:
        return list(STUDIES)
    for name in names:
        if name not in STUDIES:
            raise UnknownStudyError(name, (*STUDIES, "ALL", "LIST"))
    return list(dict.fromkeys(names))


def _carry_out(
    requests: Mapping[str, Request], *, controls: bool, as_json: bool
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the files of each study, and why others of several failed."""
    from flows.studies import STUDIES
    from flows.studies.run import run_study

    def tell(text: str) -> None:
        say(text, err=as_json)

    written: dict[str, list[str]] = {}
    failures: dict[str, str] = {}
    for name, request in requests.items():
        try:
            files = run_study(STUDIES[name], request, controls=controls, tell=tell)
        except Exception as error:
            if len(requests) == 1 or exit_code(error) is None:
                raise
            failures[name] = str(error)
            tell(f"{name} failed: {error}")
            continue
        written[name] = [str(file) for file in files]
        for file in files:
            tell(f"Wrote {file}")
    return written, failures


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
