"""Hooks into training: a call for each checkpoint that a `transformers.Trainer` saves."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

_LOG: Final = logging.getLogger("actlas.training")


class CheckpointCallback(TrainerCallback):
    """Calls a function with the folder of each checkpoint, on the main process, once it is whole.

    Training goes on whatever the function does: what it raises is logged, and the generators of
    random numbers are as they were.

    Args:
        on_checkpoint: Called with the folder ``checkpoint-N``; training waits for it.
    """

    def __init__(self, on_checkpoint: Callable[[Path], object]) -> None:
        self._on_checkpoint = on_checkpoint

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002  # the protocol of transformers
        **_: object,
    ) -> None:
        """Call the function; `Trainer` calls this after each save."""
        if not state.is_world_process_zero:
            return
        folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        try:
            with _generators_kept():
                self._on_checkpoint(folder)
        except Exception:  # noqa: BLE001  # training is worth more
            _LOG.exception("%s was saved, but what was to be done with it failed", folder)


@contextmanager
def _generators_kept() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  # Trainer's own
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
