"""What an ingest that names no sites adds to steps that hold others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flows.capture.checkpoints import Checkpoint
from flows.capture.errors import UnknownSiteError
from flows.ingestion import ingest_checkpoint
from flows.job import CaptureOptions
from flows.layers import lacking
from store.catalogue import find_step
from store.repository import Repository


@pytest.mark.parametrize(
    ("held", "added"), [("query", ("residual", "final_norm")), ("residual", ("final_norm",))]
)
def test_the_default_sites_are_added_where_they_are_lacking(
    store: str, checkpoints: list[Checkpoint], held: str, added: tuple[str, ...]
) -> None:
    ingest_checkpoint(store, checkpoints[0], "cats", options=CaptureOptions(sites=(held,)))
    again = ingest_checkpoint(store, checkpoints[0], "cats")
    assert again.added == added
    assert set(again.sites) == {held, *added}
    assert not ingest_checkpoint(store, checkpoints[0], "cats").ingested


def test_what_was_not_recorded_of_a_model_is_not_missed(
    store: str, checkpoints: list[Checkpoint]
) -> None:
    """Stores of earlier versions do not say whether a model has a final norm."""
    options = CaptureOptions(sites=("query",))
    ingest_checkpoint(store, checkpoints[0], "cats", options=options)
    step = find_step(Repository.open(store), "cats/tiny", checkpoints[0].step)
    assert step is not None
    assert set(lacking(step, CaptureOptions())) == {"residual", "final_norm"}
    assert set(lacking(replace(step, default_sites=()), CaptureOptions())) == {"residual"}


def test_a_site_of_blocks_has_nothing_at_the_embeddings() -> None:
    with pytest.raises(UnknownSiteError, match=r"query has no value at layer 0, .* from 1 on"):
        CaptureOptions(sites=("residual", "query"), layers=(0,))
    assert CaptureOptions(sites=("residual", "final_norm"), layers=(0,)).layers == (0,)
