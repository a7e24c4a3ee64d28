"""Tensors in files of other tools, mapped into memory instead of read."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from store.errors import StoreError, UnknownNameError

from .archive import map_member
from .pytorch import StoredTensor, stored_tensors

Array: TypeAlias = npt.NDArray[np.generic]

_SAFETENSORS_TYPES: Final = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
}
_BFLOAT16: Final = "bfloat16"


@dataclass(frozen=True)
class MappedTensor:
    """A tensor of which only what is read is in memory.

    Attributes:
        values: Its elements; bfloat16 as the upper halves of float32, in unsigned integers.
        dtype: ``"float32"``, ``"bfloat16"`` and so on.
    """

    values: Array
    dtype: str

    def rows(self, index: npt.NDArray[np.integer] | slice) -> npt.NDArray[np.float32]:
        """Return part of the first axis as float32: exact, but for float64."""
        part = self.values[index]
        if self.dtype != _BFLOAT16:
            return part.astype(np.float32)
        return (part.astype(np.uint32) << 16).view(np.float32)


Openers: TypeAlias = Mapping[str, Callable[[], MappedTensor]]


def open_tensor(path: Path, name: str) -> MappedTensor:
    """Map one tensor of a file.

    Args:
        path: A ``.npy``, ``.npz``, ``.safetensors``, ``.pt``, ``.pth`` or ``.bin`` file.
        name: Name of the tensor in it; may be empty where there is only one.

    Raises:
        StoreError: If the file is not there, not what its suffix says, or holds no floats.
        UnknownNameError: If there is no such tensor.
    """
    if path.suffix not in _OPENERS:
        raise StoreError(f"{path} has the suffix {path.suffix!r}; expected {', '.join(_OPENERS)}")
    try:
        found = _OPENERS[path.suffix](path)
        if not name and len(found) == 1:
            (name,) = found
        if name not in found:
            raise UnknownNameError("tensor", name, found, str(path))
        return found[name]()
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise StoreError(f"{path} cannot be read as {path.suffix}: {error}") from error


def _open_npy(path: Path) -> Openers:
    return {"": lambda: _of_numpy(np.load(path, mmap_mode="r"))}


def _of_numpy(values: Array) -> MappedTensor:
    if values.dtype.kind != "f":
        raise ValueError(f"expected floating-point numbers, got {values.dtype}")
    return MappedTensor(values, str(values.dtype))


def _open_npz(path: Path) -> Openers:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".npy")]
    return {name.removesuffix(".npy"): partial(_npz_member, path, name) for name in names}


def _npz_member(path: Path, name: str) -> MappedTensor:
    content = map_member(path, name)
    header = io.BytesIO(content[: 1 << 16].tobytes())
    version = np.lib.format.read_magic(header)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(header)
    else:
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(header)
    values = content[header.tell() :].view(dtype)
    return _of_numpy(values.reshape(shape, order="F" if fortran else "C"))


def _open_safetensors(path: Path) -> Openers:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    return {
        name: partial(_safetensor, path, 8 + length, entry)
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _safetensor(path: Path, start: int, entry: Mapping[str, object]) -> MappedTensor:
    dtype = _SAFETENSORS_TYPES.get(str(entry["dtype"]))
    if dtype is None:
        raise ValueError(f"expected floating-point numbers, got {entry['dtype']}")
    offsets, shape = entry["data_offsets"], entry["shape"]
    assert isinstance(offsets, list)
    assert isinstance(shape, list)
    values = np.memmap(
        path, dtype=_on_disk(dtype), mode="r", offset=start + offsets[0], shape=tuple(shape)
    )
    return MappedTensor(values, dtype)


def _on_disk(dtype: str) -> np.dtype[np.generic]:
    return np.dtype(np.uint16 if dtype == _BFLOAT16 else dtype).newbyteorder("<")


def _open_torch(path: Path) -> Openers:
    tensors = stored_tensors(path)
    return {name: partial(_torch_tensor, path, tensor) for name, tensor in tensors.items()}


def _torch_tensor(path: Path, tensor: StoredTensor) -> MappedTensor:
    elements = map_member(path, tensor.member).view(_on_disk(tensor.dtype))
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    if min(tensor.strides, default=1) < 0 or tensor.offset + last >= len(elements):
        raise ValueError("a tensor reaches past the end of its storage")
    strides = [stride * elements.itemsize for stride in tensor.strides]
    values = np.lib.stride_tricks.as_strided(
        elements[tensor.offset :], tensor.shape, strides, writeable=False
    )
    return MappedTensor(values, tensor.dtype)


_OPENERS: Final[Mapping[str, Callable[[Path], Openers]]] = {
    ".npy": _open_npy,
    ".npz": _open_npz,
    ".safetensors": _open_safetensors,
    ".pt": _open_torch,
    ".pth": _open_torch,
    ".bin": _open_torch,
}
