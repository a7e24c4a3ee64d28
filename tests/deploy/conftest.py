"""What the checks of deploy/ share: where it is, and validators that must be there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

Validate = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def deploy() -> Path:
    return ROOT / "deploy"


@pytest.fixture(scope="session")
def validate() -> Validate:
    """Run a validator of this environment; one that is missing fails the test, never skips it."""

    def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        executable = Path(sys.executable).parent / program
        if not executable.exists():
            pytest.fail(f"{program} is not installed beside {sys.executable}: make .venv/.models")
        return subprocess.run(
            [executable, *map(str, arguments)], capture_output=True, text=True, timeout=120
        )

    return run


@pytest.fixture
def seeded(tmp_path: Path) -> Callable[[Path, str, str], Path]:
    """Copy a file with one mistake in it, which must be in it in the first place."""

    def copy(path: Path, right: str, wrong: str) -> Path:
        text = path.read_text()
        assert right in text, f"{path} no longer says {right!r}"
        target = tmp_path / path.name
        target.write_text(text.replace(right, wrong, 1))
        return target

    return copy
