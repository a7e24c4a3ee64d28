"""The README's commands, one after another as a newcomer types them, on a small training run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from click.testing import Result
from pyarrow import parquet

from store import open_metrics, open_store

README = Path(__file__).parents[2] / "README.md"
STEPS = (1, 2, 4, 8)
ELSEWHERE = (
    "actlas explore",
    "EleutherAI/",
    "google-bert/",
    "models/new-kind",
    "photos",
    "words",
    "shards/",
)
"""What serves a page, needs the Hub or code of others, or pictures and sounds: in other tests."""
EXPECTED = {
    "": "",
    "actlas ingest runs/my-model --corpus plays --plan": "step",
    "actlas ingest runs/my-model --corpus plays": "checkpoints",
    "actlas ingest runs/my-model --corpus plays --sites residual,mlp_output": "added mlp_output",
    "actlas show two_nn": "my-model",
    "actlas verify": "is as it was written",
    "actlas verify plays/my-model --replay": "sound",
    "actlas tag": "paper-v1",
    "actlas history": "paper-v1",
    "actlas gc": "--yes",
    "actlas doctor": "torch",
}


def documented() -> list[str]:
    """Return the lines of the README's blocks that run ``actlas`` on texts."""
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.split(" #")[0].strip() for block in blocks for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("actlas ")]
    return [line for line in commands if not any(one in line for one in ELSEWHERE)]


@pytest.fixture
def desk(tmp_path: Path, run_folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with what the commands name: texts, a run of a Llama, another tool's dump."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    monkeypatch.chdir(tmp_path)
    (tmp_path / "hamlet.txt").write_text(text[:1536])
    (tmp_path / "macbeth.txt").write_text(text[1536:3072])
    reviews = {"text": ["the cat sat", "a rat ran slowly"], "stars": [5, 1]}
    parquet.write_table(pyarrow.table(reviews), tmp_path / "reviews.parquet")
    tokenizer = AutoTokenizer.from_pretrained(run_folder / "checkpoint-0")
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=12,
        num_attention_heads=2,
        max_position_embeddings=1024,
    )
    for step in STEPS:
        torch.manual_seed(step)
        folder = tmp_path / "runs" / "my-model" / f"checkpoint-{step}"
        LlamaForCausalLM(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    states = np.random.default_rng(0).standard_normal((3, 6, 4), dtype=np.float32)
    np.save(tmp_path / "states.npy", states)
    (tmp_path / "labels.csv").write_text("file,step\nstates.npy,0\n")
    (tmp_path / "tokens.csv").write_text("sequence\n" + "".join(f"{n}\n" for n in range(6)))
    return tmp_path


def test_the_commands_run_one_after_another(
    desk: Path, runner: Callable[[str], Callable[..., Result]]
) -> None:
    run = runner("activations")
    commands = documented()
    assert len(commands) >= 23
    for command in commands:
        _, *arguments = shlex.split(command)
        told = run(*arguments).output
        beginnings = [one for one in EXPECTED if command.startswith(one)]
        assert EXPECTED[max(beginnings, key=len, default="")] in told, command
    tree = open_store("activations")
    assert sorted(tree["plays"].children) == ["my-model", "other-tool", "thin"]
    whole = tree["plays/my-model"]
    assert whole["step"].values.tolist() == list(STEPS)
    sites = {"residual", "mlp_output", "query", "key", "attention_entropy"}
    assert sites <= set(whole.data_vars)
    assert np.isfinite(whole["residual"].sel(step=8).values).all()
    measured = open_metrics("activations", corpus="plays")
    dimension = measured["two_nn"].sel(model="my-model", population="content", step=list(STEPS))
    assert np.isfinite(dimension.sel(layer=slice(1, None))).all()
    assert {"cosine.png", "cka.png", "report.html", "tensors"} <= {p.name for p in desk.iterdir()}
