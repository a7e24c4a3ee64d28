"""The page as a file: nothing from outside, nothing that a name could break out of."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
from collections.abc import Callable
from importlib.resources import files

import pytest

from analysis.report.document import build_document
from analysis.report.measured import Measured
from analysis.report.page import joined_script, render

HOSTILE = "</script><script>alert(1)</script><!--&'\"\u2028"
Models = Callable[..., Measured]


class Parts(html.parser.HTMLParser):
    """Collects elements with their attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=False)
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.found.append((f"/{tag}", {}, ""))

    def handle_data(self, data: str) -> None:
        if self.found:
            tag, attrs, text = self.found[-1]
            self.found[-1] = (tag, attrs, text + data)

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attrs, text) for name, attrs, text in self.found if name == tag]


@pytest.fixture
def page(make_model: Models) -> str:
    return render(build_document(HOSTILE, "snapshot", [make_model(HOSTILE), make_model("b")]))


def test_nothing_is_loaded_from_outside(page: str) -> None:
    parts = Parts(page)
    named = [attrs for _, attrs, _ in parts.found if {"src", "href", "data"} & attrs.keys()]
    assert [attrs.get("href") for attrs in named] == ["#main"]
    assert not {tag for tag, _, _ in parts.found} & {"link", "img", "iframe", "object", "base"}
    assert "@import" not in page
    assert "url(" not in page
    addresses = set(re.findall(r"\bhttps?://[^\s\"']+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of a namespace, never fetched


def test_only_its_own_script_and_style_may_run(page: str) -> None:
    parts = Parts(page)
    policy = next(a["content"] for a, _ in parts.all("meta") if "http-equiv" in a) or ""
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    ((_, style),) = parts.all("style")
    scripts = {attrs.get("type"): text for attrs, text in parts.all("script")}
    assert f"style-src 'sha256-{digest(style)}'" in policy
    assert f"script-src 'sha256-{digest(scripts['module'])}'" in policy


def test_no_name_ends_the_element_it_is_in(page: str) -> None:
    parts = Parts(page)
    assert len(parts.all("script")) == 3
    content = json.loads(next(text for a, text in parts.all("script") if a.get("id") == "document"))
    assert content["store"] == HOSTILE
    assert content["models"][0]["label"] == HOSTILE
    assert "alert(1)</script>" not in page


def test_scripts_never_turn_text_into_markup_or_code() -> None:
    script = joined_script()
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
    ):
        assert way not in script


def test_every_module_is_in_the_script_once() -> None:
    folder = files("analysis.report") / "page"
    names = [item.name for item in folder.iterdir() if item.name.endswith(".js")]
    names += [item.name for item in (folder / "sections").iterdir()]
    script = joined_script()
    for name in names:
        scope = re.sub(r"\W", "_", name)
        assert len(re.findall(rf"^const (?:sections_)?{scope} = \(\(\)", script, re.MULTILINE)) == 1
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_have_the_contrast_that_wcag_asks_for(theme: int) -> None:
    css = (files("analysis.report") / "page" / "page.css").read_text("utf-8")
    blocks = re.findall(r"^:root[^{]*\{([^}]*)\}", css, re.MULTILINE)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", blocks[theme]))
    for name in ("ink", "quiet", "accent"):
        for ground in ("ground", "surface"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    assert contrast(colours["warn"], colours["warn-ground"]) >= 4.5
    assert contrast(colours["quiet"], colours["warn-ground"]) >= 4.5
    for number in range(1, 8):
        assert contrast(colours[f"series-{number}"], colours["surface"]) >= 3, number
