"""The wheel: the same bytes each time it is built, with every file that the packages need."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from documents import pieces_of

ROOT = Path(__file__).parents[1]
PACKAGES = ("flows", "store", "analysis")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a wheel is made of."""
    folder = tmp_path_factory.mktemp("checkout")
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def wheel(checkout: Path, output: Path) -> Path:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(output)]
    subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True)
    (built,) = output.glob("*.whl")
    return built


def test_the_wheel_is_the_same_whenever_it_is_built(checkout: Path, tmp_path: Path) -> None:
    first = wheel(checkout, tmp_path / "first")
    for file in checkout.rglob("*.py"):
        os.utime(file, (0, 10**9))
    second = wheel(checkout, tmp_path / "second")
    digests = {hashlib.sha256(built.read_bytes()).hexdigest() for built in (first, second)}
    assert len(digests) == 1
    held = set(zipfile.ZipFile(first).namelist())
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= held
    assert {name.split("/")[0] for name in held} - set(PACKAGES) == {"actlas-0.1.0.dist-info"}


def test_the_extras_of_the_readme_are_there(checkout: Path) -> None:
    """Its lines without ``-e``: with it, and with what the extras need, make has installed them."""
    commands = [shlex.split(piece.text) for piece in pieces_of(__file__)]
    asked = [word for command in commands for word in command if word.startswith(".[")]
    assert len(commands) == len(asked) == 2
    extras = ",".join(word[2:-1] for word in asked)
    dry = ["install", "--dry-run", "--no-index", "--no-deps", "--no-build-isolation"]
    told = subprocess.run(
        [sys.executable, "-m", "pip", *dry, f".[{extras}]"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "Would install actlas" in told.stdout
    assert "does not provide the extra" not in told.stderr


HEAVY = {"torch", "transformers", "prefect", "matplotlib", "bokeh", "distributed", "dask"}
HEAVY |= {"numpy", "scipy", "numba", "pandas", "xarray", "zarr", "icechunk", "rich", "pydantic"}


def loaded_by(code: str) -> set[str]:
    """Return the names of all modules that a fresh interpreter has after some code."""
    told = f"{code}\nimport sys; print(*sys.modules)"
    command = [sys.executable, "-c", told]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("module", ["store", "analysis", "flows.capture", "flows.cli"])
def test_importing_a_package_takes_no_time(module: str) -> None:
    """None of what takes a tenth of a second or more to import; help needs nothing else."""
    assert loaded_by(f"import {module}") & HEAVY == set()


def test_the_accessor_comes_with_xarray_that_is_imported_afterwards() -> None:
    code = "import analysis, xarray\nassert callable(xarray.Dataset.geometry)"
    loaded = loaded_by(f"{code}\nassert callable(xarray.DataArray.geometry)")
    assert "xarray" in loaded
    assert "analysis.accessor" not in loaded
