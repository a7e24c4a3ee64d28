"""Loading keeps `transformers` quiet, and nobody else."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from transformers.utils import logging

from flows.capture import find_checkpoints
from flows.capture.quiet import quiet
from flows.capture.weights import load_model


def test_other_threads_can_be_heard(capfd: pytest.CaptureFixture[str]) -> None:
    entered, said = threading.Event(), threading.Event()
    shown = logging.is_progress_bar_enabled()

    def loading() -> None:
        with quiet():
            assert not logging.is_progress_bar_enabled()
            entered.set()
            said.wait(10)

    thread = threading.Thread(target=loading)
    thread.start()
    entered.wait(10)
    sys.stderr.write("heard\n")
    said.set()
    thread.join()
    assert capfd.readouterr().err == "heard\n"
    assert logging.is_progress_bar_enabled() == shown


def test_no_bar_is_drawn_for_gguf_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, rng = tmp_path / "tiny.gguf", np.random.default_rng(0)
    writer = GGUFWriter(file, "qwen2")
    writer.add_block_count(1)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(8)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_context_length(16)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(11)
    shapes = {
        "token_embd.weight": (11, 8),
        "output_norm.weight": (8,),
        "blk.0.attn_norm.weight": (8,),
        "blk.0.ffn_norm.weight": (8,),
    }
    for part in ("q", "k", "v"):
        shapes |= {f"blk.0.attn_{part}.weight": (8, 8), f"blk.0.attn_{part}.bias": (8,)}
    for part in ("attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        shapes[f"blk.0.{part}.weight"] = (8, 8)
    tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (checkpoint,) = find_checkpoints(str(file))
    loaded = load_model(checkpoint, device="cpu")
    embedding = loaded.model.get_input_embeddings().weight.numpy(force=True)
    np.testing.assert_array_equal(embedding, tensors["token_embd.weight"])
    assert capfd.readouterr().err == ""
