"""Exports that ``datasets.load_from_disk`` opens, streamed layer by layer."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import xarray as xr

from store.errors import StoreError
from store.identity import JSON
from store.schema import STEP, TOKEN
from store.slab import Slab, token_table

from .copied import Copied, Tell, new_file
from .selection import Selection

if TYPE_CHECKING:
    from datasets import Features

VALUES: Final = "values"


def export_datasets(selection: Selection, directory: Path, tell: Tell) -> list[Path]:
    """Write a dataset a model and site: a row a token of a step and layer, its values a list.

    The heads of a site that has them follow one another in the list. A step and layer is one
    Arrow file, written block by block and mapped into memory by whoever reads it.
    """
    if importlib.util.find_spec("datasets") is None:
        raise StoreError("exporting to Hugging Face Datasets needs datasets: pip install datasets")
    written = []
    copied, chosen = selection.counted_slabs(tell)
    for path, slabs in chosen:
        tokens = token_table(selection.repository.uri, path, selection.snapshot)
        by_site = sorted(slabs, key=lambda slab: slab.site)
        for site, group in groupby(by_site, key=lambda slab: slab.site):
            target = new_file(directory / path / site)
            target.mkdir()
            _write_dataset(target, tokens, list(group), copied)
            written.append(target)
    return written


def _write_dataset(target: Path, tokens: xr.Dataset, slabs: Sequence[Slab], copied: Copied) -> None:
    from datasets import DatasetInfo

    features = _features(tokens, slabs[0])
    names = [f"data-{number:05d}-of-{len(slabs):05d}.arrow" for number in range(len(slabs))]
    for name, slab in zip(names, slabs, strict=True):
        _write_shard(target / name, tokens, slab, features, copied)
    facts = {"path": slabs[0].path, "snapshot": slabs[0].snapshot, **tokens.attrs}
    info = DatasetInfo(description=json.dumps(facts, sort_keys=True), features=features)
    info.write_to_directory(str(target))
    # What `Dataset.save_to_disk` would write, which takes a copy of all rows first.
    state: dict[str, JSON] = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": slabs[0].snapshot,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    (target / "state.json").write_text(json.dumps(state, indent=2, sort_keys=True))


def _features(tokens: xr.Dataset, slab: Slab) -> Features:
    from datasets import Features, List, Value

    depth = {} if slab.label is None else {slab.label[0]: Value("int32")}
    columns = {str(name): Value(str(column.dtype)) for name, column in tokens.items()}
    width = int(np.prod(slab.shape)) // slab.n_tokens
    rows = List(Value("float32"), length=width)
    return Features({STEP: Value("int64"), **depth, **columns, VALUES: rows})


def _write_shard(
    target: Path, tokens: xr.Dataset, slab: Slab, features: Features, copied: Copied
) -> None:
    import pyarrow as pa

    schema = features.arrow_schema
    axis = slab.dims.index(TOKEN)
    labels = {STEP: slab.step} | ({} if slab.label is None else dict([slab.label]))
    with pa.OSFile(str(target), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for start, block in copied.blocks(slab):
            rows = np.moveaxis(block, axis, 0).reshape(block.shape[axis], -1)
            here = slice(start, start + len(rows))
            columns = {name: np.full(len(rows), label) for name, label in labels.items()}
            columns |= {str(name): column.values[here] for name, column in tokens.items()}
            arrays = {
                name: pa.array(column, schema.field(name).type) for name, column in columns.items()
            }
            values = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
            arrays[VALUES] = values.cast(schema.field(VALUES).type)
            writer.write_batch(pa.record_batch([arrays[name] for name in schema.names], schema))
