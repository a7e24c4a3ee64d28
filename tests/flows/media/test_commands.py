"""Images and sounds the way a user takes them: from folders to numbers, figures and proofs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from click.testing import Result

from analysis.token_sample import sample_tokens
from flows.corpora import Chunking, add_texts
from store import cube, open_metrics, open_store
from store.repository import Repository

Run = Callable[..., Result]

METRICS = ("average_cosine", "svd_anisotropy", "two_nn", "curvature", "drift_norm")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("media") / "store")


@pytest.fixture(scope="module")
def run(store: str, runner: Callable[[str], Run]) -> Run:
    return runner(store)


@pytest.fixture(scope="module")
def filled(
    run: Run, store: str, pictures: Path, noises: Path, media_model: Callable[[str], str]
) -> Run:
    """Return how to run ``actlas`` on a store with three models of images and one of sounds."""
    run("corpus", "add", "drawn", "--images", str(pictures))
    run("corpus", "add", "heard", "--audio", str(noises))
    add_texts(store, "told", {"a": "some text"}, chunking=Chunking("whole"))
    for model_type, corpus in (("vit", "drawn"), ("resnet", "drawn"), ("wav2vec2", "heard")):
        source = media_model(model_type)
        (planned,) = json.loads(
            run(
                "ingest", source, "--corpus", corpus, "--sites", "residual", "--plan", "--json"
            ).output
        )["steps"]
        run("ingest", source, "--corpus", corpus, "--sites", "residual")
        held = json.loads(run("ls", f"{corpus}/random-{model_type}", "--json").output)
        values = [entry["n_tokens"] * len(entry["layers"]) * entry["width"] for entry in held]
        assert planned["tokens"] == sum(entry["n_tokens"] for entry in held)
        assert planned["raw_bytes"] == 4 * sum(values)
    run("compute", *METRICS)
    return run


def test_a_token_is_told_by_its_place_in_a_named_file(filled: Run, store: str) -> None:
    """What the explorer shows over a point: there are no words."""
    repository = Repository.open(store)
    seen = sample_tokens(repository, "drawn/random-vit", size=10_000)
    table = open_store(store)["drawn/random-vit"].to_dataset()
    at = seen.tokens[3]
    place = f"row {int(table['row'][at])}, column {int(table['column'][at])}"
    assert seen.words[3] == place
    # Files in the order of their names: two discs, the one in no folder, two squares.
    titles = ["2.png", "disc/0.png (disc)", "disc/1.png (disc)"]
    titles += ["square/0.png (square)", "square/1.png (square)"]
    assert sorted(set(seen.contexts)) == titles
    heard = sample_tokens(repository, "heard/random-wav2vec2", size=10_000)
    assert heard.contexts[0] == "a.wav"
    assert heard.words[0].startswith("samples 0 to ")


def test_all_metrics_are_there_for_the_usual_rows(filled: Run, store: str) -> None:
    for corpus in ("drawn", "heard"):
        values = open_metrics(store, corpus=corpus)
        for model in values.model.values:
            cosine = values.average_cosine.sel(model=model, population=["content", "typical"])
            assert np.isfinite(cosine.dropna("layer", how="all")).all()


def test_stages_follow_each_other_in_depth(filled: Run, store: str) -> None:
    values = open_metrics(store, corpus="drawn", models=["random-resnet"])
    depths = values.relative_depth.values
    assert values.model.values.tolist() == [f"random-resnet/stage{n}" for n in (1, 2, 3)]
    # Stages of 2, 3 and 1 blocks; layer 0 of the later ones is what their first block gives.
    expected = [[0, 1 / 6, 2 / 6], [3 / 6, 4 / 6, 5 / 6], [1, np.nan, np.nan]]
    np.testing.assert_allclose(depths, expected)


def test_rows_have_the_label_of_their_item(filled: Run, store: str) -> None:
    model = open_store(store)["drawn/random-vit"].to_dataset()
    assert model.label.values[[0, 17, 84]].tolist() == ["", "disc", "square"]
    squares = model.residual.sel(step=0, layer=3).where(model.label == "square", drop=True)
    assert squares.shape == (2 * 17, 32)
    assert cube(store, corpus="drawn", models=["random-vit"]).sizes["token"] == 5 * 17


def test_figures_and_pages_are_drawn(filled: Run, tmp_path: Path) -> None:
    for corpus in ("drawn", "heard"):
        figure = tmp_path / f"{corpus}.png"
        filled("plot", "average_cosine", "--corpus", corpus, "-o", str(figure))
        assert figure.read_bytes().startswith(b"\x89PNG")
    filled("report", "-o", str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    assert '"stack":"stage2"' in page.replace(" ", "")
    assert f'"depth":[{3 / 6},{4 / 6 - 3 / 6}]' in page.replace(" ", "")


@pytest.mark.parametrize(
    ("corpus", "model_type"), [("drawn", "vit"), ("drawn", "resnet"), ("heard", "wav2vec2")]
)
def test_stored_rows_are_proved_by_running_items_again(
    filled: Run, corpus: str, model_type: str, media_model: Callable[[str], str]
) -> None:
    model = f"{corpus}/random-{model_type}"
    source = media_model(model_type)
    filled("verify", model, "--replay", "2", "--source", source)
    again = filled("ingest", source, "--corpus", corpus, "--sites", "residual").output
    assert "there already" in again


def test_a_model_of_another_kind_is_refused_before_its_weights(
    filled: Run, media_model: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.capture.untrained.draw_model", None)
    monkeypatch.setattr("flows.capture.weights.load_model", None)
    told = filled("ingest", media_model("vit"), "--corpus", "told", code=1).output
    assert "is a vit, which takes image, and corpus 'told' holds text" in told
    told = filled("ingest", "random:gpt2", "--corpus", "drawn", code=1).output
    assert "takes text, and corpus 'drawn' holds image" in told
    told = filled("ingest", media_model("wav2vec2"), "--corpus", "drawn", code=1).output
    assert "takes audio" in told


def test_a_sound_longer_than_the_model_takes_is_cut_or_refused(
    run: Run, store: str, tmp_path: Path, media_model: Callable[[str], str]
) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    noise = np.random.default_rng(0).normal(0, 0.1, 24_000)  # 1.5 s, where the model takes 1 s
    soundfile.write(folder / "a.wav", noise, 16_000)
    run("corpus", "add", "long", "--audio", str(folder))
    source = media_model("whisper")
    (planned,) = json.loads(run("ingest", source, "--corpus", "long", "--plan", "--json").stdout)[
        "steps"
    ]
    assert (planned["sequences"], planned["truncated_sequences"]) == (1, 1)
    told = run("ingest", source, "--corpus", "long", "--no-truncate", "--plan", code=1).stderr
    assert "1 of 1 sequences of long are longer than the 50 frames" in told
    refused = run("ingest", source, "--corpus", "long", "--no-truncate", code=1)
    assert "1 of 1 sequences of long are longer than the 50 frames" in refused.stderr
    assert "long" not in {path.split("/")[0] for path in held_paths(run)}
    told = run("ingest", source, "--corpus", "long").output
    assert "1 of 1 sequences are longer than the model takes, and are cut" in told
    encoder = open_store(store)["long/random-whisper/encoder"]
    assert (encoder.sizes["token"], encoder.attrs["truncated_sequences"]) == (50, 1)


def held_paths(run: Run) -> list[str]:
    return [entry["path"] for entry in json.loads(run("ls", "--json").output)]


def test_other_settings_of_the_processor_are_another_identity(
    filled: Run, tmp_path: Path, media_model: Callable[[str], str]
) -> None:
    directory = Path(media_model("vit").removeprefix("random:"))
    settings = {
        "image_processor_type": "ViTImageProcessor",
        "size": {"height": 32, "width": 32},
        "image_mean": [0.4, 0.4, 0.4],
    }
    other = tmp_path / "vit"
    other.mkdir()
    (other / "config.json").write_bytes((directory / "config.json").read_bytes())
    (other / "preprocessor_config.json").write_text(json.dumps(settings))
    told = filled("ingest", f"random:{other}", "--corpus", "drawn", code=1).output
    assert "preprocessing.image_mean" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ["--images", ".", "--chunk-chars", "5"],
        ["--images", ".", "--audio", "."],
        ["--images", ".", "--column", "x"],
        ["--ids", __file__, "--strict"],
        [],
    ],
)
def test_options_that_do_not_go_together_are_usage_errors(run: Run, arguments: list[str]) -> None:
    run("corpus", "add", "x", *arguments, code=2)
