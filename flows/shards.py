"""Shards in the form of WebDataset: tar files whose members make samples, by their names."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from flows.capture.errors import InputError

_COMPRESSED: Final = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_SAVED: Final = ("state.json", "dataset_dict.json")
"""What a folder written by ``save_to_disk`` holds."""

_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_RANGE: Final = re.compile(r"(\d+)\.\.(\d+)")
_MEMBER: Final = re.compile(r"((?:.*/)?[^./]+)\.([^/]+)", re.DOTALL)
"""A key, to the first dot of the last part of a path, and an extension, all that follows it."""

_MAGIC: Final = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
"""How files start that gzip, bzip2, xz or zstd made."""

_BLOCK: Final = 512
_READ_AT_ONCE: Final = 1 << 20
_AGAIN: Final = (
    "Copy or download the shard again, or leave it out with a pattern: --dataset"
    " 'train-{000..002}.tar'"
)


@dataclass(frozen=True, slots=True)
class Member:
    """A file in a shard, which stays there until it is read.

    Attributes:
        shard: The tar file.
        start: Byte of the shard at which it starts.
        size: Its bytes.
        problem: Why it is not to be read, empty for a good one.
    """

    shard: Path
    start: int
    size: int
    problem: str = ""

    def read(self) -> bytes:
        """Return its bytes.

        Raises:
            InputError: If it is not to be read.
        """
        if self.problem:
            raise InputError(self.problem)
        with self.shard.open("rb") as file:
            file.seek(self.start)
            return file.read(self.size)


@dataclass(frozen=True, slots=True)
class Sample:
    """The members of a shard that have one key.

    Attributes:
        name: Its shard and its key, with a colon between them.
        members: Each by its extension in lower case.
    """

    name: str
    members: dict[str, Member]


def is_pattern(path: Path) -> bool:
    """Tell whether a path means several shards: by braces, or by ``*``, ``?`` or ``[``."""
    return bool(set("{*?[") & set(str(path))) and ".tar" in path.suffixes and not path.exists()


def are_shards(path: Path) -> bool:
    """Tell whether a file, folder or pattern is one of shards."""
    if path.is_dir():
        return not any((path / name).exists() for name in _SAVED) and bool(_in_folder(path))
    return path.name.lower().endswith((".tar", *_COMPRESSED)) or is_pattern(path)


def find_shards(path: Path) -> dict[str, Path]:
    """Return the shards that a file, folder or pattern means, sorted, by their shortest names.

    Raises:
        InputError: If one is not there.
    """
    if path.is_dir():
        found = _in_folder(path)
    elif is_pattern(path):
        found = sorted({shard for one in _expanded(str(path)) for shard in _matching(one)})
    else:
        found = [path]
    short = len({shard.name for shard in found}) == len(found)
    return {shard.name if short else shard.as_posix(): shard for shard in found}


def read_samples(name: str, shard: Path) -> list[Sample]:
    """Return the samples of a shard, in its order, without the content of their members.

    Members that have no key or no extension are passed over, as WebDataset does.

    Args:
        name: What the shard is called in the names of samples.
        shard: The tar file.

    Raises:
        InputError: If the shard is compressed, cut off or damaged, or has a member twice.
    """
    found: dict[str, dict[str, Member]] = {}
    for info in _members(shard):
        parts = _MEMBER.fullmatch(info.name.removeprefix("./"))
        if parts is None or info.isdir():
            continue
        key, extension = parts[1], parts[2].lower()
        members = found.setdefault(key, {})
        if extension in members:
            raise InputError(
                f"{shard} holds {info.name} twice, the second at byte {info.offset}: expected each"
                " member once. Pack the shard again, with one of them under another name"
            )
        members[extension] = Member(shard, info.offset_data, info.size, _problem(info))
    return [Sample(f"{name}:{key}", members) for key, members in found.items()]


def _in_folder(folder: Path) -> list[Path]:
    endings = (".tar", *_COMPRESSED)
    return sorted(one for one in folder.iterdir() if one.name.lower().endswith(endings))


def _expanded(pattern: str) -> Iterator[str]:
    found = _BRACES.search(pattern)
    if found is None:
        yield pattern
        return
    for part in _parts(found[1]):
        yield from _expanded(pattern[: found.start()] + part + pattern[found.end() :])


def _parts(within: str) -> Iterator[str]:
    bounds = _RANGE.fullmatch(within)
    if bounds is None:
        yield from within.split(",")
        return
    first, last = int(bounds[1]), int(bounds[2])
    if first > last:
        raise InputError(f"{{{within}}} counts down: expected {{{bounds[2]}..{bounds[1]}}}")
    yield from (f"{number:0{len(bounds[1])}d}" for number in range(first, last + 1))


def _matching(pattern: str) -> Sequence[Path]:
    path = Path(pattern)
    if path.exists():
        return [path]
    root = Path(path.anchor)
    found = list(root.glob(str(path.relative_to(root)))) if set("*?[") & set(pattern) else []
    if not found:
        raise InputError(f"{path} is not there: expected a shard for all that the pattern says")
    return found


def _members(shard: Path) -> Iterator[tarfile.TarInfo]:
    size = shard.stat().st_size
    with shard.open("rb") as file:
        tar = _opened(shard, file, size)
        reached = 0
        while (info := _next(shard, tar, reached)) is not None:
            if tar.offset > size:
                raise InputError(
                    f"{shard} is cut off at byte {size}: {info.name}, which starts at byte"
                    f" {info.offset}, goes on to byte {tar.offset}. {_AGAIN}"
                )
            if tar.offset <= reached:
                raise _damaged(shard, reached)
            reached = tar.offset
            yield info
        _check_end(shard, file, tar.offset)


def _opened(shard: Path, file: BinaryIO, size: int) -> tarfile.TarFile:
    if file.read(_BLOCK).startswith(_MAGIC):
        raise InputError(
            f"{shard} is compressed: expected a plain tar file, in which items are read from where"
            " they lie. Decompress it first, for instance with gunzip"
        )
    file.seek(0)
    try:
        # Not the encoding of this machine: names are part of what a corpus is.
        return tarfile.open(fileobj=file, mode="r:", encoding="utf-8", errors="replace")
    except (tarfile.TarError, ValueError, OSError) as error:
        if size < _BLOCK:
            raise InputError(f"{shard} is cut off at byte {size}. {_AGAIN}") from error
        raise InputError(f"{shard} is no tar file, or a damaged one: {error}. {_AGAIN}") from error


def _next(shard: Path, tar: tarfile.TarFile, reached: int) -> tarfile.TarInfo | None:
    try:
        return tar.next()
    except (tarfile.TarError, ValueError, OSError, EOFError) as error:
        raise _damaged(shard, reached) from error


def _check_end(shard: Path, file: BinaryIO, end: int) -> None:
    """Refuse a shard that ends before its mark of the end, at which tarfile says nothing."""
    file.seek(end)
    first = file.read(_BLOCK)
    if any(first):
        raise _damaged(shard, end)
    if len(first) < _BLOCK:
        raise InputError(
            f"{shard} is cut off at byte {end + len(first)}: it lacks the mark of its end, and"
            f" members may be missing. {_AGAIN}"
        )
    while block := file.read(_READ_AT_ONCE):
        if any(block):
            raise InputError(
                f"{shard} goes on after the mark of its end at byte {end}: expected one tar file,"
                " not several joined. Give each as a shard of its own"
            )


def _damaged(shard: Path, byte: int) -> InputError:
    return InputError(f"{shard} is cut off or damaged at byte {byte}, in a header. {_AGAIN}")


def _problem(info: tarfile.TarInfo) -> str:
    path = PurePosixPath(info.name)
    if path.is_absolute() or ".." in path.parts:
        return "its name leads outside of the shard"
    if info.issym() or info.islnk():
        return f"it is a link to {info.linkname}: expected a file, since links are not followed"
    if not info.isfile() or info.issparse():
        return "it is no regular file"
    return ""
