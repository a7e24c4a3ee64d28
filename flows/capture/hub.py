"""Checkpoints on the Hugging Face Hub: found by revision, pinned to a commit, fetched in parts.

The endpoint, the cache and the token are those of `huggingface_hub`, from the usual variables.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flows.capture.errors import CheckpointError, UnknownModelError
from flows.capture.hub_client import ask_hub
from flows.capture.integrity import (
    CODE_SUFFIX,
    CONFIG_FILE,
    GENERATION_FILE,
    INDEX_SUFFIX,
    PROCESSOR_FILES,
    TOKENIZER_FILES,
    WEIGHT_FILES,
    file_sha256,
)
from flows.capture.steps import parse_step

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_REPOSITORY: Final = re.compile(
    r"(?P<repo>[\w-][\w.-]*/[\w.-]+)(?:@(?P<revision>[^=]+)(?:=(?P<step>\d+))?)?"
)
_METADATA: Final = (CONFIG_FILE, GENERATION_FILE, *TOKENIZER_FILES, *PROCESSOR_FILES)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_EVERY_STEP: Final = "all"
_MAIN: Final = "main"
_NO_TABLE: Final[Mapping[str, int]] = {}


@dataclass(frozen=True)
class HubRevision:
    """One commit of one repository.

    Attributes:
        repo: Its id, ``OWNER/NAME``.
        name: Branch or tag through which it was found.
        commit: Its hash, under which everything is fetched.
        step: Training step.
        model: Name of the model, shared by all steps of a run.
    """

    repo: str
    name: str
    commit: str
    step: int
    model: str


def is_repository(source: str) -> bool:
    """Tell whether a source reads like ``OWNER/NAME[@REVISION[=STEP]]``."""
    return _REPOSITORY.fullmatch(source) is not None


def find_revisions(
    source: str, *, sweep: bool, table: Mapping[str, int] = _NO_TABLE
) -> list[HubRevision]:
    """Find the revisions of a repository that a source means.

    Args:
        source: ``OWNER/NAME`` for ``main``; ``OWNER/NAME@REVISION`` for a branch, tag or commit,
            whose step may be stated as ``@REVISION=STEP``; ``OWNER/NAME@all`` for all whose name
            speaks of a step, `parse_step`.
        sweep: Whether ``OWNER/NAME`` means the same as ``OWNER/NAME@all``.
        table: Steps of revisions or repositories whose names do not speak of them.

    Raises:
        CheckpointError: If the repository or the revision does not exist, no revision speaks of
            a step where steps are wanted, or the Hub cannot be reached.
    """
    match = _REPOSITORY.fullmatch(source)
    assert match is not None
    repo, wanted = match["repo"], match["revision"] or (_EVERY_STEP if sweep else _MAIN)
    commits = _commits(repo)
    if wanted == _EVERY_STEP and _EVERY_STEP not in commits:
        return _with_steps(repo, commits, table)
    commit = commits.get(wanted, wanted if _COMMIT.fullmatch(wanted) else None)
    if commit is None:
        near = ", ".join(_near(wanted, commits)) or "none"
        raise UnknownModelError(
            f"{repo} has no revision {wanted!r}: of its {len(commits)}, near ones are {near}"
        )
    if match["step"] is not None:
        return [HubRevision(repo, wanted, commit, int(match["step"]), repo)]
    named = table.get(wanted)
    if match["revision"] is None:
        named = table.get(repo, named)
    if named is not None:
        return [HubRevision(repo, wanted, commit, named, repo)]
    return [_named(repo, wanted, commit, commits)]


def metadata_folder(revision: HubRevision, *, code: bool = False) -> Path:
    """Fetch the config and the tokenizer of a revision, and return the folder they are in.

    Args:
        revision: Which one.
        code: Whether Python code that comes with it is fetched, too.
    """
    names = [
        name
        for name in _digests(revision)
        if name in _METADATA or (code and name.endswith(CODE_SUFFIX))
    ]
    return _fetch(revision, names)


def weights_folder(revision: HubRevision, *, code: bool = False) -> Path:
    """Fetch all that is needed to run a revision, and return the folder it is in.

    A download that was cut short goes on where it ended.

    Args:
        revision: Which one.
        code: Whether Python code that comes with it is fetched, too.

    Raises:
        CheckpointError: If the revision has no weights, or the network is lost for good.
    """
    metadata_folder(revision, code=code)
    return _fetch(revision, _weight_names(revision))


def weight_digests(revision: HubRevision) -> dict[str, str]:
    """Return the SHA-256 of each weight file by name, as the Hub tells it without a download.

    Raises:
        CheckpointError: If the revision has no weights.
    """
    digests = _digests(revision)
    names = [name for name in _weight_names(revision) if not name.endswith(INDEX_SUFFIX)]
    unknown = [name for name in names if digests[name] is None]
    folder = _fetch(revision, unknown) if unknown else Path()
    return {name: digests[name] or file_sha256(folder / name) for name in names}


def release(revision: HubRevision) -> None:
    """Delete what was fetched of a revision, but not what others in the cache share with it."""
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    with suppress(CacheNotFound):
        scan_cache_dir(constants.HF_HUB_CACHE).delete_revisions(revision.commit).execute()


def _commits(repo: str) -> dict[str, str]:
    refs = ask_hub(repo, lambda api: api.list_repo_refs(repo), first_contact=True)
    return {ref.name: ref.target_commit for ref in (*refs.tags, *refs.branches)}


def _near(wanted: str, names: Iterable[str]) -> list[str]:
    step = parse_step(wanted)
    if step is None:
        return difflib.get_close_matches(wanted, names, n=3)
    others = [(abs(other.step - step.step), name) for name in names if (other := parse_step(name))]
    return [name for _, name in sorted(others)[:3]]


def _with_steps(
    repo: str, commits: Mapping[str, str], table: Mapping[str, int]
) -> list[HubRevision]:
    found: dict[int, HubRevision] = {}
    for name, commit in sorted(commits.items(), key=lambda item: len(item[0])):
        parsed = parse_step(name)
        if parsed is None and name not in table:
            continue
        step = table.get(name, parsed.step if parsed else 0)
        same = found.setdefault(step, HubRevision(repo, name, commit, step, repo))
        if same.commit != commit:
            raise CheckpointError(
                f"{repo} has two revisions of step {step}, {same.name} and {name}: name "
                f"one of them, as {repo}@{name}, or give their steps in a table"
            )
    if not found:
        listed = ", ".join(sorted(commits)[:5])
        raise CheckpointError(
            f"no revision of {repo} speaks of a step: it has {listed}; state one, as "
            f"{repo}@{_MAIN}=STEP"
        )
    return list(found.values())


def _named(repo: str, name: str, commit: str, commits: Mapping[str, str]) -> HubRevision:
    named = parse_step(name)
    if named is not None:
        return HubRevision(repo, name, commit, named.step, repo)
    own = parse_step(repo)
    if own is not None:
        # One repository a step: what comes before the step is the model.
        return HubRevision(repo, name, commit, own.step, own.rest)
    steps = {
        step.step
        for other, held in commits.items()
        if held == commit
        if (step := parse_step(other))
    }
    return HubRevision(repo, name, commit, min(steps, default=0), repo)


@lru_cache(maxsize=1024)
def _digests(revision: HubRevision) -> Mapping[str, str | None]:
    """Return the SHA-256 of each file of a revision, None where the Hub does not tell it."""
    from huggingface_hub import RepoFile

    repo, commit = revision.repo, revision.commit
    entries = ask_hub(
        repo, lambda api: list(api.list_repo_tree(repo, recursive=True, revision=commit))
    )
    files = [entry for entry in entries if isinstance(entry, RepoFile)]
    return {file.path: file.lfs.sha256 if file.lfs else None for file in files}


def _weight_names(revision: HubRevision) -> list[str]:
    names = _digests(revision)
    for single in WEIGHT_FILES:
        if single in names:
            return [single]
        if single + INDEX_SUFFIX in names:
            stem, suffix = single.rsplit(".", 1)
            shard = re.compile(rf"{re.escape(stem)}-\d+-of-\d+\.{suffix}")
            return [single + INDEX_SUFFIX, *filter(shard.fullmatch, names)]
    raise CheckpointError(
        f"{revision.repo}@{revision.name} holds no weights: expected {' or '.join(WEIGHT_FILES)}, "
        f"it has {', '.join(sorted(names)[:8])}"
    )


def _fetch(revision: HubRevision, names: Sequence[str]) -> Path:
    def fetch(api: HfApi) -> str:
        return api.snapshot_download(
            revision.repo, revision=revision.commit, allow_patterns=list(names)
        )

    from huggingface_hub.utils.tqdm import disable_progress_bars

    # Downloads go on beside other work, whose messages have to stay visible.
    with disable_progress_bars():
        return Path(ask_hub(revision.repo, fetch))
