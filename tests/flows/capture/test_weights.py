from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from flows.capture import find_checkpoints, load_config, load_tokenizer, longest_input
from flows.capture.errors import CheckpointError, TokenizerError
from flows.capture.weights import LoadedModel, load_model

Build = Callable[..., LoadedModel]


def load(directory: Path, **options: object) -> LoadedModel:
    return load_model(find_checkpoints(str(directory))[0], device="cpu", **options)


def test_loading_gives_the_saved_weights(
    saved_model: Path, tiny_model: Build, capfd: pytest.CaptureFixture[str]
) -> None:
    loaded = load(saved_model)
    assert (loaded.model_type, loaded.source_dtype, loaded.causal) == ("gpt_neox", "float32", True)
    assert not loaded.has_head
    assert not loaded.model.training
    expected = tiny_model("gpt_neox", head=True).model.gpt_neox.state_dict()
    for name, tensor in loaded.model.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=0)
    assert load(saved_model, head=True).stack.path == "gpt_neox.layers"
    # Neither a progress bar nor a load report reaches the terminal.
    assert capfd.readouterr() == ("", "")


def test_the_stored_dtype_is_kept(saved_model: Path, tiny_model: Build) -> None:
    model = tiny_model("gpt_neox", head=True).model
    model.to(torch.bfloat16).save_pretrained(saved_model)
    model.to(torch.float32)
    assert load(saved_model).source_dtype == "bfloat16"
    assert load(saved_model, dtype=torch.float32).source_dtype == "float32"


def test_attention_can_be_chosen(saved_model: Path) -> None:
    assert load(saved_model).attention == "sdpa"
    assert load(saved_model, attention="eager").attention == "eager"


def test_weights_that_do_not_cover_the_model_are_refused(saved_model: Path) -> None:
    file = saved_model / "model.safetensors"
    weights = load_file(file)
    dropped = weights.pop("gpt_neox.layers.1.mlp.dense_h_to_4h.weight")
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lacks 1 weight .*layers.1.mlp.dense_h_to_4h"):
        load(saved_model)
    weights["gpt_neox.layers.1.mlp.dense_h_to_4h.weight"] = dropped[:-1].contiguous()
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"(?s)cannot be loaded: .*mismatch"):
        load(saved_model)


def test_an_encoder_without_its_pooler_is_whole(tmp_path: Path, tiny_model: Build) -> None:
    tiny_model("bert").model.save_pretrained(tmp_path / "bert")
    file = tmp_path / "bert" / "model.safetensors"
    weights = {name: t for name, t in load_file(file).items() if "pooler" not in name}
    save_file(weights, file, metadata={"format": "pt"})
    assert load(tmp_path / "bert").model_type == "bert"


def test_code_in_a_checkpoint_is_never_run(saved_model: Path, tmp_path: Path) -> None:
    config = json.loads((saved_model / "config.json").read_text())
    foreign = {"model_type": "foreign", "auto_map": {"AutoConfig": "own.Own"}}
    (saved_model / "config.json").write_text(json.dumps(config | foreign))
    (saved_model / "own.py").write_text("raise SystemExit('ran')")
    with pytest.raises(CheckpointError, match="needs Python code that comes with it"):
        load(saved_model)

    class Harmful:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (str(tmp_path / "ran"),)

    (saved_model / "config.json").write_text(json.dumps(config))
    (saved_model / "model.safetensors").unlink()
    torch.save({"x": Harmful()}, saved_model / "pytorch_model.bin", pickle_module=pickle)
    with pytest.raises(CheckpointError, match="cannot be loaded: it holds more than tensors"):
        load(saved_model)
    assert not (tmp_path / "ran").exists()


def test_untrained_models_leave_the_generator_alone() -> None:
    source = "random:bert:vocab_size=20,hidden_size=8,num_hidden_layers=1,num_attention_heads=1"
    state = torch.random.get_rng_state()
    one = load_model(find_checkpoints(source)[0])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert one.stack.n_blocks == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("random:brt", "'brt' is neither a folder nor a known model type; did you mean 'bert'"),
        ("random:bert:hiden_size=3", "bert has no entry 'hiden_size'; did you mean 'hidden_size'"),
        ("random:bert:hidden_size=33", "no model can be built .* not a multiple"),
        ("random:bert:num_hidden_layers=two", "config of .* cannot be used"),
    ],
)
def test_untrained_models_that_cannot_be_built_are_refused(source: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=f"(?s){message}"):
        load_model(find_checkpoints(source)[0])


def test_overrides_of_a_local_config(saved_model: Path) -> None:
    found = find_checkpoints(f"random:{saved_model}:num_hidden_layers=2,hidden_size=16")[0]
    stack = load_model(found).stack
    assert (stack.n_blocks, stack.width) == (2, 16)
    assert len(load_tokenizer(found)) > 0


def test_tokenizers(saved_model: Path) -> None:
    found = find_checkpoints(str(saved_model))[0]
    tokenizer = load_tokenizer(found)
    assert tokenizer.is_fast
    assert longest_input(load_config(found)) == 64
    tokenizer.model_max_length = 30
    assert longest_input(load_config(found), tokenizer) == 30


def test_a_missing_or_broken_tokenizer_is_refused(saved_model: Path) -> None:
    found = find_checkpoints(str(saved_model))[0]
    (saved_model / "tokenizer.json").write_text("{")
    with pytest.raises(TokenizerError, match="cannot be read"):
        load_tokenizer(found)
    for file in saved_model.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(TokenizerError, match=r"has no tokenizer: expected tokenizer.json"):
        load_tokenizer(found)
    with pytest.raises(TokenizerError, match="has no tokenizer"):
        load_tokenizer(find_checkpoints("random:bert")[0])


def test_a_tokenizer_without_its_vocabulary_is_refused(tmp_path: Path, tiny_model: Build) -> None:
    # Beside an ALBERT with the vocabulary of another kind of tokenizer, transformers builds one
    # that knows its special tokens only.
    directory = tmp_path / "albert"
    tiny_model("albert").model.save_pretrained(directory)
    (directory / "vocab.txt").write_text("[PAD]\n[CLS]\n[SEP]\n[UNK]\nC\nN\n")
    with pytest.raises(TokenizerError):
        load_tokenizer(find_checkpoints(str(directory))[0])
