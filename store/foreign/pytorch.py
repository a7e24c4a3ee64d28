"""Tensors in the files of ``torch.save``, without torch and without running what a pickle says."""

from __future__ import annotations

import collections
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

_STORAGE_TYPES: Final = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
}


@dataclass(frozen=True)
class StoredTensor:
    """Where the elements of a tensor lie in an archive.

    Attributes:
        member: Name of the archive's member.
        dtype: ``"float32"``, ``"bfloat16"`` and so on.
        offset: First element.
        shape: Sizes.
        strides: Steps between elements along each dimension, in elements.
    """

    member: str
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """List the floating-point tensors of a file by their names.

    A single tensor has an empty name, those of a dictionary their keys, those of a list their
    numbers, and nested ones both with a dot between, as ``hidden_states.3``.

    Raises:
        ValueError: If the file is of torch before 1.6, or holds more than tensors in dictionaries,
            lists and tuples.
    """
    with zipfile.ZipFile(path) as archive:
        listings = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(listings) != 1:
            raise ValueError("it is an archive, but not one of torch.save")
        with archive.open(listings[0]) as file:
            try:
                content = _TensorUnpickler(file, listings[0].removesuffix("data.pkl")).load()
            except pickle.UnpicklingError as error:
                raise ValueError(str(error)) from error
    return {name.strip("."): tensor for name, tensor in _flattened("", content)}


def _flattened(prefix: str, content: object) -> Iterator[tuple[str, StoredTensor]]:
    if isinstance(content, StoredTensor):
        yield prefix, content
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield from _flattened(f"{prefix}.{key}", value)
    elif isinstance(content, list | tuple):
        for number, value in enumerate(content):
            yield from _flattened(f"{prefix}.{number}", value)


class _TensorUnpickler(pickle.Unpickler):
    """Understands tensors in dictionaries, lists and tuples, and refuses everything else."""

    def __init__(self, file: IO[bytes], prefix: str) -> None:
        super().__init__(file)
        self._prefix = prefix

    def persistent_load(self, pid: tuple[str, str | None, str, str, int]) -> tuple[str, str | None]:
        """Return the member and dtype of a storage, and leave its elements where they are."""
        _, dtype, key, _, _ = pid
        return f"{self._prefix}data/{key}", dtype

    def find_class(self, module: str, name: str) -> object:
        """Return a stand-in for what makes up a tensor."""
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch" and name.endswith("Storage"):
            return _STORAGE_TYPES.get(name)
        raise pickle.UnpicklingError(f"it refers to {module}.{name}; expected tensors only")


def _tensor(
    storage: tuple[str, str | None],
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    *_flags: object,
) -> StoredTensor | None:
    """Return a tensor as ``torch._utils._rebuild_tensor_v2`` is asked to, None unless of floats."""
    member, dtype = storage
    return None if dtype is None else StoredTensor(member, dtype, offset, shape, strides)
