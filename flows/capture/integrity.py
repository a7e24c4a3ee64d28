"""Whether the files of a checkpoint are whole, found out before anything is loaded."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from flows.capture.errors import CheckpointError

CONFIG_FILE: Final = "config.json"
GENERATION_FILE: Final = "generation_config.json"
WEIGHT_FILES: Final = ("model.safetensors", "pytorch_model.bin")
"""Names of a checkpoint's single weight file, the preferred one first; shards have an index."""

INDEX_SUFFIX: Final = ".index.json"
"""What the name of the index of shards adds to the name of a single file."""

TOKENIZER_FILES: Final = (
    "added_tokens.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tekken.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
"""Files from which a tokenizer is built; at least one is there when a folder has one."""

CODE_SUFFIX: Final = ".py"

PROCESSOR_FILES: Final = ("preprocessor_config.json", "processor_config.json")
"""Files that say how images or sounds are prepared."""

_LFS_POINTER: Final = b"version https://git-lfs"


def weight_files(directory: Path) -> list[Path]:
    """Return the files that hold the weights of a checkpoint, checked to be whole.

    Args:
        directory: Folder with a config and safetensors or PyTorch files, sharded or not.

    Raises:
        CheckpointError: If there are none, one is missing, or one is damaged.
    """
    for name in WEIGHT_FILES:
        if (directory / name).is_file():
            return [_checked(directory / name)]
        index = directory / (name + INDEX_SUFFIX)
        if index.is_file():
            return [_checked(file) for file in _shards(index)]
    raise CheckpointError(
        f"{directory} holds no weights: expected {' or '.join(WEIGHT_FILES)}, or shards with "
        f"their {INDEX_SUFFIX} file; the checkpoint may still be being written"
    )


def has_weights(directory: Path) -> bool:
    """Tell whether a folder has the weight file, or the index of shards, of a checkpoint."""
    return any(
        (directory / name).is_file() or (directory / (name + INDEX_SUFFIX)).is_file()
        for name in WEIGHT_FILES
    )


def check_config(directory: Path) -> None:
    """Check that a folder has a readable model config.

    Raises:
        CheckpointError: If it is missing or is not a JSON object.
    """
    file = directory / CONFIG_FILE
    if not file.is_file():
        raise CheckpointError(
            f"{directory} holds no {CONFIG_FILE}: expected the model's config beside its weights; "
            "copy it from the model it was trained from"
        )
    read_json(file)


def read_json(file: Path) -> Mapping[str, object]:
    """Read a file that must hold one JSON object.

    Raises:
        CheckpointError: If it holds anything else.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{file} is not readable JSON ({error}): it is damaged") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{file} holds {type(found).__name__}: expected a JSON object")
    return found


def check_gguf(file: Path) -> Path:
    """Check that a file is a GGUF file at all; its reader checks the rest.

    Raises:
        CheckpointError: If it does not start as one.
    """
    with file.open("rb") as stream:
        magic = stream.read(4)
    if magic != b"GGUF":
        raise CheckpointError(f"{file} starts with {magic!r}: expected a GGUF file")
    return file


def _shards(index: Path) -> list[Path]:
    shard_of = read_json(index).get("weight_map")
    if not isinstance(shard_of, dict) or not shard_of:
        raise CheckpointError(f"{index} names no shards: expected a weight_map")
    names = sorted({str(name) for name in shard_of.values()})
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{index.parent} lacks {len(missing)} of {len(names)} shards, {missing[0]} first: "
            "copy the missing files, or wait until the checkpoint is written"
        )
    return [index.parent / name for name in names]


def _checked(file: Path) -> Path:
    with file.open("rb") as stream:
        start = stream.read(len(_LFS_POINTER))
    if start == _LFS_POINTER:
        raise CheckpointError(
            f"{file} is a Git LFS pointer of {file.stat().st_size} bytes, not the weights: "
            "run `git lfs pull` in its repository"
        )
    if file.suffix == ".safetensors":
        _check_safetensors(file)
    elif not zipfile.is_zipfile(file):
        raise CheckpointError(
            f"{file} ({file.stat().st_size} bytes) is not a complete PyTorch archive: "
            "it is truncated, or of a format that only unsafe unpickling reads"
        )
    return file


def _check_safetensors(file: Path) -> None:
    """Compare a safetensors file's length with what its header announces.

    The format: 8 bytes of header length (little-endian), the header as JSON with the
    ``data_offsets`` of each tensor, then the data.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        header_size = int.from_bytes(stream.read(8), "little")
        if size < 8 or header_size > size - 8:
            raise CheckpointError(
                f"{file} is truncated: it has {size} bytes, fewer than its header "
                f"of {header_size} and 8 before it"
            )
        header = stream.read(header_size)
    try:
        entries = json.loads(header)
        entries.pop("__metadata__", None)
        data = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CheckpointError(f"{file} has a damaged safetensors header ({error})") from error
    expected = 8 + header_size + data
    if size != expected:
        raise CheckpointError(
            f"{file} is {'truncated' if size < expected else 'too long'}: it has {size} bytes, "
            f"its header announces {expected}; copy it again"
        )


def tokenizer_files(directory: Path) -> list[Path]:
    """Return the files of a folder's tokenizer, none if it has no tokenizer."""
    return [directory / name for name in TOKENIZER_FILES if (directory / name).is_file()]


def code_files(directory: Path) -> list[Path]:
    """Return the files of Python code that a folder's config asks for, none if it asks for none."""
    if "auto_map" not in read_json(directory / CONFIG_FILE):
        return []
    return sorted(directory.glob(f"*{CODE_SUFFIX}"))


def file_sha256(file: Path) -> str:
    """Return the SHA-256 of a file, read in pieces."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
