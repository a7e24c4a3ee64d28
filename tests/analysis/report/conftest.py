"""Models with metrics made up by formula, so that every number of a page is known."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

from analysis.report.measured import Measured
from store.catalogue import HeldModel, HeldStep

POPULATIONS = ("all", "content")
STEPS = (0, 1, 8, 64)


def held_step(step: int, **changes: object) -> HeldStep:
    """Describe a complete step, except for what is changed."""
    facts: dict[str, object] = {
        "complete": True,
        "sites": ("residual",),
        "revision": f"checkpoint-{step}",
        "weights_sha256": f"{step:064x}",
        "weight_files": {},
        "identity": {},
        "layers": {},
        "n_blocks": 3,
        "source_dtype": "bfloat16",
        "precision": "",
        "checkpoint": "",
        "n_tokens": 1000,
        "loss": 5.0 - 0.01 * step,
        "nonfinite": 0,
        "stored_bytes": 1024,
        "ingested_at": "2026-01-02T03:04:05+00:00",
    }
    return HeldStep(step=step, **{**facts, **changes})  # type: ignore[arg-type]  # see HeldStep


def made_results(steps: Sequence[int] = STEPS, n_layers: int = 4, heads: int = 0) -> xr.Dataset:
    """Make results: average_cosine is layer/10 + step/1000 in ``all``, twice that in content."""
    sizes = (len(steps), n_layers, len(POPULATIONS))
    layer, step = np.arange(n_layers), np.array(steps)
    cosine = (layer / 10 + step[:, None] / 1000)[..., None] * np.array([1.0, 2.0])
    component = np.arange(1, 129)
    keys = ("step", "layer", "population")
    variables: dict[str, object] = {
        "average_cosine": (keys, cosine),
        "average_cosine_stderr": (keys, np.full(sizes, 0.01)),
        "spectrum": ((*keys, "component"), (1 + cosine[..., None]) / component),
        "gride": ((*keys, "scale"), 4 + cosine[..., None] + np.zeros(3)),
        "n": (keys, np.full(sizes, 990.0)),
        "n_dropped_outlier": (
            keys,
            np.broadcast_to(np.where(layer == 2, 10.0, 0.0)[:, None], sizes),
        ),
    }
    coords: dict[str, object] = {"component": component, "scale": [1, 2, 4]}
    if heads:
        by_head = np.cos(np.arange(len(steps) * (n_layers - 1) * heads))
        shape = (len(steps), n_layers - 1, heads)
        variables["query_key_cosine"] = (("step", "block", "head"), by_head.reshape(shape))
        coords |= {"block": layer[1:], "head": np.arange(heads)}
    labels = {"step": step, "layer": layer, "population": list(POPULATIONS)}
    return xr.Dataset(variables, {**labels, **coords})


def made_model(
    model: str = "tiny",
    *,
    corpus: str = "plays",
    stack: str | None = None,
    causal: bool | None = True,
    steps: Sequence[HeldStep] | None = None,
    results: xr.Dataset | None = None,
    samples: Mapping[str, xr.DataArray] | None = None,
) -> Measured:
    """Make a model, measured at every step unless told otherwise."""
    held = tuple(steps or (held_step(step) for step in STEPS))
    path = "/".join(filter(None, (corpus, model.replace("/", "--"), stack)))
    results = made_results() if results is None else results
    layers = tuple(range(results.sizes.get("layer", 4)))
    described = HeldModel(
        corpus, model, path, stack, ("residual",), 1000, layers, 16, held, 1024 * len(held), 1000
    )
    return Measured(described, "gpt_neox", causal, results, samples=samples or {})


def made_samples(sizes: Sequence[int]) -> xr.DataArray:
    """Say that the values of each step are of a sample of some size (step, layer, population)."""
    told = np.array([f'{{"sample":{size},"seed":0}}' if size else "" for size in sizes], object)
    shape = (len(STEPS), 4, len(POPULATIONS))
    labels = {"step": list(STEPS), "layer": range(4), "population": list(POPULATIONS)}
    return xr.DataArray(np.broadcast_to(told[:, None, None], shape), labels, tuple(labels))


@pytest.fixture
def make_samples() -> Callable[..., xr.DataArray]:
    """A function that makes samples of the made-up steps: ``make_samples([400, 400, 0, 0])``."""
    return made_samples


@pytest.fixture
def make_step() -> Callable[..., HeldStep]:
    """A function that describes a step: ``make_step(step, complete=False, ...)``."""
    return held_step


@pytest.fixture
def make_results() -> Callable[..., xr.Dataset]:
    """A function that makes results: ``make_results(steps, n_layers, heads)``."""
    return made_results


@pytest.fixture
def make_model() -> Callable[..., Measured]:
    """A function that makes a measured model: ``make_model(name, stack=..., results=...)``."""
    return made_model


@pytest.fixture(scope="session")
def unpack() -> Callable[[str], npt.NDArray[np.float32]]:
    """A function that reads packed numbers as the script of the page does."""

    def read(text: str) -> npt.NDArray[np.float32]:
        planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(4, -1)
        return planes.T.copy().view(">f4").ravel().astype(np.float32)

    return read
