"""Whisper's decoder: what it is shown, its rows, and stores that held the encoder alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import zarr
from click.testing import CliRunner, Result
from transformers import (
    GenerationConfig,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperModel,
)

from flows.capture import find_checkpoints
from flows.capture.configs import load_config
from flows.capture.errors import CheckpointError, StructureError
from flows.capture.fingerprints import fingerprint
from flows.capture.forward import capture
from flows.capture.guard import check_batching, deviation
from flows.capture.items import ItemTokens
from flows.capture.media_decoder import prompt_of
from flows.capture.media_structure import find_media_stacks
from flows.capture.sites import available_sites
from flows.capture.sounds import Sounds
from flows.capture.weights import LoadedModel, load_model
from flows.cli import actlas
from flows.loading import stack_tokens
from store import open_store
from store.repository import Repository

PROMPT = (1, 7, 9, 11)
"""The start token, a language, a task, and no timestamps."""

FORCED = [[1, 7], [2, 9], [3, 11]]
TOLERANCE = 1e-5

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, media_model: Callable[[str], str]) -> str:
    """Return the folder of a small Whisper, saved with its weights and its feature extractor."""
    folder = tmp_path_factory.mktemp("whisper") / "heard"
    torch.manual_seed(0)
    drawn = media_model("whisper").removeprefix("random:")
    config = WhisperConfig.from_pretrained(drawn, decoder_layers=3, init_std=0.3)
    WhisperModel(config).save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=16, chunk_length=1).save_pretrained(folder)
    saved = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(saved | {"forced_decoder_ids": FORCED}))
    return str(folder)


def sounds_of(source: str, folder: Path) -> tuple[Sounds, LoadedModel]:
    (checkpoint,) = find_checkpoints(source)
    files = sorted(folder.glob("*.wav"))
    sounds = Sounds(checkpoint, lambda number: files[number].read_bytes(), len(files))
    return sounds, load_model(checkpoint, device="cpu", attention="eager", shown=sounds.shapes())


def test_rows_of_both_stacks_are_those_of_a_batch_of_one(source: str, noises: Path) -> None:
    sounds, loaded = sounds_of(source, noises)
    encoder, decoder = (each.stack for each in loaded.each_stack())
    assert (encoder.name, encoder.n_blocks, encoder.causal) == ("encoder", 2, False)
    assert (decoder.name, decoder.n_blocks, decoder.causal) == ("decoder", 3, True)
    assert decoder.prompt == PROMPT
    plain = WhisperModel.from_pretrained(source).eval()
    for each in loaded.each_stack():
        tokens = stack_tokens(each, sounds)
        (block,) = capture(each, tokens, ["residual", "final_norm"], block_rows=99)
        for sequence in range(len(sounds)):
            with torch.inference_mode():
                output = plain(
                    input_features=sounds.inputs(sequence)["input_features"][None],
                    decoder_input_ids=torch.tensor([PROMPT]),
                    output_hidden_states=True,
                )
            *layers, last = getattr(output, f"{each.stack.name}_hidden_states")
            rows = tokens.sequence_rows(sequence)
            kept = slice(0, rows.stop - rows.start)
            for layer, expected in enumerate(layers):
                got = block.values["residual"][layer, rows]
                assert deviation("residual", got, expected[0, kept].numpy()) <= TOLERANCE
            got = block.values["final_norm"][rows]
            assert deviation("final_norm", got, last[0, kept].numpy()) <= TOLERANCE


def test_every_site_of_the_decoder_passes_the_guard(source: str, noises: Path) -> None:
    sounds, loaded = sounds_of(source, noises)
    _, decoder = loaded.each_stack()
    sites = [*available_sites(decoder.stack), "module:decoder.layers.{i}.fc1"]
    assert {"residual", "final_norm", "query", "attention_entropy"} <= set(sites)
    batches: list[int] = []
    counting = loaded.model.register_forward_pre_hook(
        lambda _model, _args, given: batches.append(len(given["input_features"])),
        with_kwargs=True,
    )
    assert check_batching(decoder, stack_tokens(decoder, sounds), sites) <= TOLERANCE
    counting.remove()
    assert 3 in batches  # three sounds at once, though each has but four rows


def test_rows_of_the_decoder_are_its_tokens(source: str, noises: Path) -> None:
    sounds, loaded = sounds_of(source, noises)
    _, decoder = loaded.each_stack()
    tokens = stack_tokens(decoder, sounds)
    assert isinstance(tokens, ItemTokens)
    columns = tokens.coordinates()
    assert columns["token_id"].tolist() == [*PROMPT] * 4
    assert columns["position"].tolist() == [0, 1, 2, 3] * 4
    assert columns["sequence"].tolist() == [n for n in range(4) for _ in PROMPT]
    assert columns["special"].all()
    # Each belongs to the whole sound, whose samples are those at 16 kHz.
    assert columns["sample_end"][::4].tolist() == [3000, 1700, 3000, 1800]
    assert tokens.select([2]).token_id.tolist() == [*PROMPT]


def test_lists_of_blocks_of_both_stacks_can_be_named(source: str, noises: Path) -> None:
    sounds, loaded = sounds_of(source, noises)
    found = find_media_stacks(loaded.model, sounds.shapes(), "encoder.layers, decoder.layers")
    assert [stack.path for stack in found] == ["layers", "decoder.layers"]


def test_a_decoder_begins_with_what_its_config_forces() -> None:
    def prompt(**entries: object) -> tuple[int, ...]:
        return prompt_of(WhisperConfig(vocab_size=96, pad_token_id=0, **entries))

    assert prompt(decoder_start_token_id=1) == (1,)
    assert prompt(decoder_start_token_id=1, forced_decoder_ids=FORCED) == PROMPT
    # A language that is to be found out is none: what comes after it would be out of place.
    assert prompt(decoder_start_token_id=1, forced_decoder_ids=[[1, None], [2, 9]]) == (1,)
    with pytest.raises(StructureError, match=r"begin with token 96: expected ids .* 0 to 95"):
        prompt(decoder_start_token_id=1, forced_decoder_ids=[[1, 96]])


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ([[1, 5], [2, 6]], (1, 5, 6)),
        # A language that is to be detected: the model's own config says more.
        ([[1, None], [2, 6]], PROMPT),
        (None, PROMPT),
    ],
)
def test_what_generation_forces_goes_before_the_config_of_the_model(
    source: str,
    noises: Path,
    tmp_path: Path,
    generation: list[list[int | None]] | None,
    expected: tuple[int, ...],
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(source, folder)
    (plain,) = find_checkpoints(str(folder))
    without = fingerprint(plain)
    (folder / "generation_config.json").write_text(json.dumps({"forced_decoder_ids": generation}))
    _, loaded = sounds_of(str(folder), noises)
    assert [stack.prompt for stack in loaded.stacks] == [None, expected]
    # Rows of another prompt are other rows: the identity tells them apart.
    assert (fingerprint(plain) == without) == (expected == PROMPT)
    assert prompt_of(load_config(find_checkpoints(f"random:{folder}")[0])) == expected


NAMES = {
    "lang_to_id": {"<|en|>": 7, "<|de|>": 8},
    "task_to_id": {"transcribe": 9, "translate": 10},
    "no_timestamps_token_id": 11,
}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"language": "<|de|>", "task": "translate"}, (1, 8, 10, 11)),
        # Those of a name go before those that are forced; the task is to transcribe unless named.
        ({"language": "German", "forced_decoder_ids": [[1, 5]]}, (1, 8, 9, 11)),
        ({"language": "de", "return_timestamps": True}, (1, 8, 9)),
        # The language is to be detected, sound by sound: the model's own config says more.
        ({"task": "translate"}, PROMPT),
        ({"task": "translate", "lang_to_id": None}, (1, 10, 11)),
        ({"forced_decoder_ids": [[1, 7], [2, 10]]}, (1, 7, 10, 11)),
        ({}, PROMPT),
    ],
)
def test_languages_and_tasks_are_shown_as_generation_shows_them(
    source: str, tmp_path: Path, entries: dict[str, object], expected: tuple[int, ...]
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(source, folder)
    (folder / "generation_config.json").write_text(json.dumps(NAMES | entries))
    assert prompt_of(load_config(find_checkpoints(f"random:{folder}")[0])) == expected


@pytest.mark.parametrize("language", ["de", "english", None])
def test_a_language_gives_the_prompt_that_transformers_generates_from(
    source: str, tmp_path: Path, language: str | None
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(source, folder)
    entries = {"language": language, "task": "translate"} if language else {"task": "translate"}
    written = {"decoder_start_token_id": 1, **NAMES, **entries}
    written |= {} if language else {"lang_to_id": None}
    (folder / "generation_config.json").write_text(
        json.dumps({name: value for name, value in written.items() if value is not None})
    )
    model = WhisperForConditionalGeneration(WhisperConfig.from_pretrained(folder))
    generation = GenerationConfig.from_pretrained(folder, return_timestamps=False)
    own = model._retrieve_init_tokens(None, 1, generation, model.config, 0, {})
    assert prompt_of(load_config(find_checkpoints(f"random:{folder}")[0])) == tuple(own[0].tolist())


def test_a_language_without_an_id_is_refused(source: str, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(source, folder)
    (folder / "generation_config.json").write_text(json.dumps(NAMES | {"language": "klingon"}))
    with pytest.raises(CheckpointError, match=r"'<\|klingon\|>', and has no id .* <\|en\|>, <\|de"):
        fingerprint(find_checkpoints(str(folder))[0])


def test_what_generation_forces_has_to_be_pairs(source: str, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(source, folder)
    (folder / "generation_config.json").write_text('{"forced_decoder_ids": [50259, 50359]}')
    with pytest.raises(CheckpointError, match=r"\[50259, 50359\]: expected pairs of a position"):
        fingerprint(find_checkpoints(str(folder))[0])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def invoke(*arguments: str) -> Result:
        result = CliRunner().invoke(
            actlas,
            list(arguments),
            env={"ACTLAS_STORE": str(tmp_path / "store")},
            catch_exceptions=False,
        )
        assert result.exit_code == 0, result.output
        return result

    return invoke


def test_a_decoder_is_added_to_a_store_that_held_the_encoder_alone(
    run: Run, source: str, noises: Path, tmp_path: Path
) -> None:
    run("corpus", "add", "noises", "--audio", str(noises))
    (planned,) = json.loads(run("ingest", source, "--corpus", "noises", "--plan", "--json").output)[
        "steps"
    ]
    run("ingest", source, "--corpus", "noises")
    store = str(tmp_path / "store")
    tree = open_store(store)["noises/heard"]
    assert tree["decoder"].attrs["decoder_input_ids"] == [*PROMPT]
    assert tree["decoder"].sizes["token"] == 16
    assert planned["tokens"] == tree["encoder"].sizes["token"] + 16
    before = tree["decoder"].residual.values

    def as_earlier(root: zarr.Group) -> None:
        """Leave what versions without the decoder stored."""
        del root["noises/heard/decoder"]
        root["noises/heard/encoder"].attrs["stacks"] = ["encoder"]

    Repository.open(store).update("as earlier", as_earlier)
    run("verify", "noises/heard", "--replay", "2", "--source", source)
    assert "there already" not in run("ingest", source, "--corpus", "noises").output
    after = open_store(store)["noises/heard/decoder"].residual.values
    np.testing.assert_array_equal(after, before)
    assert "there already" in run("ingest", source, "--corpus", "noises").output
    run("verify", "noises/heard", "--replay", "2", "--source", source)
    # Of the encoder the last frame, of the decoder the last token of each sound.
    run("ingest", source, "--corpus", "noises", "--tokens", "last", "--name", "ends")
    ends = open_store(store)["noises/ends"]
    assert (ends["encoder"].sizes["token"], ends["decoder"].sizes["token"]) == (4, 4)
    np.testing.assert_array_equal(ends["decoder"].token_id, [PROMPT[-1]] * 4)
    np.testing.assert_allclose(ends["decoder"].residual, after[..., 3::4, :], atol=TOLERANCE)
    run("compute", "average_cosine")
    assert "heard/decoder" in run("ls", "--json").output
