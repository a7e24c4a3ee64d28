"""The document of a report: what is in it, and that it stays small."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

from analysis.report.document import Document, build_document
from analysis.report.measured import Measured
from analysis.report.page import render
from store.catalogue import HeldStep

Models = Callable[..., Measured]
Results = Callable[..., xr.Dataset]
Unpack = Callable[[str], npt.NDArray[np.float32]]


def read_variable(
    document: Document, unpack: Unpack, model: int, name: str, *, errors: bool = False
) -> xr.DataArray:
    """Read a variable back as the script of the page does."""
    content: dict[str, Any] = dict(document.content)
    variable = content["series"][model][name]
    coords = {dim: content["axes"][axis] for dim, axis in variable["dims"]}
    start = variable["errors"] if errors else variable["at"]
    shape = [len(labels) for labels in coords.values()]
    numbers = unpack(document.numbers)[start : start + int(np.prod(shape))]
    return xr.DataArray(numbers.reshape(shape), coords, tuple(coords))


def test_every_number_of_the_results_is_in_the_document(
    make_model: Models, make_results: Results, unpack: Unpack
) -> None:
    results = make_results(heads=3)
    models = [make_model("other"), make_model(results=results)]
    document = build_document("store", "snapshot", models)
    for name in ("average_cosine", "gride", "n", "query_key_cosine"):
        read = read_variable(document, unpack, 1, name)
        xr.testing.assert_allclose(read, results[name].astype(np.float32), rtol=1e-4)
    errors = read_variable(document, unpack, 1, "average_cosine", errors=True)
    np.testing.assert_allclose(errors, 0.01, rtol=0.03)
    assert document.content["thinning"] == {"longest": 4, "steps": 4, "wide_steps": 4}


def test_the_samples_of_values_are_in_the_document(
    make_model: Models, make_samples: Callable[..., xr.DataArray], unpack: Unpack
) -> None:
    of_one, of_two = make_samples([400] * 4), make_samples([400, 400, 50, 0])
    samples = {"average_cosine": of_one, "gride": of_two}
    document = build_document("store", "snapshot", [make_model(samples=samples), make_model()])
    packed, other = (dict(series) for series in document.content["series"])  # type: ignore[arg-type, union-attr]  # JSON
    four_hundred, fifty = {"sample": 400, "seed": 0}, {"sample": 50, "seed": 0}
    assert packed["average_cosine"]["samples"] == {"settings": [four_hundred], "at": None}
    assert packed["gride"]["samples"]["settings"] == [four_hundred, fifty]
    start = packed["gride"]["samples"]["at"]
    shape = (4, 4, 2, 3)  # step, layer, population, scale
    numbers = unpack(document.numbers)[start : start + 96].reshape(shape)[:, 0, 0, 0]
    np.testing.assert_array_equal(numbers, [0, 0, 1, np.nan])
    assert "samples" not in packed["n"]
    assert "samples" not in other["gride"]


def test_a_spectrum_is_thinned_to_its_first_and_last_components(
    make_model: Models, make_results: Results, unpack: Unpack
) -> None:
    document = build_document("store", "snapshot", [make_model()])
    spectrum = read_variable(document, unpack, 0, "spectrum")
    component = spectrum["component"].values
    assert component[:4].tolist() == [1, 2, 3, 4]
    assert component[-1] == 128
    assert len(component) <= 48
    expected = make_results()["spectrum"].sel(component=component)
    np.testing.assert_allclose(spectrum, expected, rtol=1e-4)


def test_loss_is_a_curve_of_complete_steps(
    make_model: Models, make_step: Callable[..., object], unpack: Unpack
) -> None:
    steps = [make_step(0), make_step(1, loss=float("nan")), make_step(8, complete=False)]
    document = build_document("store", "snapshot", [make_model(steps=steps)])
    loss = read_variable(document, unpack, 0, "loss")
    assert loss["step"].values.tolist() == [0]
    np.testing.assert_allclose(loss, [5.0], rtol=1e-4)


def test_metrics_are_described_by_their_definition_attributes_or_name(
    make_model: Models, make_results: Results
) -> None:
    results = make_results()
    results["odd_one"] = results["n"]
    results["named"] = results["n"].assign_attrs(long_name="a name", units="1", version=3)
    document = build_document("store", "snapshot", [make_model(results=results)])
    metrics: Any = document.content["metrics"]
    assert metrics["average_cosine"]["group"] == "Direction, drift and norms"
    assert "‖Σu‖² − n" in metrics["average_cosine"]["definition"]
    assert metrics["average_cosine"]["range"] == "-1 to 1"
    assert (metrics["named"]["title"], metrics["named"]["version"]) == ("a name", "3")
    assert metrics["odd_one"]["title"] == "odd one"
    assert metrics["n"]["group"] == "Counts of rows"
    assert "average_cosine_stderr" not in metrics
    populations: Any = document.content["populations"]
    assert [population["name"] for population in populations] == ["all", "content"]


def test_kinds_follow_the_stack_then_the_attention(make_model: Models) -> None:
    models = [
        make_model("t5", stack="encoder", causal=True),
        make_model("gpt", causal=True),
        make_model("bert", causal=False),
        make_model("unknown", causal=None),
    ]
    content: Any = build_document("store", "snapshot", models).content
    kinds = [(model["label"], model["kind"]) for model in content["models"]]
    assert kinds == [
        ("t5 encoder", "encoder"),
        ("gpt", "decoder"),
        ("bert", "encoder"),
        ("unknown", ""),
    ]


def test_models_without_results_and_stores_without_models(make_model: Models) -> None:
    document = build_document("store", "snapshot", [make_model(results=xr.Dataset())])
    assert document.content["thinning"] == {"longest": 0, "steps": 0, "wide_steps": 0}
    assert build_document("store", "snapshot", []).content["models"] == []


@pytest.mark.parametrize("budget", [130_000, 220_000])
def test_steps_are_left_out_until_it_fits(
    make_model: Models, make_results: Results, unpack: Unpack, budget: int
) -> None:
    steps = tuple(range(150))
    results = make_results(steps, 12)
    noise = np.random.default_rng(0)
    cosine = results["average_cosine"]
    for number in range(12):
        results[f"made_{number}"] = cosine + noise.uniform(1, 2, cosine.shape)
    models = [make_model(f"m{i}", results=results) for i in range(2)]
    document = build_document("store", "snapshot", models, budget=budget)
    size = len(json.dumps(document.content)) + len(document.numbers)
    assert size <= budget
    kept = read_variable(document, unpack, 0, "average_cosine")["step"].values
    assert (kept[0], kept[-1]) == (0, 149)
    assert 2 < len(kept) < 150
    thinning: Any = document.content["thinning"]
    assert thinning["steps"] == len(kept)


@pytest.mark.slow
def test_twenty_models_of_150_steps_make_less_than_5_mb(
    make_model: Models, make_results: Results, make_step: Callable[..., HeldStep]
) -> None:
    steps = tuple(range(150))
    results = make_results(steps, 25)
    noise = np.random.default_rng(0)
    cosine = results["average_cosine"]
    for number in range(30):
        results[f"made_{number}"] = cosine + noise.uniform(1, 2, cosine.shape)
        results[f"made_{number}_stderr"] = 0.01 * noise.uniform(1, 2, cosine.shape) + 0 * cosine
    held = [make_step(step) for step in steps]
    models = [make_model(f"model-{i}", results=results, steps=held) for i in range(20)]
    page = render(build_document("store", "snapshot", models))
    assert 4_000_000 < len(page.encode()) < 5_000_000


def test_the_same_models_give_the_same_document(make_model: Models) -> None:
    assert build_document("s", "1", [make_model()]) == build_document("s", "1", [make_model()])
