"""Ways to keep one tensor of activations on a disk: ours and the usual ones."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zarr
from safetensors import safe_open
from safetensors.numpy import save_file

from benchmarks.activations import PATH, Values, prepare, store_step
from store.layout import activation_codecs, chunk_rows
from store.repository import Repository
from store.slab import Slab, slabs


@dataclass(frozen=True)
class Contender:
    """One way to write and read a tensor (layer, token, dim).

    Attributes:
        write: Writes it into a directory.
        read: Reads all of it, layer by layer, and returns the sum of a few values.
        token: Reads one token of one layer, where that can be of a tensor opened by `read`.
        create: What is done once, before the first tensor of many is written.
    """

    write: Callable[[Path, Values], None]
    read: Callable[[Path], float]
    token: Callable[[Path, int, int], Values]
    create: Callable[[Path, tuple[int, int, int]], object] = lambda _place, _shape: None


def _touch(layer: Values) -> float:
    return float(layer[::1024].sum())


def _npy() -> Contender:
    def write(place: Path, values: Values) -> None:
        np.save(place / "values.npy", values)

    def read(place: Path) -> float:
        return sum(_touch(layer) for layer in np.load(place / "values.npy"))

    def token(place: Path, layer: int, row: int) -> Values:
        return np.array(np.load(place / "values.npy", mmap_mode="r")[layer, row])

    return Contender(write, read, token)


def _safetensors() -> Contender:
    def write(place: Path, values: Values) -> None:
        save_file({"values": values}, place / "values.safetensors")

    def read(place: Path) -> float:
        with safe_open(place / "values.safetensors", framework="np") as file:
            return sum(_touch(layer) for layer in file.get_tensor("values"))

    def token(place: Path, layer: int, row: int) -> Values:
        with safe_open(place / "values.safetensors", framework="np") as file:
            return file.get_slice("values")[layer, row]

    return Contender(write, read, token)


def _hdf5() -> Contender:
    import h5py

    def write(place: Path, values: Values) -> None:
        with h5py.File(place / "values.h5", "w") as file:
            rows = chunk_rows(values.shape[2], values.shape[1])
            file.create_dataset("values", data=values, chunks=(1, rows, values.shape[2]))

    def read(place: Path) -> float:
        with h5py.File(place / "values.h5") as file:
            return sum(_touch(file["values"][layer]) for layer in range(len(file["values"])))

    def token(place: Path, layer: int, row: int) -> Values:
        with h5py.File(place / "values.h5") as file:
            return file["values"][layer, row]

    return Contender(write, read, token)


def _zarr(codecs: object) -> Contender:
    opened: dict[Path, zarr.Array] = {}

    def write(place: Path, values: Values) -> None:
        rows = chunk_rows(values.shape[2], values.shape[1])
        array = zarr.create_array(
            place / "values",
            shape=values.shape,
            chunks=(1, rows, values.shape[2]),
            dtype="float32",
            compressors=codecs,
        )
        array[:] = values

    def read(place: Path) -> float:
        array = opened[place] = zarr.open_array(place / "values", mode="r")
        return sum(_touch(np.asarray(array[layer])) for layer in range(array.shape[0]))

    def token(place: Path, layer: int, row: int) -> Values:
        return np.asarray(opened[place][layer, row])

    return Contender(write, read, token)


def _actlas() -> Contender:
    opened: dict[Path, Repository] = {}
    layers: dict[Path, list[Slab]] = {}

    def create(place: Path, shape: tuple[int, int, int]) -> None:
        opened[place] = prepare(place / "store", shape)

    def write(place: Path, values: Values) -> None:
        store_step(opened[place], 0, values)

    def read(place: Path) -> float:
        total = 0.0
        layers[place] = slabs(opened[place], PATH)
        for slab in layers[place]:
            for _, rows in slab.blocks():
                total += _touch(rows)
        return total

    def token(place: Path, layer: int, row: int) -> Values:
        return layers[place][layer].rows(np.array([row]))[0]

    return Contender(write, read, token, create)


def contenders() -> dict[str, Contender]:
    """Return the contenders by name, the yardstick first; those not installed are left out."""
    found = {
        "np.save": _npy(),
        "actlas": _actlas(),
        "safetensors": _safetensors(),
        "zarr, our codec": _zarr(activation_codecs()),
        "zarr, default": _zarr("auto"),
    }
    if importlib.util.find_spec("h5py"):
        found["h5py"] = _hdf5()
    return found
