"""The explorer in Chromium over a small live store: every control, and nothing from elsewhere."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from analysis.token_sample import sample_tokens
from flows.capture.checkpoints import find_checkpoints
from flows.corpora import Chunking, add_texts
from flows.explore.live import LiveStore
from flows.explore.server import make_server
from flows.ingestion import ingest_checkpoint
from flows.measurement import MeasureOptions, find_targets, measure_target
from flows.running import CaptureOptions
from store import open_metrics, open_store
from store.repository import Repository

if TYPE_CHECKING:
    from conftest import Browser  # type: ignore[import-not-found]

pytestmark = pytest.mark.slow(minutes=0.8)

STEPS = (0, 5, 10)
MODEL = "Bokeh.documents[0].get_model_by_name"
DRAWN = (
    f"!!window.Bokeh && Bokeh.documents.length > 0 && !!{MODEL}('token-title')"
    f" && {MODEL}('token-title').text.includes('drawn at random')"
)
# Widgets live in shadow roots, each within the other.
FIND = """(() => { const found = []; const walk = (root) => { for (const node of
  root.querySelectorAll('*')) { found.push(node); if (node.shadowRoot) walk(node.shadowRoot); } };
  walk(document); return found; })()"""


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory, text: str, run_folder: Path) -> str:
    """A store with one model, three steps of it measured for one metric; and beside it two more."""
    uri = str(tmp_path_factory.mktemp("explore") / "store")
    hostile = text[:2000] + " <img src=x onerror=window.harmed=1> " + text[:500]
    add_texts(uri, "cats", {"cats": hostile}, chunking=Chunking("chars", 50))
    sites = CaptureOptions(sites=("residual", "final_norm", "query", "attention_max"))
    for checkpoint in find_checkpoints(str(run_folder)):
        ingest_checkpoint(uri, checkpoint, "cats", options=sites)
    add_texts(uri, "dogs", {"dogs": text[500:2500]}, chunking=Chunking("chars", 50))
    for name, step in (("one", 5), ("two", 10)):
        (checkpoint,) = find_checkpoints(str(run_folder / f"checkpoint-{step}"), name=name)
        ingest_checkpoint(uri, checkpoint, "dogs")
    for target in find_targets(Repository.open(uri)):
        more = () if target.model.corpus == "cats" else ("stable_rank",)
        measure_target(uri, target, options=MeasureOptions(metrics=("average_cosine", *more)))
    return uri


@pytest.fixture(scope="module")
def address(uri: str, browser: Browser) -> Iterator[str]:
    """The address of a server of that store, in a thread with a loop of its own."""
    ready = threading.Event()
    servers = []

    def serve() -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())
        server = make_server(uri)
        server.start()
        servers.append(server)
        ready.set()
        server.io_loop.start()
        server.stop()
        server.io_loop.close(all_fds=True)

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(60)
    (server,) = servers
    yield f"http://127.0.0.1:{server.port}/"
    # A page that is still open would be written to while the loop ends.
    browser.call("Page.navigate", url="about:blank")
    server.io_loop.add_callback(server.io_loop.stop)
    thread.join(60)


@pytest.fixture
def page(browser: Browser, address: str) -> Browser:
    browser.open(address, drawn=DRAWN)
    return browser


def of(page: Browser, name: str, what: str) -> object:
    """Return a part of a model on the page as JSON would hold it."""
    return json.loads(str(page.evaluate(f"JSON.stringify({MODEL}('{name}').{what})")))


def choose(page: Browser, name: str, value: str) -> None:
    """Choose an option of a drop-down list as a person does."""
    page.evaluate(
        f"""(() => {{ const node = {FIND}.find((node) => node.tagName === 'SELECT' &&
        node.getRootNode().host === Bokeh.index.find_one_by_id({MODEL}('{name}').id).el);
        node.selectedIndex = [...node.options].findIndex((option) =>
        option.text === {value!r}); node.dispatchEvent(new Event('change')); }})()"""
    )


def steps_drawn(page: Browser) -> set[int]:
    return set(page.evaluate(f"[...new Set({MODEL}('depth').renderers[2].data_source.data.step)]"))


def test_sampled_tokens_are_cut_from_their_texts(uri: str) -> None:
    repository = Repository.open(uri)
    sample = sample_tokens(repository, "cats/tiny", size=50, seed=1)
    assert len(sample) == 50
    assert (np.diff(sample.tokens) > 0).all()
    assert (sample.position > 0).all()  # a causal model's first tokens are no content
    text = open_store(uri)["cats"].text.values
    for word, context, sequence in zip(sample.words, sample.contexts, sample.sequence, strict=True):
        assert f"⟦{word}⟧" in context
        assert word.replace("⏎", "\n") in text[sequence]  # chunks of characters are sequences
    assert sample_tokens(repository, "cats/tiny", size=50, seed=1).words == sample.words
    assert len(sample_tokens(repository, "cats/tiny", size=10**6, content=False)) == len(
        open_store(uri)["cats/tiny"].token_id
    )


def test_it_opens_without_complaints_and_asks_nobody_else(page: Browser, address: str) -> None:
    assert page.complaints == []
    own = address, "data:", "ws://" + address.removeprefix("http://")
    assert [url for url in page.requests if not url.startswith(own)] == []
    assert steps_drawn(page) == set(STEPS)
    assert len(of(page, "tokens", "renderers[0].data_source.data.word")) > 300
    assert page.evaluate("window.harmed") is None


def test_the_theme_follows_the_system(browser: Browser, address: str) -> None:
    browser.open(address, dark=True, drawn=DRAWN)
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    assert browser.evaluate(ground) == "rgb(15, 18, 22)"
    assert of(browser, "depth", "background_fill_color") in ("#171b21", {"value": "#171b21"})


def test_it_fits_a_telephone(browser: Browser, address: str) -> None:
    browser.open(address, width=390, drawn=DRAWN)
    browser.settle()
    width = "document.documentElement.scrollWidth"
    assert browser.evaluate(width) == 390
    names = [f"a-model-with-a-long-name-seed{number}" for number in range(20)] + [60 * "long"]
    browser.evaluate(f"{MODEL}('models').labels = {json.dumps(names)}")
    browser.settle()
    assert browser.evaluate(f"{FIND}.filter((node) => node.type === 'checkbox').length") == 21
    assert browser.evaluate(width) == 390


def test_choices_change_the_figures(page: Browser) -> None:
    values = of(page, "depth", "renderers[2].data_source.data.y")
    choose(page, "population", "all")
    page.wait(f"{MODEL}('legend').text.includes('rows: all')")
    page.wait(
        f"JSON.stringify({MODEL}('depth').renderers[2].data_source.data.y)"
        f" !== {json.dumps(json.dumps(values))}"
    )
    page.evaluate(f"{FIND}.find((node) => node.type === 'checkbox').click()")
    page.wait(f"{MODEL}('legend').text.includes('Nothing is computed')")
    page.evaluate(f"{FIND}.find((node) => node.type === 'checkbox').click()")
    page.wait(f"{MODEL}('legend').text.includes('average cosine')")
    assert page.complaints == []


def test_sliders_answer_to_keys(page: Browser) -> None:
    handles = f"{FIND}.filter((node) => node.classList?.contains('noUi-handle'))"
    page.wait(f"{handles}.every((node) => node.hasAttribute('aria-label'))")
    named = page.evaluate(f"{handles}.map((node) => node.getAttribute('aria-label'))")
    assert named == ["Steps, from", "Steps, to", "Layers, from", "Layers, to", "Layer"]
    page.evaluate(f"{handles}[0].focus()")
    page.press("ArrowRight")
    page.wait(f"{MODEL}('steps').value[0] === 1")
    page.wait(f"{handles}[0].getAttribute('aria-valuetext') === '5'")  # the step, not its place
    page.wait(f"!{MODEL}('depth').renderers[2].data_source.data.step.includes(0)")
    page.evaluate(f"{handles}[3].focus()")
    page.press("ArrowLeft")
    page.wait(f"!{MODEL}('depth').renderers[2].data_source.data.layer.includes(2)")
    page.evaluate(f"{handles}[4].focus()")
    page.press("Home")
    page.wait(f"{MODEL}('token-title').text.includes('Tokens of residual, layer 0')")
    assert page.complaints == []


def test_a_brush_along_training_chooses_steps(page: Browser) -> None:
    box = page.evaluate(
        f"""(() => {{ const view = Bokeh.index.find_one_by_id({MODEL}('training').id);
        view.el.scrollIntoView(); const at = view.el.getBoundingClientRect();
        const x = (step) => at.left + view.frame.x_scale.compute(Math.log10(1 + step));
        return [x(5) - 15, x(10) + 15, at.top + 120]; }})()"""
    )
    left, right, y = box
    page.point(left, y)
    moves = [("mouseMoved", left + (right - left) * part / 4) for part in range(1, 5)]
    for kind, x in (("mousePressed", left), *moves, ("mouseReleased", right)):
        page.call(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1
        )
        page.settle()
    page.wait(f"!{MODEL}('depth').renderers[2].data_source.data.step.includes(0)")
    assert steps_drawn(page) == {5, 10}


def point_at_token(page: Browser, number: int) -> tuple[float, float]:
    """Move the pointer to a token of the scatter plot, and return where that is."""
    x, y = page.evaluate(
        f"""(() => {{ const view = Bokeh.index.find_one_by_id({MODEL}('tokens').id);
        view.el.scrollIntoView({{ block: 'center' }}); const at = view.el.getBoundingClientRect();
        const {{ x, y }} = {MODEL}('tokens').renderers[0].data_source.data;
        return [at.left + view.frame.x_scale.compute(x[{number}]),
        at.top + view.frame.y_scale.compute(y[{number}])]; }})()"""
    )
    page.point(x - 3, y)
    page.point(x, y)
    return x, y


def luminance(colour: str) -> float:
    """Return the relative luminance of ``rgb(…)`` by WCAG 2."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_is_told_over_a_point_can_be_read(page: Browser, theme: str) -> None:
    """The smallest contrast is 4.5 to 1, as WCAG asks for text."""
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    cells = f"{FIND}.filter((node) => node.className === 'tip')"
    for _ in range(50):
        point_at_token(page, 7)
        if page.evaluate(f"{cells}.length > 0"):
            break
        time.sleep(0.2)
    colours = page.evaluate(
        f"""{cells}.flatMap((cell) => [cell, cell.previousElementSibling].map((node) =>
        [getComputedStyle(node).color, getComputedStyle(cell.parentElement).backgroundColor]))"""
    )
    assert len(colours) >= 6  # a label and a value for each of three rows, of each token there
    for pair in colours:
        dark, light = sorted(map(luminance, pair))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (theme, pair)


def test_a_token_is_told_where_the_pointer_is_and_chosen_by_a_click(page: Browser) -> None:
    context = str(of(page, "tokens", "renderers[0].data_source.data.context[7]"))
    told = (
        f"{FIND}.some((node) => node.className === 'tip'"
        f" && node.textContent.trim() === {json.dumps(context.strip())})"
    )
    # While other charts are drawn, the plot moves.
    for _ in range(50):
        x, y = point_at_token(page, 7)
        if page.evaluate(told):
            break
        time.sleep(0.2)
    else:
        pytest.fail(f"nothing is told of {context!r} at {x}, {y}")
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    page.wait(f"{MODEL}('nearest').text.includes('<table>')")
    assert page.complaints == []


def test_another_corpus_has_its_own_models_metrics_and_tokens(page: Browser) -> None:
    choose(page, "corpus", "dogs")
    page.wait(f"{MODEL}('models').labels.join() === 'one,two'")
    page.wait(f"{MODEL}('token-model').value === 'one'")
    choose(page, "metric", "stable_rank")
    page.wait(f"{MODEL}('legend').text.includes('stable rank of residual')")
    page.wait(DRAWN)
    drawn = f"JSON.stringify([...{MODEL}('tokens').renderers[0].data_source.data.y])"
    before = str(page.evaluate(drawn))
    choose(page, "token-model", "two")
    page.wait(f"{drawn} !== {json.dumps(before)}")
    choose(page, "corpus", "cats")
    page.wait(f"{MODEL}('token-model').value === 'tiny'")
    assert page.complaints == []


def test_a_token_has_neighbours_in_every_layer(page: Browser) -> None:
    field = f"{FIND}.find((node) => node.placeholder?.includes('type a token'))"
    page.evaluate(f"{field}.value = 'no such token'; {field}.dispatchEvent(new Event('change'))")
    page.wait(f"{MODEL}('nearest').text.includes('No token of the sample reads no such token')")
    word = of(page, "tokens", "renderers[0].data_source.data.word")[7]
    page.evaluate(f"{field}.value = {json.dumps(word)}; {field}.dispatchEvent(new Event('change'))")
    page.wait(f"{MODEL}('nearest').text.includes('<table>')")
    assert str(of(page, "nearest", "text")).count("<tr>") == 1 + 3  # the head, layers 0 to 2
    choose(page, "token-step", "0")
    page.wait(f"{MODEL}('token-title').text.includes('drawn at random')")
    assert page.complaints == []


def test_a_metric_is_computed_and_shown(page: Browser, uri: str) -> None:
    choose(page, "compute-metric", "stable rank: not computed yet")
    page.evaluate(
        f"{FIND}.find((n) => n.tagName === 'BUTTON' && n.textContent === 'Compute it').click()"
    )
    page.wait(f"{MODEL}('progress').text.includes('values computed in')")
    page.wait(f"{MODEL}('metric').value === 'stable_rank'")
    page.wait(f"{MODEL}('legend').text.includes('stable rank')")
    (target,) = find_targets(Repository.open(uri), corpus="cats")
    again = measure_target(uri, target, options=MeasureOptions(metrics=("stable_rank",)))
    assert again.computed == 0
    assert page.complaints == []


def test_other_sites_are_shown_and_measured(page: Browser) -> None:
    choose(page, "site", "query")
    page.wait(f"{MODEL}('legend').text.includes('Nothing is computed')")
    page.wait(f"{MODEL}('token-title').text.includes('Tokens of query, block 1')")
    choose(page, "compute-metric", "stable rank: not computed yet")
    page.evaluate(
        f"{FIND}.find((n) => n.tagName === 'BUTTON' && n.textContent === 'Compute it').click()"
    )
    page.wait(f"{MODEL}('legend').text.includes('stable rank of query')")
    assert "from the lowest head to the highest" in str(of(page, "legend", "text"))
    drawn = {
        name: page.evaluate(f"[...{MODEL}('depth').renderers[2].data_source.data.{name}]")
        for name in ("layer", "low", "y", "high")
    }
    assert set(drawn["layer"]) == {1, 2}
    assert all(
        low <= value <= high
        for low, value, high in zip(drawn["low"], drawn["y"], drawn["high"], strict=True)
    )
    choose(page, "site", "attention_max")
    page.wait(f"{MODEL}('compute-metric').value === 'mean'")
    page.wait(f"{MODEL}('token-title').text.includes('Tokens of attention_max, block')")
    choose(page, "site", "final_norm")
    page.wait(f"{MODEL}('token-title').text.includes('Tokens of final_norm<')")
    choose(page, "site", "residual")
    page.wait(f"{MODEL}('legend').text.includes('of residual')")
    assert page.complaints == []


def test_what_is_drawn_of_heads_is_their_mean_between_the_extremes(uri: str) -> None:
    (target,) = find_targets(Repository.open(uri), corpus="cats")
    options = MeasureOptions(metrics=("average_cosine",), sites=("query",))
    measure_target(uri, target, options=options)
    live = LiveStore(uri)
    assert live.sites("cats", ["tiny"]) == ["residual", "final_norm", "query", "attention_max"]
    values = live.values("cats", "query", "average_cosine", "content", ["tiny"])
    stored = open_metrics(uri, corpus="cats").query_average_cosine.sel(model="tiny")
    expected = stored.sel(population="content").transpose("step", "block", "head").values
    np.testing.assert_allclose(values.value, expected.mean(-1).ravel())
    np.testing.assert_allclose(values.low, expected.min(-1).ravel())
    np.testing.assert_allclose(values.high, expected.max(-1).ravel())
    assert values.depth.tolist() == [1, 2] * len(STEPS)
