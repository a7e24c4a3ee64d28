"""The tensors of weight files, read into memory of their own.

`transformers` maps the files into memory, and a model on the processor goes on reading them while
it runs: what something writes there meanwhile would change its weights, and a file that is cut
short would end the process by a signal, without a word.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from pickle import UnpicklingError
from typing import Final, TypedDict

import torch
from torch import Tensor

from flows.capture.errors import CheckpointError
from flows.capture.freed import passing

_DTYPES: Final = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
"""Dtypes as safetensors names them."""

_LENGTH_BYTES: Final = 8
_OWN_MAPPING: Final = 1 << 21
"""Size from which a tensor has memory that goes back to the system with it."""


class _Entry(TypedDict):
    """What the header of a file says of one tensor."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def read_tensors(files: Sequence[Path]) -> dict[str, Tensor]:
    """Read all tensors of weight files, safetensors or PyTorch archives.

    Of an archive only tensors are unpickled, and nothing that is called.

    Args:
        files: Files that were checked to be whole.

    Raises:
        CheckpointError: If a file was cut short or written to since, or has a dtype that torch
            does not compute in.
    """
    tensors: dict[str, Tensor] = {}
    for file in files:
        if file.suffix == ".safetensors":
            tensors |= _read_safetensors(file)
        else:
            tensors |= _read_archive(file)
    return tensors


def _read_archive(file: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = torch.load(
            file, map_location="cpu", weights_only=True, mmap=False
        )
    except UnpicklingError as error:
        # What torch says goes on to advise how to run the code.
        raise CheckpointError(
            f"{file} cannot be loaded: it holds more than tensors, and unpickling that may run "
            "code, which is never done; expected tensors alone, at best as safetensors"
        ) from error
    return tensors


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    with FileIO(file) as stream:
        header_size = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        try:
            entries: dict[str, _Entry] = json.loads(stream.read(header_size))
        except ValueError as error:
            raise _changed(file) from error
        entries.pop("__metadata__", None)
        start = _LENGTH_BYTES + header_size
        return {name: _read_tensor(stream, file, start, entry) for name, entry in entries.items()}


def _read_tensor(stream: FileIO, file: Path, start: int, entry: _Entry) -> Tensor:
    dtype = _DTYPES.get(entry["dtype"])
    if dtype is None:
        raise CheckpointError(
            f"{file} holds values of {entry['dtype']}, expected one of {', '.join(_DTYPES)}"
        )
    first, stop = entry["data_offsets"]
    room = _room(stop - first)
    left = memoryview(room.numpy().data)
    stream.seek(start + first)
    while len(left):
        # The system reads two GiB at once at most.
        count = stream.readinto(left)
        if not count:
            raise _changed(file)
        left = left[count:]
    return room.view(dtype).reshape(entry["shape"])


def _room(size: int) -> Tensor:
    """Return room for so many bytes."""
    if size < _OWN_MAPPING:
        return torch.empty(size, dtype=torch.uint8)
    return torch.from_numpy(passing((-(-size // 4),)).view("u1")[:size])


def _changed(file: Path) -> CheckpointError:
    return CheckpointError(
        f"{file} was cut short or written to while it was read: ingest it when it is whole"
    )
