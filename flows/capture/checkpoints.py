"""Which checkpoints a source holds: what `actlas ingest MODEL` accepts as MODEL."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from flows.capture.errors import CheckpointError, UnknownStepError
from flows.capture.hub import HubRevision, find_revisions, is_repository
from flows.capture.integrity import CONFIG_FILE, check_config, has_weights, read_json

RANDOM_PREFIX: Final = "random:"

_STEP_FOLDER: Final = re.compile(r"checkpoint-(\d+)")
_TRAINER_STATE: Final = "trainer_state.json"


@dataclass(frozen=True)
class RandomWeights:
    """Weights that are drawn rather than read.

    Attributes:
        model_type: Model type of `transformers` whose default config is taken, or None when
            the config lies in the checkpoint's directory.
        overrides: Entries of the config that are replaced, as (name, value) pairs.
        seed: Seed of the draw.
    """

    model_type: str | None
    overrides: tuple[tuple[str, int | float | str | bool], ...]
    seed: int


@dataclass(frozen=True)
class Checkpoint:
    """One state of one model, found but not read.

    Attributes:
        source: What the user named.
        model: Name of the model, shared by all checkpoints of one training run.
        step: Training step.
        revision: What tells this checkpoint from the others of its source.
        directory: Local folder of config, weights and tokenizer; None if it has none.
        gguf: Name of the GGUF file in the directory that holds weights, config and tokenizer.
        random: How weights are drawn, None when they are read.
        hub: Where on the Hub it is, None when it is here; it has no directory then.
    """

    source: str
    model: str
    step: int
    revision: str
    directory: Path | None
    gguf: str | None = None
    random: RandomWeights | None = None
    hub: HubRevision | None = None


def find_checkpoints(
    source: str, *, steps: Sequence[int] | None = None, name: str | None = None, seed: int = 0
) -> list[Checkpoint]:
    """Find the checkpoints of a source, sorted by step.

    A source is a folder of one checkpoint; a folder of ``checkpoint-N`` folders; a GGUF file or
    a folder with one; or ``random:CONFIG[:key=value,...][@SEED]`` for an untrained model, where
    CONFIG is a model type of `transformers` or a path with a config; or, where nothing of that
    name lies here, ``OWNER/NAME[@REVISION[=STEP]]`` on the Hub, see `find_revisions`.

    The step of a plain folder is the N of its own name, else the ``global_step`` of its trainer
    state, else 0. Folders of a training run are listed without a look inside: a half-written one
    is refused when it is read, and does not hold up the others.

    Args:
        source: What to look for.
        steps: Steps wanted; all when None.
        name: Name of the model; taken from the source when None.
        seed: Seed of an untrained model whose source names none.

    Raises:
        CheckpointError: If there is no checkpoint.
        UnknownStepError: If one of the wanted steps is not there.
    """
    if source.startswith(RANDOM_PREFIX):
        found = [_random(source, seed)]
    elif is_repository(source) and not Path(source).parent.exists():
        found = [
            _remote(source, revision)
            for revision in find_revisions(source, sweep=steps is not None)
        ]
    else:
        found = _local(source, Path(source).expanduser())
    if name is not None:
        found = [replace(checkpoint, model=name) for checkpoint in found]
    return _with_steps(found, steps)


def _remote(source: str, revision: HubRevision) -> Checkpoint:
    return Checkpoint(
        source, revision.model, revision.step, revision.commit, directory=None, hub=revision
    )


def _with_steps(found: list[Checkpoint], steps: Sequence[int] | None) -> list[Checkpoint]:
    found = sorted(found, key=lambda checkpoint: checkpoint.step)
    if steps is None:
        return found
    held = [checkpoint.step for checkpoint in found]
    missing = sorted(set(steps) - set(held))
    if missing:
        raise UnknownStepError(
            f"{found[0].source} has no step {', '.join(map(str, missing))}: "
            f"it has {', '.join(map(str, held))}"
        )
    return [checkpoint for checkpoint in found if checkpoint.step in set(steps)]


def _local(source: str, path: Path) -> list[Checkpoint]:
    if not path.exists():
        raise CheckpointError(f"{source} does not exist{_near_names(path)}")
    if path.suffix == ".gguf":
        return [Checkpoint(source, path.stem, 0, path.name, path.parent, gguf=path.name)]
    if not path.is_dir():
        raise CheckpointError(
            f"{source} is a file: expected the folder of a checkpoint, a folder of checkpoint-N "
            "folders, or a .gguf file"
        )
    folders = [(step, entry) for entry in path.iterdir() if (step := _step_of(entry)) is not None]
    if folders:
        return [
            Checkpoint(source, path.resolve().name, step, entry.name, entry)
            for step, entry in folders
        ]
    return [_single(source, path)]


def _single(source: str, directory: Path) -> Checkpoint:
    resolved = directory.resolve()
    ggufs = sorted(file.name for file in directory.glob("*.gguf"))
    if has_weights(directory):
        check_config(directory)
        step = _step_of(resolved)
        model = resolved.name if step is None else resolved.parent.name
        step = _trainer_step(directory) if step is None else step
        return Checkpoint(source, model, step, resolved.name, directory)
    if len(ggufs) == 1:
        model = Path(ggufs[0]).stem
        return Checkpoint(source, model, 0, ggufs[0], directory, gguf=ggufs[0])
    raise CheckpointError(f"{source} holds no checkpoint: {_what_lies_there(directory, ggufs)}")


def _what_lies_there(directory: Path, ggufs: list[str]) -> str:
    if ggufs:
        return f"it has {len(ggufs)} GGUF files, {ggufs[0]} first; name one of them"
    if (directory / CONFIG_FILE).is_file():
        return (
            f"it has a {CONFIG_FILE} but no weights; expected model.safetensors or "
            f"pytorch_model.bin beside it, or {RANDOM_PREFIX}{directory} for an untrained model"
        )
    names = sorted(entry.name for entry in directory.iterdir())
    listed = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
    return (
        f"it has {listed or 'no files'}; expected a {CONFIG_FILE} with weights, checkpoint-N "
        "folders, or a .gguf file"
    )


def _step_of(folder: Path) -> int | None:
    match = _STEP_FOLDER.fullmatch(folder.name)
    return int(match[1]) if match and folder.is_dir() else None


def _trainer_step(directory: Path) -> int:
    file = directory / _TRAINER_STATE
    step = read_json(file).get("global_step") if file.is_file() else 0
    return step if isinstance(step, int) else 0


def _near_names(path: Path) -> str:
    parent = path.parent
    names = [entry.name for entry in parent.iterdir()] if parent.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {str(parent / near[0])!r}?" if near else ""


def _random(source: str, seed: int) -> Checkpoint:
    config, overrides, seed = _parse_random(source.removeprefix(RANDOM_PREFIX), seed)
    path = Path(config).expanduser()
    if path.name == CONFIG_FILE:
        path = path.parent
    directory = path if path.is_dir() else None
    if directory is not None:
        check_config(directory)
    elif not config or "/" in config:
        raise CheckpointError(
            f"{source}: expected {RANDOM_PREFIX} and a model type such as bert, or a folder with "
            f"a {CONFIG_FILE}; {config or 'nothing'} is neither{_near_names(path)}"
        )
    weights = RandomWeights(None if directory else config, overrides, seed)
    model = f"random-{directory.resolve().name if directory else config}"
    return Checkpoint(source, model, 0, f"seed{seed}", directory, random=weights)


def _parse_random(
    text: str, seed: int
) -> tuple[str, tuple[tuple[str, int | float | str | bool], ...], int]:
    """Split ``CONFIG[:key=value,...][@SEED]``."""
    match = re.fullmatch(r"(?P<rest>.*?)(@(?P<seed>\d+))?", text, re.DOTALL)
    rest, own_seed = (match["rest"], match["seed"]) if match else (text, None)
    config, _, listed = rest.partition(":") if "=" in rest else (rest, "", "")
    overrides = []
    for entry in filter(None, listed.split(",")):
        key, equals, value = entry.partition("=")
        if not (key and equals and value):
            raise CheckpointError(
                f"{RANDOM_PREFIX}{text}: {entry!r} is not an override, expected key=value"
            )
        overrides.append((key.strip(), _scalar(value.strip())))
    return config, tuple(overrides), seed if own_seed is None else int(own_seed)


def _scalar(text: str) -> int | float | str | bool:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | str | bool) else text
