"""Exports of rows, streamed layer by layer: safetensors and Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from store.errors import StoreError
from store.schema import TOKEN
from store.slab import Slab, token_table

from .copied import Copied, Tell, new_file
from .selection import Selection

_TENSOR_TYPES: Final = {"float32": "F32", "int32": "I32", "bool": "BOOL"}
_ALIGNMENT: Final = 8


def export_safetensors(selection: Selection, directory: Path, tell: Tell) -> list[Path]:
    """Write a file a model and step: ``residual.layer_3`` (token, dim), and token coordinates."""
    written = []
    copied, chosen = selection.counted_slabs(tell)
    for path, slabs in chosen:
        tokens = token_table(selection.repository.uri, path, selection.snapshot)
        for step, group in groupby(slabs, key=lambda slab: slab.step):
            target = new_file(directory / path / f"step_{step}.safetensors")
            facts = {"path": path, "step": step, "snapshot": selection.snapshot, **tokens.attrs}
            _write_tensors(target, tokens, list(group), facts, copied)
            written.append(target)
    return written


def _write_tensors(
    target: Path,
    tokens: xr.Dataset,
    slabs: Sequence[Slab],
    facts: dict[str, object],
    copied: Copied,
) -> None:
    """Write the format by hand, since its library wants every tensor in memory at once."""
    columns = sorted(tokens.data_vars.values(), key=lambda one: -one.dtype.itemsize)
    shapes = [(_tensor_name(slab), "float32", slab.shape) for slab in slabs]
    shapes += [(str(column.name), str(column.dtype), column.shape) for column in columns]
    header: dict[str, object] = {"__metadata__": {key: _text(facts[key]) for key in facts}}
    offset = 0
    for name, dtype, shape in shapes:
        end = offset + np.dtype(dtype).itemsize * int(np.prod(shape))
        kind = _TENSOR_TYPES[dtype]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % _ALIGNMENT)
    with target.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for slab in slabs:
            for part in _in_order(slab, copied):
                file.write(part.tobytes())
        for column in columns:
            file.write(column.values.tobytes())


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _in_order(slab: Slab, copied: Copied) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the values of a slab as they lie in memory: heads come before tokens."""
    if slab.dims[0] == TOKEN:
        for _, values in copied.blocks(slab):
            yield values
    else:
        values = slab.rows(np.arange(slab.n_tokens))
        yield values
        copied.add(values)


def _tensor_name(slab: Slab) -> str:
    return slab.site if slab.label is None else f"{slab.site}.{slab.label[0]}_{slab.label[1]}"


def export_parquet(selection: Selection, directory: Path, tell: Tell) -> list[Path]:
    """Write a file a model, step, site and layer: a row a token, its values a list of floats.

    The heads of a site that has them follow one another in the list.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise StoreError("exporting to Parquet needs pyarrow: pip install pyarrow") from error
    written = []
    copied, chosen = selection.counted_slabs(tell)
    for path, slabs in chosen:
        tokens = token_table(selection.repository.uri, path, selection.snapshot)
        for slab in slabs:
            name = f"{_tensor_name(slab)}.parquet"
            target = new_file(directory / path / f"step_{slab.step}" / name)
            _write_table(target, tokens, slab, copied)
            written.append(target)
    return written


def _write_table(target: Path, tokens: xr.Dataset, slab: Slab, copied: Copied) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    axis = slab.dims.index(TOKEN)
    width = int(np.prod(slab.shape)) // slab.n_tokens
    names = [str(name) for name in tokens]
    fields = [pa.field(name, pa.from_numpy_dtype(tokens[name].dtype)) for name in names]
    facts = {"path": slab.path, "step": slab.step, "snapshot": slab.snapshot, **tokens.attrs}
    schema = pa.schema(
        [*fields, pa.field("values", pa.list_(pa.float32(), width))],
        metadata={key: _text(value) for key, value in facts.items()},
    )
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for start, block in copied.blocks(slab):
            rows = np.moveaxis(block, axis, 0).reshape(-1, width)
            here = slice(start, start + len(rows))
            columns = [pa.array(tokens[name].values[here]) for name in names]
            values = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), width)
            writer.write_batch(pa.record_batch([*columns, values], schema=schema))
