"""For training scripts: have each checkpoint announced, or ingested on the spot.

trainer = Trainer(..., callbacks=[notify_on_save()])
trainer = Trainer(..., callbacks=[ingest_on_save("./activations", "plays")])
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flows.capture.checkpoints import find_checkpoints
from flows.ingestion import DEFAULT_OPTIONS, ingest_checkpoint
from flows.measurement import MeasureOptions, find_targets, measure_target
from flows.running import CaptureOptions
from store.repository import Repository

if TYPE_CHECKING:
    from flows.capture.training import CheckpointCallback


def notify_on_save() -> CheckpointCallback:
    """Return a callback that announces each checkpoint to the Prefect server.

    A deployment that is triggered by the announcement ingests it elsewhere, while training goes on.
    """
    from flows.capture.training import CheckpointCallback
    from flows.notify import notify

    return CheckpointCallback(lambda folder: notify(str(folder)))


def ingest_on_save(
    store: str,
    corpus: str,
    *,
    model: str | None = None,
    options: CaptureOptions = DEFAULT_OPTIONS,
    measure: MeasureOptions | None = None,
) -> CheckpointCallback:
    """Return a callback that ingests each checkpoint, while training waits.

    Args:
        store: The store.
        corpus: Name of a corpus in it.
        model: Name of the model; that of the output folder when None.
        options: How it is run and stored.
        measure: What is measured of it at once, None for nothing.
    """
    from flows.capture.training import CheckpointCallback

    def ingest(folder: Path) -> None:
        (checkpoint,) = find_checkpoints(str(folder), name=model)
        ingest_checkpoint(store, checkpoint, corpus, options=options)
        if measure is not None:
            for target in find_targets(
                Repository.open(store),
                corpus=corpus,
                models=[checkpoint.model],
                steps=[checkpoint.step],
            ):
                measure_target(store, target, options=measure)

    return CheckpointCallback(ingest)
