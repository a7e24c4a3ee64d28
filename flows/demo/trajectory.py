"""A training run made on the spot, and its way into the store through the Prefect flow."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from flows.console import progress_bar

STEPS: Final = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Steps at which the training keeps a checkpoint: at equal distances on a logarithmic axis."""

MODEL: Final = "tiny-neox"


def train(directory: Path, text: str, held_out: str, tell: Callable[[str], None]) -> None:
    """Train the small model, unless all of its checkpoints are there.

    Args:
        directory: Where the ``checkpoint-N`` folders go.
        text: What to train on.
        held_out: Text for the loss, not trained on.
        tell: Called with what happens.
    """
    if all((directory / f"checkpoint-{step}").is_dir() for step in STEPS):
        tell(f"  its checkpoints are in {directory} from an earlier run")
        return
    from flows.capture.train import train_tiny

    with progress_bar(f"train {directory.name}") as updated:
        train_tiny(
            text,
            directory,
            held_out=held_out,
            steps=STEPS,
            progress=lambda step, loss: tell(f"  step {step:>4}   held-out loss {loss:.2f} nats"),
            updated=updated,
        )


def ingest_through_flow(store: str, directory: Path, corpus: str, home: Path) -> None:
    """Run the flow ``flows.ingest:ingest`` on Prefect's embedded server.

    Args:
        store: The store.
        directory: Folder of ``checkpoint-N`` folders.
        corpus: Name of a corpus in the store.
        home: Where Prefect keeps its database; nothing of the user's own is touched.
    """
    _prepare_prefect(home)
    from flows.ingest import ingest
    from flows.requests import IngestRequest

    sites = ["residual", "final_norm", "token_loss"]
    ingest(IngestRequest(models=[str(directory)], corpus=corpus, store=store, sites=sites))


def _prepare_prefect(home: Path) -> None:
    """Set Prefect up before it is imported: embedded, silent to the outside, patient."""
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        del os.environ[name]
    os.environ.update(
        PREFECT_HOME=str(home.resolve()),
        PREFECT_SERVER_ANALYTICS_ENABLED="false",
        DO_NOT_TRACK="1",
        PREFECT_SERVER_UI_ENABLED="false",
        PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS="300",
        # The flow says what became of each checkpoint; once is enough.
        PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL="WARNING",
    )
