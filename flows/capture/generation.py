"""What a checkpoint's decoder is made to begin with, where a file beside its config says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from flows.capture.errors import CheckpointError
from flows.capture.integrity import GENERATION_FILE, read_json

FORCED_IDS: Final = "forced_decoder_ids"
_LANGUAGE: Final = "language"
_TASK: Final = "task"
_LANGUAGE_IDS: Final = "lang_to_id"
_TASK_IDS: Final = "task_to_id"
_USUAL_TASK: Final = "transcribe"
_FIRST: Final = 1


def forced_entries(directory: Path) -> Mapping[str, object]:
    """Return what the config of generation adds to a model's config; nothing if there is none.

    As in generation itself, what it forces goes before what the model's own config does, a language
    or a task that it names goes before ids that it forces, and the token for no timestamps comes
    last unless they are wanted. Where it leaves the token after the start token open, such as a
    language to be detected, it adds nothing.

    Args:
        directory: Folder of a checkpoint.

    Raises:
        CheckpointError: If the file is damaged, does not pair positions with ids, or names a
            language or a task that it has no id for.
    """
    file = directory / GENERATION_FILE
    if not file.is_file():
        return {}
    entries = read_json(file)
    # Other models may use the words for something else: these come with tables of ids.
    named = any(entries.get(name) is not None for name in (_LANGUAGE, _TASK))
    has_ids = any(isinstance(entries.get(name), dict) for name in (_LANGUAGE_IDS, _TASK_IDS))
    ids = (_named if named and has_ids else _forced)(entries, file)
    if not ids:
        return {}
    silent = entries.get("no_timestamps_token_id")
    if isinstance(silent, int) and ids[-1] != silent and not entries.get("return_timestamps"):
        ids = [*ids, silent]
    return {FORCED_IDS: [list(pair) for pair in enumerate(ids, _FIRST)]}


def _forced(entries: Mapping[str, object], file: Path) -> Sequence[int]:
    """Return the ids that are forced right after the start token."""
    forced = entries.get(FORCED_IDS)
    if not forced:
        return []
    if not isinstance(forced, list) or not all(map(_is_pair, forced)):
        raise CheckpointError(
            f"{FORCED_IDS} in {file} is {forced!r}: expected pairs of a position and an id, as "
            "[[1, 50259], [2, 50359]]; correct it, or take it out"
        )
    by_position, ids = dict(forced), list[int]()
    while isinstance(by_position.get(_FIRST + len(ids)), int):
        ids.append(by_position[_FIRST + len(ids)])
    return ids


def _named(entries: Mapping[str, object], file: Path) -> Sequence[int]:
    """Return the ids of a language and a task, none where the language is to be detected."""
    language, task = entries.get(_LANGUAGE), entries.get(_TASK)
    languages, tasks = entries.get(_LANGUAGE_IDS), entries.get(_TASK_IDS)
    ids: list[int] = []
    if language is not None:
        ids.append(_id_of(_LANGUAGE, _language_token(language, languages), languages, file))
    elif isinstance(languages, dict):
        return []
    if task is not None or isinstance(tasks, dict):
        ids.append(_id_of(_TASK, task or _USUAL_TASK, tasks, file))
    return ids


def _language_token(language: object, known: object) -> object:
    """Return the token of a language, which may be named by it, by its code, or in English."""
    if not isinstance(language, str) or not isinstance(known, dict):
        return language
    name = language.lower()
    if name not in known and f"<|{name}|>" not in known:
        # Here, not above: only a name in full needs the table.
        from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

        name = TO_LANGUAGE_CODE.get(name, name)
    return name if name in known else f"<|{name}|>"


def _id_of(what: str, name: object, known: object, file: Path) -> int:
    found = known.get(name) if isinstance(known, dict) else None
    if not isinstance(found, int):
        there = ", ".join(map(str, known)) if isinstance(known, dict) else "no table of ids"
        raise CheckpointError(
            f"{file} names the {what} {name!r}, and has no id for it: expected one of {there}; "
            "correct it, or take it out"
        )
    return found


def _is_pair(entry: object) -> bool:
    if not isinstance(entry, list) or len(entry) != 2:
        return False
    return isinstance(entry[0], int) and isinstance(entry[1], int | None)
