from __future__ import annotations

from pathlib import Path
from pydoc_data.topics import topics

import pytest
import torch

from flows.capture import find_checkpoints, fingerprint, load_tokenizer
from flows.capture.errors import InputError
from flows.capture.train import train_tiny

TEXT = topics["assignment"] + topics["function"]
HELD_OUT = topics["class"][:1500]  # one or two sequences, so that the loss costs little


def test_training_leaves_checkpoints_and_lowers_the_loss(tmp_path: Path) -> None:
    told: list[tuple[int, float]] = []
    kept = train_tiny(
        TEXT,
        tmp_path,
        held_out=HELD_OUT,
        steps=(0, 2, 6),
        progress=lambda step, loss: told.append((step, loss)),
    )
    assert [(entry.step, entry.loss) for entry in kept] == told
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "checkpoint-0",
        "checkpoint-2",
        "checkpoint-6",
    ]
    # Untrained, 1,024 tokens are about equally likely: log 1024 = 6.93 nats.
    assert kept[0].loss == pytest.approx(6.93, abs=0.2)
    assert kept[0].loss > kept[1].loss > kept[2].loss
    found = find_checkpoints(str(tmp_path), name="tiny")
    assert [checkpoint.step for checkpoint in found] == [0, 2, 6]
    assert len(load_tokenizer(found[2])) == 1024
    assert len({fingerprint(checkpoint).weights_sha256 for checkpoint in found}) == 3


def test_the_same_seed_gives_the_same_weights_on_any_number_of_threads(tmp_path: Path) -> None:
    runs = {}
    before = torch.get_num_threads()
    try:
        for name, seed, threads in (("one", 0, 1), ("two", 0, 2), ("three", 1, 2)):
            torch.set_num_threads(threads)
            train_tiny(TEXT, tmp_path / name, held_out=HELD_OUT, steps=(1,), seed=seed)
            assert torch.get_num_threads() == threads
            runs[name] = fingerprint(find_checkpoints(str(tmp_path / name))[0])
    finally:
        torch.set_num_threads(before)
    assert runs["one"] == runs["two"]
    assert runs["one"].weights_sha256 != runs["three"].weights_sha256
    assert runs["one"].tokenizer_sha256 == runs["three"].tokenizer_sha256


def test_another_run_is_left_alone(tmp_path: Path) -> None:
    own = tmp_path / "checkpoint-500"
    own.mkdir()
    with pytest.raises(InputError, match=r"holds checkpoint-500, which is none of .*\(0, 2\)"):
        train_tiny(TEXT, tmp_path, held_out=HELD_OUT, steps=(0, 2))
    assert list(tmp_path.iterdir()) == [own]


def test_too_short_a_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the held-out part, for the loss, is too short"):
        train_tiny(TEXT, tmp_path, held_out="too short", steps=(0,))
    with pytest.raises(InputError, match=r"the text to train on is too short: \d tokens"):
        train_tiny("too short", tmp_path, held_out=HELD_OUT, steps=(0,))
    with pytest.raises(InputError, match="expected at least one"):
        train_tiny(TEXT, tmp_path, held_out=HELD_OUT, steps=())
    assert not any(tmp_path.iterdir())


def test_an_encoder_learns_to_fill_in_what_is_hidden(tmp_path: Path) -> None:
    kept = train_tiny(TEXT, tmp_path, held_out=HELD_OUT, family="bert", steps=(0, 6))
    assert kept[0].loss == pytest.approx(6.93, abs=0.3)
    assert kept[0].loss > kept[1].loss
    assert load_tokenizer(find_checkpoints(str(tmp_path))[0]).mask_token_id == 1


def test_a_model_of_bytes_has_a_token_for_each(tmp_path: Path) -> None:
    kept = train_tiny(TEXT, tmp_path, held_out=HELD_OUT, of_bytes=True, steps=(0,))
    tokenizer = load_tokenizer(find_checkpoints(str(tmp_path))[0])
    # 256 bytes and the end of a text: log 257 = 5.55 nats, about equally likely.
    assert len(tokenizer) == 257
    assert len(tokenizer("naïve")["input_ids"]) == len("naïve".encode())
    assert kept[0].loss == pytest.approx(5.55, abs=0.2)
