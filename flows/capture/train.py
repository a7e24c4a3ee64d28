"""Trains a small model from nothing, so that a training run can be had anywhere in minutes."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from flows.capture.errors import InputError
from flows.capture.quiet import quiet
from flows.capture.tiny_models import Family, tiny_model, training_loss

STEPS: Final = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
"""Steps at which a checkpoint is kept, unless others are named."""

_VOCABULARY: Final = 1024
_BYTES: Final = 256
_LENGTH: Final = 256
_BATCH: Final = 6
_RATE: Final = 2e-3
_WARM_UP: Final = 20
_HELD_OUT_SEQUENCES: Final = 16
_HELD_OUT_SEED: Final = 0
_END_OF_TEXT: Final = "<|endoftext|>"
_MASK: Final = "<|mask|>"


@dataclass(frozen=True)
class TrainedStep:
    """A checkpoint that was kept.

    Attributes:
        step: Number of updates before it.
        loss: Mean loss per token over the held-out text, in nats.
        directory: Its folder, ``checkpoint-N``.
    """

    step: int
    loss: float
    directory: Path


def train_tiny(
    text: str,
    directory: Path,
    *,
    held_out: str,
    family: Family = "neox",
    of_bytes: bool = False,
    steps: Sequence[int] = STEPS,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
    updated: Callable[[int, int], None] | None = None,
) -> list[TrainedStep]:
    """Train a model of 6 blocks of width 128, with its own byte-level BPE of 1,024 tokens.

    AdamW on batches of 6 × 256 tokens; the rate rises over 20 steps to 2e-3 and falls as a
    cosine to a tenth. On machines of the same kind, the same seed and steps give the same weights,
    however many threads they have: the training uses one.

    Args:
        text: What to train on.
        directory: Where ``checkpoint-N`` folders with model and tokenizer go; each appears only
            once it is complete, and replaces an older one.
        held_out: Text that is not trained on, for the loss.
        family: ``neox``, a GPT-NeoX that predicts the next token; or ``bert``, a BERT that predicts
            tokens hidden from it.
        of_bytes: Whether it reads bytes rather than the pieces of words of its own BPE.
        steps: Steps at which a checkpoint is kept; the largest ends the training.
        seed: Seed of the weights and batches.
        progress: Called with each kept step and its loss over the held-out text.
        updated: Called with how many more updates were made, and how many there will be.

    Raises:
        InputError: If a text is too short, no step is wanted, or the folder holds another run.
    """
    if not steps or min(steps) < 0:
        raise InputError(f"steps {list(steps)}: expected at least one, none of them negative")
    _refuse_other_run(directory, steps)
    tokenizer = _train_tokenizer(text, family, of_bytes=of_bytes)
    training = _ids(tokenizer, text, "the text to train on")
    checking = _ids(tokenizer, held_out, "the held-out part, for the loss,")
    kept = []
    with torch.random.fork_rng(), _one_thread():
        torch.manual_seed(seed)
        model = tiny_model(family, tokenizer, length=_LENGTH)
        mask_id = tokenizer.mask_token_id
        for step in _train(model, training, mask_id, max(steps), seed):
            if updated is not None:
                updated(min(step, 1), max(steps))
            if step not in steps:
                continue
            loss = _held_out_loss(model, checking, mask_id)
            folder = directory / f"checkpoint-{step}"
            _save(model, tokenizer, folder)
            kept.append(TrainedStep(step, loss, folder))
            if progress is not None:
                progress(step, loss)
    return kept


def _refuse_other_run(directory: Path, steps: Sequence[int]) -> None:
    """Leave a run alone that these steps would replace in part, and so mix with another."""
    made = {f"checkpoint-{step}" for step in steps}
    others = sorted(folder.name for folder in directory.glob("checkpoint-*"))
    if other := next((name for name in others if name not in made), None):
        raise InputError(
            f"{directory} holds {other}, which is none of the steps to keep"
            f" ({', '.join(map(str, sorted(steps)))}): it is another run; give another folder"
        )


@contextmanager
def _one_thread() -> Iterator[None]:
    # Threads share out the sums of gradients, whose last digits training then magnifies.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train(
    model: PreTrainedModel, training: Tensor, mask_id: int | None, last: int, seed: int
) -> Iterator[int]:
    """Yield the number of updates made, before the first and after each."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, betas=(0.9, 0.95))
    yield 0
    for step in range(1, last + 1):
        model.train()
        for group in optimizer.param_groups:
            group["lr"] = _rate(step, last)
        starts = torch.randint(len(training) - _LENGTH, (_BATCH,), generator=generator)
        batch = torch.stack([training[start : start + _LENGTH] for start in starts.tolist()])
        loss = training_loss(model, batch, mask_id, generator)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield step


def _rate(step: int, last: int) -> float:
    warm_up = min(step / _WARM_UP, 1.0)
    return _RATE * warm_up * (0.55 + 0.45 * math.cos(math.pi * step / last))


@torch.inference_mode()
def _held_out_loss(model: PreTrainedModel, checking: Tensor, mask_id: int | None) -> float:
    model.eval()
    count = min(len(checking) // _LENGTH, _HELD_OUT_SEQUENCES)
    batch = checking[: count * _LENGTH].reshape(count, _LENGTH)
    # The same tokens are hidden at every step, so that steps can be compared.
    generator = torch.Generator().manual_seed(_HELD_OUT_SEED)
    return float(training_loss(model, batch, mask_id, generator))


def _train_tokenizer(text: str, family: Family, *, of_bytes: bool) -> PreTrainedTokenizerFast:
    special = [_END_OF_TEXT, _MASK] if family == "bert" else [_END_OF_TEXT]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        # With room for the bytes alone, no pair of them is ever merged.
        vocab_size=_BYTES + len(special) if of_bytes else _VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=_END_OF_TEXT,
        eos_token=_END_OF_TEXT,
        mask_token=_MASK if _MASK in special else None,
        model_max_length=_LENGTH,
    )


def _ids(tokenizer: PreTrainedTokenizerFast, text: str, part: str) -> Tensor:
    ids = torch.tensor(tokenizer(text, verbose=False)["input_ids"])
    if len(ids) <= _LENGTH:
        raise InputError(
            f"{part} is too short: {len(ids)} tokens, expected more than {_LENGTH}; give a longer"
            " text"
        )
    return ids


def _save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    unfinished = folder.with_name(f"unfinished-{folder.name}")
    for old in (unfinished, folder):
        shutil.rmtree(old, ignore_errors=True)
    with quiet():
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
    unfinished.rename(folder)
