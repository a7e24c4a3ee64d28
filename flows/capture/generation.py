"""What a checkpoint's decoder is made to begin with, where a file beside its config says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from flows.capture.errors import CheckpointError
from flows.capture.integrity import GENERATION_FILE, read_json

FORCED_IDS: Final = "forced_decoder_ids"
_FIRST: Final = 1


def forced_entries(directory: Path) -> Mapping[str, object]:
    """Return what the config of generation adds to a model's config; nothing if there is none.

    As in generation itself, what it forces goes before what the model's own config does. Where it
    leaves the token after the start token open, such as a language to be detected, it adds
    nothing.

    Args:
        directory: Folder of a checkpoint.

    Raises:
        CheckpointError: If the file is damaged, or does not pair positions with ids.
    """
    file = directory / GENERATION_FILE
    if not file.is_file():
        return {}
    forced = read_json(file).get(FORCED_IDS)
    if not forced:
        return {}
    if not isinstance(forced, list) or not all(map(_is_pair, forced)):
        raise CheckpointError(
            f"{FORCED_IDS} in {file} is {forced!r}: expected pairs of a position and an id, as "
            "[[1, 50259], [2, 50359]]; correct it, or take it out"
        )
    return {FORCED_IDS: forced} if isinstance(dict(forced).get(_FIRST), int) else {}


def _is_pair(entry: object) -> bool:
    if not isinstance(entry, list) or len(entry) != 2:
        return False
    return isinstance(entry[0], int) and isinstance(entry[1], int | None)
