"""Members of zip archives as arrays on the disk: ``.npz`` and the files of ``torch.save``."""

from __future__ import annotations

import shutil
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

_LOCAL_HEADER: Final = struct.Struct("<26xHH")
"""The lengths of a member's name and extra field, at the end of its local header."""


def map_member(path: Path, member: str) -> npt.NDArray[np.uint8]:
    """Map the bytes of a member; one that is compressed is unpacked to a temporary file first.

    Raises:
        KeyError: If there is no such member.
    """
    with zipfile.ZipFile(path) as archive:
        item = archive.getinfo(member)
        if item.compress_type == zipfile.ZIP_STORED:
            with path.open("rb") as file:
                file.seek(item.header_offset)
                name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
            start = item.header_offset + _LOCAL_HEADER.size + name + extra
            return _mapped(path, start, item.file_size)
        with tempfile.NamedTemporaryFile() as plain, archive.open(item) as packed:
            shutil.copyfileobj(packed, plain)
            plain.flush()
            # The mapping holds the file open, so that it may be unlinked.
            return _mapped(Path(plain.name), 0, item.file_size)


def _mapped(path: Path, start: int, size: int) -> npt.NDArray[np.uint8]:
    if size == 0:
        return np.empty(0, dtype=np.uint8)
    return np.memmap(path, dtype=np.uint8, mode="r", offset=start, shape=(size,))
