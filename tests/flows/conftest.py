"""A tiny training run on disk, with its tokenizer, and a store with a corpus for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from flows.capture.checkpoints import Checkpoint, find_checkpoints
from flows.corpora import Chunking, add_texts

STEPS = (0, 5, 10)


@pytest.fixture(scope="session")
def text() -> str:
    """Return 4,000 characters of made-up sentences."""
    words = np.array(["the", "a", "cat", "rat", "dog", "sat", "ran", "under", "mat", "slowly"])
    rng = np.random.default_rng(0)
    return (" ".join(rng.choice(words, size=1200)) + ".")[:4000]


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory, text: str) -> Path:
    """Return a folder ``tiny`` of checkpoint-0, -5 and -10: GPT-NeoX of 2 blocks of 16."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<pad>", "<s>"]
    trainer = trainers.BpeTrainer(vocab_size=64, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>")
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    config = GPTNeoXConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    for step in STEPS:
        torch.manual_seed(step)
        GPTNeoXForCausalLM(config).save_pretrained(folder / f"checkpoint-{step}")
        fast.save_pretrained(folder / f"checkpoint-{step}")
    return folder


@pytest.fixture
def checkpoints(run_folder: Path) -> list[Checkpoint]:
    """Return the three checkpoints of the run."""
    return find_checkpoints(str(run_folder))


@pytest.fixture(scope="session")
def runner() -> Callable[[str], Callable[..., Result]]:
    """Return what makes, for a store, a function that runs ``actlas`` with arguments on it."""
    from flows.cli import actlas

    def on(store: str) -> Callable[..., Result]:
        def invoke(*arguments: str, code: int = 0) -> Result:
            result = CliRunner().invoke(
                actlas, list(arguments), env={"ACTLAS_STORE": store}, catch_exceptions=False
            )
            assert result.exit_code == code, result.output
            return result

        return invoke

    return on


@pytest.fixture
def store(tmp_path: Path, text: str) -> str:
    """Return a store with the corpus ``cats``: 20 sequences of 50 characters."""
    uri = str(tmp_path / "store")
    add_texts(uri, "cats", {"cats.txt": text}, chunking=Chunking("chars", 50), max_sequences=20)
    return uri


@pytest.fixture
def desk(tmp_path: Path, run_folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that one is in, with what the documents name: two texts, a run.

    The run has the architecture and the depth of what ``actlas train-tiny`` trains.
    """
    import torch
    from transformers import AutoTokenizer, GPTNeoXConfig, GPTNeoXForCausalLM

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACTLAS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "hamlet.txt").write_text(text[:600])
    (tmp_path / "macbeth.txt").write_text(text[1536:2136])
    tokenizer = AutoTokenizer.from_pretrained(run_folder / "checkpoint-0")
    config = GPTNeoXConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=6,
        num_attention_heads=2,
        max_position_embeddings=1024,
    )
    for step in (1, 2, 4, 8):
        torch.manual_seed(step)
        folder = tmp_path / "runs" / "my-model" / f"checkpoint-{step}"
        GPTNeoXForCausalLM(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return tmp_path
