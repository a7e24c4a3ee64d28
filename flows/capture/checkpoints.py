"""Which checkpoints a source holds: what `actlas ingest MODEL` accepts as MODEL."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from flows.capture.errors import CheckpointError, UnknownModelError, UnknownStepError
from flows.capture.hub import HubRevision, find_revisions, is_repository
from flows.capture.integrity import CONFIG_FILE, check_config, has_weights, read_json
from flows.capture.random_sources import (
    BLOCK_PREFIX,
    RANDOM_PREFIX,
    RandomWeights,
    block_name,
    parse_random,
    random_source,
)
from flows.capture.steps import parse_step

_STEP_FOLDER: Final = re.compile(r"checkpoint-(\d+)")
_NO_TABLE: Final[Mapping[str, int]] = {}
_LISTED_STEPS: Final = 8
_TRAINER_STATE: Final = "trainer_state.json"


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
        hub: Where on the Hub it is, or its config where weights are drawn; None when it is here.
            It has no directory then.
        trusted: Whether Python code that comes with it may run.
    """

    source: str
    model: str
    step: int
    revision: str
    directory: Path | None
    gguf: str | None = None
    random: RandomWeights | None = None
    hub: HubRevision | None = None
    trusted: bool = False

    @property
    def place(self) -> str:
        """What :func:`find_checkpoints` finds this very checkpoint by, from any directory."""
        folder = None if self.directory is None else self.directory.resolve()
        there = None if self.hub is None else f"{self.hub.repo}@{self.hub.commit}"
        if self.random is not None:
            return random_source(str(there or folder or self.random.model_type), self.random)
        if there is not None:
            return f"{there}={self.step}"
        assert folder is not None
        return str(folder / self.gguf if self.gguf else folder)


@dataclass(frozen=True)
class Gap:
    """A step that was asked for, where there is none.

    Attributes:
        name: What was asked for.
        problem: What is there instead.
    """

    name: str
    problem: str


def find_checkpoints(
    source: str,
    *,
    steps: Sequence[int] | None = None,
    name: str | None = None,
    seed: int = 0,
    table: Mapping[str, int] = _NO_TABLE,
    trusted: bool = False,
) -> list[Checkpoint]:
    """Find the checkpoints of a source, sorted by step; see :func:`find_present`.

    Raises:
        CheckpointError: If there is no checkpoint.
        UnknownStepError: If one of the wanted steps is not there.
    """
    found, gaps = find_present(
        source, steps=steps, name=name, seed=seed, table=table, trusted=trusted
    )
    if gaps:
        raise UnknownStepError(gaps[0].problem)
    return found


def find_present(
    source: str,
    *,
    steps: Sequence[int] | None = None,
    name: str | None = None,
    seed: int = 0,
    table: Mapping[str, int] = _NO_TABLE,
    trusted: bool = False,
) -> tuple[list[Checkpoint], list[Gap]]:
    """Find those checkpoints of a source that are there, sorted by step, and what is not.

    A source is a folder of one checkpoint; a folder of ``checkpoint-N`` folders; a GGUF file or
    a folder with one; or ``random:CONFIG[:key=value,...][@SEED]`` for an untrained model, where
    CONFIG is a model type of `transformers`, a path with a config, or ``OWNER/NAME[@REVISION]`` on
    the Hub, whose config alone is fetched; ``block:CONFIG...`` for one untrained block of it, whose
    step is its seed; or, where nothing of that name lies here, ``OWNER/NAME[@REVISION[=STEP]]`` on
    the Hub, see `find_revisions`.

    The step of a plain folder is the one that its name speaks of (`parse_step`), else the
    ``global_step`` of its trainer state, else 0. Folders of a training run are listed without a
    look inside: a half-written one is refused when it is read, and does not hold up the others.

    Args:
        source: What to look for.
        steps: Steps wanted; all when None.
        name: Name of the model; taken from the source when None.
        seed: Seed of an untrained model whose source names none.
        table: Steps of folders, revisions or repositories by name, where the name alone says
            none or another one.
        trusted: Whether Python code that comes with them may run.

    Raises:
        CheckpointError: If there is no checkpoint.
    """
    if source.startswith((RANDOM_PREFIX, BLOCK_PREFIX)):
        found = [_random(source, seed)]
    elif is_repository(source) and not Path(source).parent.exists():
        found = [
            _remote(source, revision)
            for revision in find_revisions(source, sweep=steps is not None, table=table)
        ]
    else:
        found = _local(source, Path(source).expanduser(), table)
    found = [
        replace(checkpoint, model=name or checkpoint.model, trusted=trusted) for checkpoint in found
    ]
    return _with_steps(found, steps)


def _remote(source: str, revision: HubRevision) -> Checkpoint:
    return Checkpoint(
        source, revision.model, revision.step, revision.commit, directory=None, hub=revision
    )


def _with_steps(
    found: list[Checkpoint], steps: Sequence[int] | None
) -> tuple[list[Checkpoint], list[Gap]]:
    found = sorted(found, key=lambda checkpoint: checkpoint.step)
    if steps is None:
        return found, []
    held = [checkpoint.step for checkpoint in found]
    missing = sorted(set(steps) - set(held))
    gaps = []
    if missing:
        # All of a short list, the neighbours in a long one.
        near = sorted(held, key=lambda step: abs(step - missing[0]))[:_LISTED_STEPS]
        listed = ", ".join(map(str, sorted(near))) + (" ..." if len(near) < len(held) else "")
        told = ", ".join(map(str, missing))
        problem = f"{found[0].source} has no step {told}: it has {listed}"
        gaps = [Gap(f"{found[0].model} step {told}", problem)]
    return [checkpoint for checkpoint in found if checkpoint.step in set(steps)], gaps


def _local(source: str, path: Path, table: Mapping[str, int]) -> list[Checkpoint]:
    if not path.exists():
        expected = (
            "; expected the folder of a checkpoint, a folder of checkpoint-N folders, a .gguf file,"
            " OWNER/NAME of the Hugging Face Hub, or random:FOLDER"
        )
        raise UnknownModelError(f"{source} does not exist{_near_names(path) or expected}")
    if path.suffix == ".gguf":
        return [Checkpoint(source, path.stem, 0, path.name, path.parent, gguf=path.name)]
    if not path.is_dir():
        raise UnknownModelError(
            f"{source} is a file: expected the folder of a checkpoint, a folder of checkpoint-N "
            "folders, or a .gguf file"
        )
    folders = [
        (step, entry)
        for entry in path.iterdir()
        if entry.is_dir() and (step := _step_of_run(path, entry, table)) is not None
    ]
    if folders:
        return [
            Checkpoint(source, path.resolve().name, step, entry.name, entry)
            for step, entry in folders
        ]
    return [_single(source, path, table)]


def _step_of_run(run: Path, folder: Path, table: Mapping[str, int]) -> int | None:
    """Return the step of a folder of a run, None if it is none of its checkpoints.

    Trainers put folders like ``global_step10`` with states of their own beside the weights of a
    checkpoint, so that such names count only where there are no weights beside them.
    """
    if folder.name in table:
        return table[folder.name]
    if (match := _STEP_FOLDER.fullmatch(folder.name)) is not None:
        return int(match[1])
    named = parse_step(folder.name)
    if named is None or named.rest or has_weights(run) or not (folder / CONFIG_FILE).is_file():
        return None
    return named.step


def _single(source: str, directory: Path, table: Mapping[str, int]) -> Checkpoint:
    resolved = directory.resolve()
    ggufs = sorted(file.name for file in directory.glob("*.gguf"))
    if has_weights(directory):
        check_config(directory)
        named = parse_step(resolved.name)
        model = resolved.name if named is None else named.rest or resolved.parent.name
        step = _trainer_step(directory) if named is None else named.step
        step = table.get(resolved.name, step)
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
    config, weights = parse_random(source, seed)
    path = Path(config).expanduser()
    if path.name == CONFIG_FILE:
        path = path.parent
    directory = path if path.is_dir() else None
    remote: HubRevision | None = None
    if directory is not None:
        check_config(directory)
    elif is_repository(config) and not path.parent.exists():
        remote, *others = find_revisions(config, sweep=False)
        if others:
            raise CheckpointError(f"{source}: name one revision of {remote.repo}, for its config")
    elif not config or "/" in config:
        prefix = source.partition(":")[0]
        raise UnknownModelError(
            f"{source}: expected {prefix}: and a model type such as bert, a folder with a "
            f"{CONFIG_FILE}, or OWNER/NAME on the Hub; {config or 'nothing'} is none of these"
            f"{_near_names(path)}"
        )
    kind = config if directory is None else directory.resolve().name
    if remote is not None:
        kind = remote.repo.partition("/")[2]
    if directory is not None or remote is not None:
        weights = replace(weights, model_type=None)
    revision = f"seed{weights.seed}"
    if weights.block is None:
        name, step = f"random-{kind}", 0
    else:
        name, step = block_name(kind, weights.block), weights.seed
    return Checkpoint(source, name, step, revision, directory, random=weights, hub=remote)
