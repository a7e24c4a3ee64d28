"""What holds for the project as a whole: who imports what, and what CI and users are promised."""

from __future__ import annotations

import ast
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

sys.path.insert(0, str(Path(__file__).parent))

from documents import pieces_of

ROOT = Path(__file__).parents[1]
PACKAGES = ("flows", "store", "analysis")
MODULES = sorted(
    path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py")
)

ONLY_IN = {
    "torch": re.compile(r"flows/capture/"),
    "transformers": re.compile(r"flows/capture/"),
    "tokenizers": re.compile(r"flows/capture/"),
    "prefect": re.compile(
        r"flows/(ingest|measure|watch|attempts|artifacts|deployments|notify|prefect_api|serving)\.py"
    ),
    "distributed": re.compile(r"analysis/"),
    "icechunk": re.compile(r"store/"),
    "bokeh": re.compile(r"flows/explore/"),
}
"""Where each of the big libraries may be imported when the program runs."""


@lru_cache
def imported(path: Path) -> frozenset[str]:
    """Return the top-level names that a module imports, other than for type checkers alone."""
    return frozenset(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    pending: list[ast.AST] = [ast.parse((ROOT / path).read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]
        pending += ast.iter_child_nodes(node)


@pytest.mark.parametrize("library", ONLY_IN)
def test_big_libraries_stay_where_they_belong(library: str) -> None:
    users = [path.as_posix() for path in MODULES if library in imported(path)]
    assert users
    assert [path for path in users if not ONLY_IN[library].match(path)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_say_what_they_offer(package: str) -> None:
    lines = (ROOT / package / "__init__.py").read_text().splitlines()
    assert len(lines) <= 30
    assert lines[0].startswith('"""')


def test_every_dependency_has_a_pinned_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pinned = {pin.name.lower().replace("_", "-"): pin.specifier for pin in pins}
    for requirement in map(Requirement, wanted):
        if requirement.name == "actlas" or not (
            requirement.marker is None or requirement.marker.evaluate({"python_version": "3.11"})
        ):
            continue
        (pin,) = pinned[requirement.name.lower()]
        assert pin.operator == "=="
        assert "+" not in pin.version
        assert requirement.specifier.contains(pin.version)


def test_the_demo_installs_nothing_that_is_not_pinned_by_hash() -> None:
    lines = (ROOT / "deploy" / "demo-requirements.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert len(pins) == 5
    assert all(re.fullmatch(r"[a-z0-9-]+==[\d.]+ --hash=sha256:[0-9a-f]{64}", pin) for pin in pins)


@pytest.mark.parametrize("folder", ["deploy", "tests"])
def test_folders_that_are_no_packages_stay_so(folder: str) -> None:
    assert list((ROOT / folder).rglob("__init__.py")) == []


def test_what_make_is_asked_for_is_what_ci_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    run = {word for line in re.findall(r"^make (.*)$", script, re.M) for word in line.split()}
    asked = [shlex.split(piece.text)[1] for piece in pieces_of(__file__)]
    assert asked
    assert [target for target in asked if target not in run] == []
