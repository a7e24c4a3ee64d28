"""The page in Chromium: it draws, answers to pointer and keys, and loads nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import xarray as xr

from analysis.report.document import build_document
from analysis.report.measured import Measured
from analysis.report.page import render

if TYPE_CHECKING:
    from conftest import Browser  # type: ignore[import-not-found]

HOSTILE = '<script>window.harmed = 1</script><img src=x onerror="window.harmed = 1">'
FIGURES = "[...document.querySelectorAll('figure h3')].map(h => h.textContent)"
PROFILE = "document.querySelector('#depth figure')"
Models = Callable[..., Measured]
Results = Callable[..., xr.Dataset]


@pytest.fixture
def page(make_model: Models, make_results: Results, tmp_path: Path) -> Path:
    models = [
        make_model("tiny", results=make_results(heads=3)),
        make_model(HOSTILE, stack="encoder", results=make_results((0,), 6)),
        make_model(HOSTILE, stack="decoder", results=make_results((0,), 6)),
        make_model("elsewhere", corpus="code"),
    ]
    path = tmp_path / "report.html"
    path.write_text(render(build_document(HOSTILE, "snapshot", models)), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Browser, page: Path) -> Browser:
    browser.open(page)
    browser.settle()
    return browser


def choose(browser: Browser, label: str, value: str, within: str = "document") -> None:
    """Pick an option of the select with a label, as a reader would."""
    found = browser.evaluate(f"""(() => {{
        const labels = [...{within}.querySelectorAll("label")];
        const label = labels.find((one) => one.textContent.trim() === {json.dumps(label)});
        const select = document.getElementById(label.htmlFor);
        select.value = {json.dumps(value)};
        select.dispatchEvent(new Event("change"));
        return select.value;
    }})()""")
    assert found == value
    browser.settle()


def table(browser: Browser, figure: str) -> list[dict[str, str]]:
    """Open the table of a figure and read it."""
    browser.evaluate(f"{figure}.querySelector('.actions button').click()")
    rows: Any = browser.evaluate(f"""(() => {{
        const cells = (row) => [...row.children].map((cell) => cell.textContent);
        return [...{figure}.querySelectorAll(".numbers tr")].map(cells);
    }})()""")
    browser.evaluate(f"{figure}.querySelector('.actions button').click()")
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def test_the_page_draws_every_section_without_a_complaint_or_a_request(
    opened: Browser, page: Path
) -> None:
    assert opened.complaints == []
    assert opened.requests == [page.as_uri()]
    sections = opened.evaluate("[...document.querySelectorAll('section')].map(s => s.id)")
    assert sections == [
        "holdings", "warnings", "depth", "training", "stacks",
        "by-component", "by-scale", "heads", "definitions",
    ]  # fmt: skip
    marks = "f.querySelectorAll('svg .curve, svg .cells rect').length"
    drawn: Any = opened.evaluate(f"[...document.querySelectorAll('figure')].map(f => {marks})")
    assert len(drawn) == 7
    assert min(drawn) > 0


def test_a_hostile_name_is_shown_and_does_nothing(opened: Browser) -> None:
    assert opened.evaluate("window.harmed") is None
    assert opened.evaluate("document.querySelectorAll('img, body script[src]').length") == 0
    assert opened.evaluate("document.getElementById('store').textContent") == HOSTILE
    assert HOSTILE in str(opened.evaluate("document.querySelector('.legend').textContent"))


def test_the_policy_stops_a_script_that_got_in(opened: Browser) -> None:
    opened.evaluate("""(() => {
        const script = document.createElement("script");
        script.textContent = "window.harmed = 1";
        document.body.append(script);
        return 0;
    })()""")
    assert opened.evaluate("window.harmed") is None
    assert "Content Security Policy" in str(opened.complaints)


def test_the_profile_shows_the_numbers_of_the_store(opened: Browser) -> None:
    # content is twice layer/10 + step/1000, at the last step 64 of tiny.
    rows = [row for row in table(opened, PROFILE) if row["model"] == "tiny"]
    assert [(row["layer"], row["value"]) for row in rows] == [
        ("0", "0.128"), ("1", "0.328"), ("2", "0.528"), ("3", "0.728"),
    ]  # fmt: skip
    assert {row["step"] for row in rows} == {"64"}
    assert {row["population"] for row in rows} == {"content"}
    assert {row["standard error"] for row in rows} == {"0.01"}
    sentence = str(opened.evaluate(f"{PROFILE}.querySelector('.sentence').textContent"))
    assert "tiny rises from 0.128 at relative depth 0 to 0.728 at relative depth 1." in sentence
    label = str(opened.evaluate(f"{PROFILE}.querySelector('.chart').getAttribute('aria-label')"))
    assert sentence in label


def test_population_step_and_metric_switch_every_figure(opened: Browser) -> None:
    choose(opened, "Population", "all")
    opened.evaluate("""(() => {
        const slider = document.querySelector("input[type=range]");
        slider.value = 2;
        slider.dispatchEvent(new Event("input"));
        return 0;
    })()""")
    opened.settle()
    rows = [row for row in table(opened, PROFILE) if row["model"] == "tiny"]
    assert [row["value"] for row in rows] == ["0.008", "0.108", "0.208", "0.308"]
    # Models with one step stay, at their own.
    assert {row["step"] for row in table(opened, PROFILE)} == {"8", "0"}
    choose(opened, "Metric", "n")
    titles: Any = opened.evaluate(FIGURES)
    assert titles[:3] == ["N by relative depth", "N over training", "N, layer by step: tiny"]
    assert opened.complaints == []


def test_curves_compare_models_steps_layers_or_populations(opened: Browser) -> None:
    choose(opened, "Compare", "step", PROFILE)
    assert {row["step"] for row in table(opened, PROFILE)} == {"0", "1", "8", "64"}
    choose(opened, "Compare", "population", PROFILE)
    assert {row["population"] for row in table(opened, PROFILE)} == {"all", "content"}
    training = "document.querySelector('#training figure')"
    rows = table(opened, training)
    # Twice the mean over layers 1 to 3 of layer/10, and twice the step in thousands.
    assert [row["value"] for row in rows] == ["0.4", "0.402", "0.416", "0.528"]
    choose(opened, "Compare", "depth", training)
    assert {row["layer"] for row in table(opened, training)} == {"0", "1", "2", "3"}


def test_the_encoder_is_set_against_the_decoders(opened: Browser) -> None:
    legend = str(opened.evaluate("document.querySelector('#stacks .legend').textContent"))
    assert legend == f"encoder: {HOSTILE} encoderdecoders, mean of 2 models"
    rows = table(opened, "document.querySelector('#stacks figure')")
    mean = {row["relative depth"]: row for row in rows if row["model"] == "mean of 2 decoders"}
    # tiny at step 64 ends at 0.728, the other decoder, of six layers, at step 0 at 1.
    assert mean["1"]["value"] == "0.864"
    assert mean["1"]["standard error"] == "0.14"  # half of the difference, 0.136


def test_pointer_and_keys_read_out_values(opened: Browser) -> None:
    opened.evaluate(f"{PROFILE}.scrollIntoView({{ block: 'center', behavior: 'instant' }})")
    box: Any = opened.evaluate(
        f"{PROFILE}.querySelector('.chart').getBoundingClientRect().toJSON()"
    )
    opened.point(box["x"] + box["width"] - 30, box["y"] + box["height"] / 2)
    readout = f"{PROFILE}.querySelector('.readout')"
    assert opened.evaluate(f"{readout}.hidden") is False
    assert "tiny0.728 ± 0.01" in str(opened.evaluate(f"{readout}.textContent"))
    opened.point(1, 1)
    assert opened.evaluate(f"{readout}.hidden") is True
    opened.evaluate(f"{PROFILE}.querySelector('.chart').focus()")
    spoken = "document.getElementById('status').textContent"
    opened.press("ArrowRight")
    assert str(opened.evaluate(spoken)).startswith("tiny, step 64 · layer 0")
    opened.press("ArrowRight")
    assert "0.328 ± 0.01" in str(opened.evaluate(spoken))
    opened.press("ArrowDown")
    assert "encoder" in str(opened.evaluate(spoken))
    opened.press("Escape")
    assert opened.evaluate(f"{readout}.hidden") is True


def test_a_heat_map_is_read_by_keys(opened: Browser) -> None:
    opened.evaluate("document.querySelector('#heads .chart').focus()")
    opened.press("ArrowUp")
    opened.press("ArrowUp")
    opened.press("ArrowRight")
    spoken = opened.evaluate("document.getElementById('status').textContent")
    # Step 64 is the last of four, each of three blocks of three heads: cos(27 + 3 + 1).
    assert spoken == "head 1 · block 2: 0.9147"


def test_the_keyboard_reaches_every_control_and_every_chart(opened: Browser) -> None:
    wanted: Any = opened.evaluate("""(() => {
        const all = document.querySelectorAll("select, input, button, summary, .chart, a");
        const shown = [...all].filter((node) => node.checkVisibility());
        shown.forEach((node, i) => { node.dataset.place = i; });
        return shown.length;
    })()""")
    opened.evaluate("document.activeElement.blur()")
    reached = set()
    for _ in range(wanted + 3):
        opened.press("Tab")
        reached.add(opened.evaluate("document.activeElement.dataset.place"))
    assert reached >= {str(place) for place in range(wanted)}
    named = opened.evaluate("""[...document.querySelectorAll("select, input, button, .chart")]
        .every((node) => node.textContent.trim() || node.labels?.length || node.ariaLabel)""")
    assert named is True
    outline = opened.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline in ("solid", "auto")


def test_models_are_chosen_from_a_menu_and_corpora_apart(opened: Browser) -> None:
    opened.evaluate("document.querySelector('.menu summary').click()")
    opened.evaluate("document.querySelectorAll('.menu input')[0].click()")
    opened.settle()
    assert "tiny" not in {row["model"] for row in table(opened, PROFILE)}
    assert opened.evaluate("document.querySelector('.menu summary').textContent") == "2 of 3"
    opened.evaluate("document.querySelector('.menu summary').focus()")
    opened.press("Escape")
    assert opened.evaluate("document.querySelector('.menu').open") is False
    opened.evaluate("document.querySelectorAll('.menu-buttons button')[1].click()")
    sentence = str(opened.evaluate(f"{PROFILE}.querySelector('.sentence').textContent"))
    assert sentence.startswith("Nothing to show: no model that is shown has")
    choose(opened, "Corpus", "code")
    assert {row["model"] for row in table(opened, PROFILE)} == {"elsewhere"}
    assert opened.complaints == []


@pytest.mark.parametrize(("button", "kind"), [(1, "csv"), (2, "json")])
def test_the_numbers_of_a_figure_are_saved(
    opened: Browser, tmp_path: Path, button: int, kind: str
) -> None:
    opened.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    opened.evaluate(f"{PROFILE}.querySelectorAll('.actions button')[{button}].click()")
    saved = tmp_path / f"average-cosine-similarity-by-relative-depth.{kind}"
    for _ in range(200):
        if saved.exists() and saved.stat().st_size:
            break
        opened.settle()
    text = saved.read_text("utf-8")
    if kind == "csv":
        lines = text.splitlines()
        assert lines[0] == "metric,model,population,step,layer,value,standard_error"
        assert lines[1] == "average_cosine,tiny,content,64,0,0.128,0.01"
        assert len(lines) == 1 + 4 + 6 + 6
    else:
        first = json.loads(text)[0]
        assert (first["model"], first["step"], first["value"]) == ("tiny", 64, 0.128)
    assert opened.complaints == []


def test_dark_follows_the_system_and_the_switch(browser: Browser, page: Path) -> None:
    browser.open(page, dark=True)
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    dark = browser.evaluate(ground)
    choose(browser, "Theme", "light")
    light = browser.evaluate(ground)
    assert dark == "rgb(15, 18, 22)"
    assert light == "rgb(247, 248, 249)"
    choose(browser, "Theme", "dark")
    assert browser.evaluate(ground) == dark


@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_the_screen(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width=width)
    browser.settle()
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    wide = browser.evaluate(f"""[...document.querySelectorAll("body *")].filter((node) =>
        node.checkVisibility() && !node.closest(".table-scroll, .unseen, .skip, svg")
        && node.getBoundingClientRect().right > {width} + 1).map((node) => node.className)""")
    assert wide == []
    if width == 390:
        folded = "getComputedStyle(document.querySelector('.choices')).display"
        assert browser.evaluate(folded) == "none"
        browser.evaluate("document.querySelector('.opener').click()")
        assert browser.evaluate(folded) == "flex"


def test_definitions_are_there_on_demand(opened: Browser) -> None:
    opened.evaluate("document.querySelector('.about summary').click()")
    about = str(opened.evaluate("document.querySelector('.about').innerText"))
    for part in ("(‖Σu‖² − n)/(n(n − 1))", "arXiv:2401.12143", "-1 to 1", "without special tokens"):
        assert part in about


def test_a_store_without_metrics_is_a_page_of_its_holdings(
    browser: Browser, make_model: Models, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    document = build_document("s", "1", [make_model(results=xr.Dataset(), steps=[])])
    path.write_text(render(document), encoding="utf-8")
    browser.open(path)
    assert browser.complaints == []
    assert browser.evaluate("document.querySelectorAll('section').length") >= 2


def test_it_begins_with_a_corpus_of_which_something_was_measured(
    browser: Browser, make_model: Models, make_results: Results, tmp_path: Path
) -> None:
    brief = make_results()
    brief = brief.where(brief.population == "all")
    models = [
        make_model("fresh", corpus="another", results=xr.Dataset()),
        make_model("short", corpus="brief", results=brief),
        make_model(),
    ]
    path = tmp_path / "report.html"
    path.write_text(render(build_document("s", "1", models)), encoding="utf-8")
    browser.open(path)
    browser.settle()
    assert {row["model"] for row in table(browser, PROFILE)} == {"tiny"}
    assert browser.complaints == []
