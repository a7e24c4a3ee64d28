"""Every row of every family is that of one image or sound, run alone by plain `transformers`."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from scipy.signal import resample_poly
from torch import Tensor, nn
from transformers import ViTImageProcessorPil

from flows.capture import find_checkpoints, from_ids
from flows.capture.decoding import decode_image, decode_sound
from flows.capture.errors import InputError, StructureError
from flows.capture.forward import Part, capture, capture_stacks
from flows.capture.guard import check_batching
from flows.capture.images import Images
from flows.capture.items import Items, ItemTokens
from flows.capture.media_structure import find_media_stacks
from flows.capture.sites import available_sites, sites_here
from flows.capture.sounds import Framing, Sounds
from flows.capture.weights import LoadedModel, load_model
from flows.loading import stack_tokens

Source = Callable[[str], str]

# Where the blocks are, by stack, written down from the source of transformers.
BLOCKS: dict[str, dict[str | None, str]] = {
    "beit": {None: "layers.{}"},
    "clip": {"vision": "vision_model.encoder.layers.{}"},
    "convnext": {f"stage{s + 1}": f"encoder.stages.{s}.layers.{{}}" for s in range(4)},
    "convnextv2": {f"stage{s + 1}": f"encoder.stages.{s}.layers.{{}}" for s in range(4)},
    "deit": {None: "layers.{}"},
    "dinov2": {None: "encoder.layer.{}"},
    "dinov2_with_registers": {None: "encoder.layer.{}"},
    "resnet": {f"stage{s + 1}": f"encoder.stages.{s}.layers.{{}}" for s in range(3)},
    "segformer": {f"stage{s + 1}": f"stages.{s}.blocks.{{}}" for s in range(4)},
    "siglip": {"vision": "vision_model.encoder.layers.{}"},
    "swin": {f"stage{s + 1}": f"encoder.layers.{s}.blocks.{{}}" for s in range(2)},
    "vit": {None: "layers.{}"},
    "hubert": {None: "encoder.layers.{}"},
    "wav2vec2": {None: "encoder.layers.{}"},
    "whisper": {"encoder": "encoder.layers.{}", "decoder": "decoder.layers.{}"},
}
# (special tokens, rows of the grid, columns) of the first stack, for images of 32 × 32.
EXTENTS = {
    "beit": (1, 4, 4),
    "clip": (1, 4, 4),
    "convnext": (0, 8, 8),
    "convnextv2": (0, 8, 8),
    "deit": (2, 4, 4),
    "dinov2": (1, 4, 4),
    "dinov2_with_registers": (5, 4, 4),
    "resnet": (0, 8, 8),
    "segformer": (0, 8, 8),
    "siglip": (0, 4, 4),
    "swin": (0, 8, 8),
    "vit": (1, 4, 4),
}
TOLERANCE = 1e-5
"""Of the row's norm, for the rounding of float32 in another order."""


def media(source: str, folder: Path, dtype: torch.dtype | None = None) -> tuple[Items, LoadedModel]:
    """Return the items of a folder and the model that is shown them."""
    (checkpoint,) = find_checkpoints(source)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    contents = [file.read_bytes() for file in files]
    kind = Images if files[0].suffix == ".png" else Sounds
    items = kind(checkpoint, contents.__getitem__, len(contents))
    return items, load_model(checkpoint, device="cpu", dtype=dtype, shown=items.shapes())


def flat(hidden: object) -> Tensor:
    """Return hidden states (position, dim) of one image; a map row by row."""
    first = hidden[0] if isinstance(hidden, tuple) else hidden
    assert isinstance(first, Tensor)
    return first[0] if first.dim() == 3 else first[0].permute(1, 2, 0).reshape(-1, first.shape[1])


def layers_alone(
    model: nn.Module, pattern: str, inputs: Mapping[str, Tensor]
) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Return the layers that one item gives in a forward pass of its own."""
    found: list[Tensor] = []
    modules = dict(model.named_modules())
    paths = [pattern.format(i) for i in range(99) if pattern.format(i) in modules]
    handles = []

    def before(_module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        found.append(flat(args[0] if args else kwargs["hidden_states"]).clone())

    for number, path in enumerate(paths):
        if number == 0:
            handles.append(modules[path].register_forward_pre_hook(before, with_kwargs=True))
        handles.append(
            modules[path].register_forward_hook(lambda _m, _a, out: found.append(flat(out).clone()))
        )
    hears = "input_features" in inputs and "decoder_input_ids" not in inputs
    extra = {"decoder_input_ids": torch.tensor([[1]])} if hears else {}
    if hasattr(model, "text_model"):
        model = model.vision_model
    with torch.inference_mode():
        model(**{name: value[None] for name, value in inputs.items()}, **extra)
    for handle in handles:
        handle.remove()
    if found[0].shape != found[1].shape:
        found = found[1:]
    return [layer.numpy() for layer in found]


@pytest.mark.parametrize("model_type", sorted(BLOCKS))
def test_rows_are_those_of_a_batch_of_one(
    model_type: str, media_model: Source, pictures: Path, noises: Path
) -> None:
    folder = pictures if model_type in EXTENTS else noises
    items, loaded = media(media_model(model_type), folder)
    assert [each.stack.name for each in loaded.each_stack()] == list(BLOCKS[model_type])
    for each in loaded.each_stack():
        tokens = stack_tokens(each, items)
        assert isinstance(tokens, ItemTokens)
        sites = available_sites(each.stack)
        blocks = list(capture(each, tokens, sites, block_rows=64, batch_tokens=90))
        residual = np.concatenate([block.values["residual"] for block in blocks], axis=1)
        assert residual.shape[1] == len(tokens)
        pattern = BLOCKS[model_type][each.stack.name]
        for sequence in range(tokens.n_sequences):
            rows = tokens.sequence_rows(sequence)
            alone = layers_alone(loaded.model, pattern, tokens.items.inputs(sequence))
            assert len(alone) == each.stack.n_blocks + 1
            for layer, expected in enumerate(alone):
                kept = expected[: rows.stop - rows.start]
                off = np.linalg.norm(residual[layer, rows] - kept, axis=1)
                assert (off <= TOLERANCE * np.linalg.norm(kept, axis=1)).all()


@pytest.mark.parametrize("model_type", sorted(BLOCKS))
def test_every_family_passes_in_bfloat16(
    model_type: str, media_model: Source, pictures: Path, noises: Path
) -> None:
    folder = pictures if model_type in EXTENTS else noises
    items, loaded = media(media_model(model_type), folder, torch.bfloat16)
    assert loaded.source_dtype == "bfloat16"
    for each in loaded.each_stack():
        sites = available_sites(each.stack)
        assert check_batching(each, stack_tokens(each, items), sites) <= 2e-2


MODULES = {
    "vit": ("module:layers.{i}.mlp.activation_fn", 48),
    "clip": ("module:vision_model.encoder.layers.{i}.mlp.fc1", 48),
    "convnext": ("module:encoder.stages.1.layers.{i}.dwconv", 24),
    "wav2vec2": ("module:encoder.layers.{i}.feed_forward.intermediate_dense", 48),
}


@pytest.mark.parametrize("model_type", sorted(MODULES))
def test_any_module_is_a_site(
    model_type: str, media_model: Source, pictures: Path, noises: Path
) -> None:
    items, loaded = media(media_model(model_type), noises if "wav" in model_type else pictures)
    site, width = MODULES[model_type]
    having = [each for each in loaded.each_stack() if sites_here(each.stack, loaded.stacks, [site])]
    (each,) = having
    tokens = items.tokens(each.stack.extent)
    (block,) = capture(each, tokens, ["residual", site], block_rows=10**6, batch_tokens=150)
    assert block.values[site].shape == (each.stack.n_blocks, len(tokens), width)
    assert check_batching(each, tokens, [site]) < TOLERANCE
    path = site.removeprefix("module:").removeprefix("vision_model.")
    modules = dict(each.stack.root.named_modules())
    found: list[Tensor] = []
    wanted = modules[path.replace("{i}", "0")]
    handle = wanted.register_forward_hook(lambda _m, _a, output: found.append(flat(output)))
    with torch.inference_mode():
        each.stack.root(**{name: value[None] for name, value in items.inputs(1).items()})
    handle.remove()
    rows = tokens.sequence_rows(1)
    np.testing.assert_allclose(block.values[site][0, rows], found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model_type", sorted(EXTENTS))
def test_rows_know_their_place_in_the_image(
    model_type: str, media_model: Source, pictures: Path
) -> None:
    items, loaded = media(media_model(model_type), pictures)
    special, height, width = EXTENTS[model_type]
    columns = items.tokens(loaded.stack.extent).coordinates()
    first = columns["sequence"] == 0
    assert columns["special"][first].sum() == special
    assert columns["row"][first].tolist() == [-1] * special + [
        y for y in range(height) for _ in range(width)
    ]
    assert columns["column"][first].tolist() == [-1] * special + [*range(width)] * height
    assert columns["document"].tolist() == columns["sequence"].tolist()


@pytest.mark.parametrize("model_type", ["clip", "siglip"])
def test_the_text_tower_is_shown_texts(model_type: str, media_model: Source) -> None:
    (checkpoint,) = find_checkpoints(media_model(model_type))
    loaded = load_model(checkpoint, device="cpu")
    assert (loaded.stack.name, loaded.stack.n_blocks) == ("text", 1)
    assert loaded.stack.causal == (model_type == "clip")
    ids = [np.array([1, 5, 9, 2]), np.array([1, 7, 2])]
    (block,) = capture(loaded, from_ids(ids), ["residual"], block_rows=8)
    with torch.inference_mode():
        alone = loaded.model.text_model(torch.from_numpy(ids[1])[None], output_hidden_states=True)
    for layer in range(2):
        expected = alone.hidden_states[layer][0].numpy()
        np.testing.assert_allclose(block.values["residual"][layer, 4:], expected, atol=1e-5)


def test_a_patch_is_where_its_pixels_are(media_model: Source, pictures: Path) -> None:
    """Only patches change, before attention, in which pixels do."""
    items, loaded = media(media_model("vit"), pictures)
    pixels = items.inputs(0)["pixel_values"][None]
    changed = pixels.clone()
    changed[:, :, 8:16, 24:32] += 1.0  # patches of 8 pixels: row 1, column 3
    with torch.inference_mode():
        before, after = (loaded.model.embeddings(one)[0] for one in (pixels, changed))
    (where,) = torch.nonzero((before != after).any(dim=1)).flatten().tolist()
    columns = items.tokens(loaded.stack.extent).coordinates()
    assert (columns["row"][where], columns["column"][where]) == (1, 3)


def test_pixels_are_those_of_the_processor(media_model: Source, pictures: Path) -> None:
    items, _ = media(media_model("vit"), pictures)
    image = decode_image(sorted(pictures.rglob("*.png"))[0].read_bytes())
    plain = ViTImageProcessorPil(size={"height": 32, "width": 32})
    expected = plain(images=image, return_tensors="np")["pixel_values"][0]
    np.testing.assert_allclose(items.inputs(0)["pixel_values"].numpy(), expected, rtol=1e-6)


def test_one_forward_pass_gives_all_stages(media_model: Source, pictures: Path) -> None:
    items, loaded = media(media_model("resnet"), pictures)
    parts = [
        Part(each, items.tokens(each.stack.extent), ["residual"], 64)
        for each in loaded.each_stack()
    ]
    calls: list[int] = []
    counting = loaded.model.register_forward_pre_hook(lambda *_: calls.append(1))
    blocks = list(capture_stacks(parts, batch_tokens=200))
    counting.remove()
    # The first stage has 64 rows an image: three of the five images at once.
    assert len(calls) == 2
    for number, part in enumerate(parts):
        own = [block.values["residual"] for block in blocks if block.part == number]
        alone = capture(part.loaded, part.tokens, ["residual"], block_rows=64)
        expected = np.concatenate([block.values["residual"] for block in alone], axis=1)
        np.testing.assert_allclose(np.concatenate(own, axis=1), expected, rtol=1e-5, atol=1e-5)


def test_blocks_can_be_named(media_model: Source, pictures: Path) -> None:
    items, loaded = media(media_model("swin"), pictures)
    for paths in ("encoder.layers.1.blocks", "encoder.layers.0.blocks, encoder.layers.1.blocks"):
        named = find_media_stacks(loaded.model, items.shapes(), paths)
        assert ", ".join(stack.path for stack in named) == paths
    with pytest.raises(StructureError, match=r"expected no\.such, 0 fit"):
        find_media_stacks(loaded.model, items.shapes(), "no.such")


def test_stages_have_their_depth_in_the_whole_model(media_model: Source, pictures: Path) -> None:
    _, loaded = media(media_model("resnet"), pictures)
    stages = [each.stack for each in loaded.each_stack()]
    # Stages of 2, 3 and 1 blocks; the first block of the later ones changes the shape of the map.
    assert [(s.depth_start, s.depth_blocks, s.n_blocks) for s in stages] == [
        (0, 6, 2),
        (3, 6, 2),
        (6, 6, 0),
    ]
    assert [s.width for s in stages] == [16, 24, 32]


def test_samples_of_a_row_are_those_that_it_is_made_from(media_model: Source, noises: Path) -> None:
    items, loaded = media(media_model("hubert"), noises)
    columns = items.tokens(None).coordinates()
    own = columns["sequence"] == 1
    start, stop = (columns[name][own] for name in ("sample_start", "sample_end"))
    # Kernels 10, 3, 2 and strides 5, 4, 4: a window of 10 + 2·5 + 1·20 samples, every 80.
    assert (start[0], stop[0], start[1]) == (0, 40, 80)
    assert len(start) == (1700 - 40) // 80 + 1
    samples = items.inputs(1)["input_values"][None]
    changed = samples.clone()
    changed[:, start[5] : stop[5]] += torch.linspace(-1, 1, 40)
    with torch.inference_mode():
        before, after = (loaded.model.feature_extractor(one)[0] for one in (samples, changed))
    assert torch.nonzero((before != after).any(dim=0)).flatten().tolist() == [5]


def test_other_rates_are_resampled_and_channels_averaged(media_model: Source, noises: Path) -> None:
    items, _ = media(media_model("hubert"), noises)
    samples, rate = soundfile.read(noises / "d.wav", dtype="float32")
    assert (samples.shape, rate) == ((900, 2), 8000)
    expected = resample_poly(samples.mean(axis=1), 2, 1)
    expected = (expected - expected.mean()) / np.sqrt(expected.var() + 1e-7)
    got = items.inputs(3)["input_values"].numpy()
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert (items.tokens(None).document == 3).sum() == (1800 - 40) // 80 + 1


def test_whisper_keeps_no_row_of_silence_that_was_added(media_model: Source, noises: Path) -> None:
    items, loaded = media(media_model("whisper"), noises)
    tokens = items.tokens(loaded.stack.extent)
    # 50 positions of 320 samples are computed; 3000, 1700, 3000 and 1800 samples fill so many.
    assert tokens.lengths.tolist() == [10, 6, 10, 6]
    assert Framing(320, 320, 50).rows(10**6) == 50


def test_a_sound_too_short_for_a_row_is_refused(media_model: Source, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "click.wav", np.full(20, 0.1), 16000)
    items, _ = media(media_model("wav2vec2"), tmp_path)
    with pytest.raises(InputError, match=r"sound 0 has 20 samples .* needs 40"):
        items.tokens(None)


def test_damaged_files_are_told_apart() -> None:
    with pytest.raises(InputError, match="no readable image"):
        decode_image(b"\x89PNG\r\n\x1a\nnothing")
    with pytest.raises(InputError, match="no readable image"):
        decode_image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")  # a program runs for it
    with pytest.raises(InputError, match="no readable sound"):
        decode_sound(b"RIFF")
    silent = io.BytesIO()
    soundfile.write(silent, np.zeros((0, 1)), 16000, format="WAV")
    with pytest.raises(InputError, match="no samples"):
        decode_sound(silent.getvalue())


def test_a_model_of_another_build_is_shown_as_it_is(
    media_model: Source, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import ViTModel

    def once(self: ViTModel, pixel_values: Tensor, **_kwargs: object) -> Tensor:
        return self.layers[0](self.embeddings(pixel_values))

    monkeypatch.setattr(ViTModel, "forward", once)
    with pytest.raises(
        StructureError, match=r"ViTModel: expected one list .* layers \(3 × ViTLayer"
    ):
        media(media_model("vit"), pictures)
