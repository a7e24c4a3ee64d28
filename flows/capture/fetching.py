"""Brings as much of a checkpoint from elsewhere as is needed, and takes it away again."""

from __future__ import annotations

from dataclasses import replace

from flows.capture import hub
from flows.capture.checkpoints import Checkpoint


def with_metadata(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint whose directory has its config and tokenizer.

    Raises:
        CheckpointError: If they cannot be fetched.
    """
    if checkpoint.hub is None:
        return checkpoint
    return replace(
        checkpoint, directory=hub.metadata_folder(checkpoint.hub, code=checkpoint.trusted)
    )


def with_weights(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint whose directory has all that is needed to run it.

    Raises:
        CheckpointError: If it cannot be fetched.
    """
    if checkpoint.hub is None:
        return checkpoint
    return replace(
        checkpoint, directory=hub.weights_folder(checkpoint.hub, code=checkpoint.trusted)
    )


def release(checkpoint: Checkpoint) -> None:
    """Delete what was fetched of a checkpoint; what lies in a folder of the user's stays."""
    if checkpoint.hub is not None:
        hub.release(checkpoint.hub)
