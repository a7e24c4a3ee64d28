"""Writing a report of a store."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import zarr

from analysis.errors import InputError
from analysis.report.document import build_document
from analysis.report.measured import Measured
from analysis.report.page import render
from analysis.samples import samples_among
from store.catalogue import HeldModel, catalogue
from store.depths import relative_depth
from store.errors import UnknownNameError
from store.metrics import read_metrics, read_settings
from store.repository import Repository
from store.schema import node_name
from store.whole_file import written_whole

SUFFIXES: Final = (".html", ".htm")
"""File names a report can have."""


def write_report(
    uri: str,
    output: Path,
    *,
    corpus: str | None = None,
    models: Sequence[str] | None = None,
    tell: Callable[[int, int], None] = lambda _more, _total: None,
) -> Path:
    """Write one self-contained page about what a store holds and what was measured of it.

    The page opens with no network, in any browser of 2023 or later, and is the same, byte for
    byte, for the same snapshot of the store.

    Args:
        uri: Where the store is.
        output: File to write, ending in ``.html``; missing folders are made.
        corpus: Only this corpus.
        models: Only these models, by their ids or the names of their groups.
        tell: Called with the number of models just read, and of all.

    Returns:
        The file written.

    Raises:
        StoreNotFoundError: If there is no store.
        UnknownNameError: If there is no such corpus or model.
        InputError: If the suffix is another, or the store holds no model.
    """
    if output.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"cannot write a report to {output}: its suffix must be one of {', '.join(SUFFIXES)}"
        )
    repository = Repository.open(uri, read_only=True)
    snapshot = repository.snapshot_id()
    held = _chosen(catalogue(repository, corpus=corpus, snapshot=snapshot), models, uri)
    if not held:
        raise InputError(f"{uri} holds no model to report on; ingest one with actlas ingest")
    measured = []
    for one in held:
        measured.append(_measured(repository, one, snapshot))
        tell(1, len(held))
    document = build_document(_store_name(uri), snapshot, measured)
    with written_whole(output) as page:
        page.write_text(render(document), encoding="utf-8")
    return output


def _chosen(held: Sequence[HeldModel], models: Sequence[str] | None, uri: str) -> list[HeldModel]:
    if models is None:
        return list(held)
    known = {node_name(one.model): one.model for one in held}
    for model in models:
        if node_name(model) not in known:
            raise UnknownNameError("model", model, sorted(known.values()), uri)
    wanted = {node_name(model) for model in models}
    return [one for one in held if node_name(one.model) in wanted]


def _measured(repository: Repository, held: HeldModel, snapshot: str) -> Measured:
    group = repository.read(snapshot)[held.path]
    assert isinstance(group, zarr.Group)
    causal = group.attrs.get("causal")
    results = read_metrics(repository, held.path, snapshot)
    names = [] if results is None else [*map(str, results.data_vars)]
    settings = read_settings(repository, held.path, names, snapshot)
    first, second = relative_depth(group.attrs.asdict(), [0, 1]).tolist()
    return Measured(
        held,
        model_type=str(group.attrs.get("model_type", "")),
        causal=causal if isinstance(causal, bool) else None,
        results=None if results is None else results.load(),
        depth=(first, 0.0 if math.isnan(second) else second - first),
        samples={name: samples_among(own) for name, own in settings.items()},
    )


def _store_name(uri: str) -> str:
    """Return the last part of a URI: where a store lies is nobody's business but its owner's."""
    return uri.rstrip("/").replace("\\", "/").rsplit("/", 1)[-1] or "store"
