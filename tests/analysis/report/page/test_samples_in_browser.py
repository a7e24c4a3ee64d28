"""Figures say of which sample their values are, and when these are several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from analysis.report.document import build_document
from analysis.report.measured import Measured
from analysis.report.page import render

if TYPE_CHECKING:
    from conftest import Browser  # type: ignore[import-not-found]

Models = Callable[..., Measured]
Samples = Callable[..., xr.DataArray]


def told(browser: Browser, path: Path, *models: Measured) -> dict[str, str]:
    """Return what each section's first figure says of samples, by the section's name."""
    path.write_text(render(build_document("s", "1", models)), encoding="utf-8")
    browser.open(path)
    browser.settle()
    assert browser.complaints == []
    found = browser.evaluate("""Object.fromEntries(
        [...document.querySelectorAll("section")].filter((one) => one.querySelector("figure"))
            .map((one) => [one.id, one.querySelector(".samples").textContent]))""")
    return dict(found)


def test_one_sample_is_named_and_several_are_told_apart(
    browser: Browser, make_model: Models, make_samples: Samples, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    of_400, of_50 = ({"average_cosine": make_samples([size] * 4)} for size in (400, 50))
    one = told(browser, path, make_model("tiny", samples=of_400), make_model("b", samples=of_400))
    assert one["depth"] == "Values of a sample of 400 tokens, seed 0."
    assert one["by-component"] == ""

    encoder = make_model("b", stack="encoder", samples=of_50)
    two = told(browser, path, make_model("tiny", samples=of_400), encoder)
    alone = "Part of what differs comes from that alone."
    by_model = "sample of 400 tokens, seed 0 (tiny); sample of 50 tokens, seed 0 (b encoder)."
    assert two["depth"] == two["training"] == f"Values of several samples: {by_model} {alone}"
    csv = browser.evaluate("""(() => {
        document.querySelector("#depth .actions button").click();
        return [...document.querySelectorAll("#depth .numbers tr")]
            .map((row) => [...row.children].map((cell) => cell.textContent).join(","));
    })()""")
    assert csv[0] == "metric,model,population,step,layer,sample,seed,value,standard error"
    assert csv[1].startswith("average_cosine,tiny,content,64,0,400,0,")


def test_several_samples_of_one_model_are_told_by_step(
    browser: Browser, make_model: Models, make_samples: Samples, tmp_path: Path
) -> None:
    samples = {"average_cosine": make_samples([400, 400, 50, 400])}
    found = told(browser, tmp_path / "report.html", make_model(samples=samples))
    assert found["depth"] == "Values of a sample of 400 tokens, seed 0."
    assert found["training"].startswith(
        "Values of several samples: sample of 400 tokens, seed 0 (step 0, 1 and 64); sample of 50"
        " tokens, seed 0 (step 8)."
    )
    browser.evaluate("document.querySelector('#training .chart').focus()")
    for _ in range(3):
        browser.press("ArrowRight")
    spoken = str(browser.evaluate("document.getElementById('status').textContent"))
    assert "step 8 · sample of 50 tokens, seed 0" in spoken
    warnings = str(browser.evaluate("document.querySelector('#warnings').innerText"))
    assert "average_cosine: sample 50, seed 0; sample 400, seed 0" in warnings
