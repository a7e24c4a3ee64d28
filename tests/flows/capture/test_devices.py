"""Several devices, without one: stand-ins for what only a GPU does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers.modeling_utils
from torch import Tensor

import flows.capture.affordable
import flows.capture.rows
import flows.capture.window
import flows.sweep
from flows.capture import Tokens, find_checkpoints
from flows.capture.affordable import batch_size
from flows.capture.blocks import RowBlock
from flows.capture.devices import chosen_device, nth_device
from flows.capture.errors import CheckpointError, UnknownDeviceError
from flows.capture.forward import capture, capture_stacks
from flows.capture.parts import Part
from flows.capture.picking import Picked
from flows.capture.weights import LoadedModel, load_model
from flows.running import CaptureOptions
from flows.sweep import Sweep

Build = Callable[..., LoadedModel]

GPU = torch.device("cuda:0")


def pretend_three_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    names = SimpleNamespace(name="none", total_memory=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _number: names)


def test_processes_take_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_three_gpus(monkeypatch)
    assert [nth_device("auto", number) for number in range(4)] == [
        "cuda:0",
        "cuda:1",
        "cuda:2",
        "cuda:0",
    ]
    assert nth_device("cuda", 1) == "cuda:1"
    # A device that was named is the one that is used.
    assert (nth_device("cuda:2", 1), nth_device("cpu", 1)) == ("cuda:2", "cpu")
    assert chosen_device("auto").type == "cuda"
    with pytest.raises(UnknownDeviceError, match="no device 'cuda:3' here"):
        chosen_device("cuda:3")


def test_without_a_gpu_every_process_has_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert nth_device("auto", 1) == "auto"
    assert chosen_device("auto").type == "cpu"


def test_each_worker_of_a_sweep_runs_on_its_own_gpu(
    saved_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = find_checkpoints(str(saved_model))
    pretend_three_gpus(monkeypatch)
    sweep = Sweep("unused", [one, replace(one, step=1)], "ids", CaptureOptions(), workers=2)
    used: list[str] = []

    def noting(*_: object, options: CaptureOptions) -> None:
        used.append(options.device)

    monkeypatch.setattr(flows.sweep, "ingest_checkpoint", noting)
    for number, checkpoint in enumerate(sweep.checkpoints):
        monkeypatch.setattr(flows.sweep, "_worker", number)
        flows.sweep._run_one(sweep, checkpoint)
    assert used == ["cuda:0", "cuda:1"]


def test_a_model_over_several_devices_gives_the_same_rows(
    saved_model: Path, ragged_tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkpoint,) = find_checkpoints(str(saved_model))
    whole = load_model(checkpoint, device="cpu")
    here = ["embed_in", "emb_dropout", "layers.0", "layers.2", "final_layer_norm", "rotary_emb"]
    # The second block is elsewhere: accelerate brings it in whenever it is called.
    monkeypatch.setattr(
        transformers.modeling_utils,
        "_get_device_map",
        lambda *_: {**dict.fromkeys(here, "cpu"), "layers.1": "disk"},
    )
    split = load_model(checkpoint, device="split")
    assert {device.type for device in split.devices} == {"cpu", "meta"}
    sites = ["residual", "mlp_output", "final_norm", "query"]
    rows = [
        next(capture(loaded, ragged_tokens, sites, block_rows=171)).values
        for loaded in (whole, split)
    ]
    for site in sites:
        np.testing.assert_array_equal(rows[0][site], rows[1][site])


def test_several_devices_need_accelerate(
    saved_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    (checkpoint,) = find_checkpoints(str(saved_model))
    with pytest.raises(CheckpointError, match="--device split needs accelerate"):
        load_model(checkpoint, device="split")


class Stream:
    """What a GPU does behind the back of the process: copies wait until someone waits for them."""

    def __init__(self) -> None:
        self.begun: list[Callable[[], None]] = []
        self.events = 0
        self.most_events = 0

    def copy(self, picked: Picked, values: Tensor, *where: object) -> None:
        # Values are those at the time at which the copy was begun, as on a stream.
        taken = values.clone()
        self.begun.append(lambda: _COPY(picked, taken, *where))

    def event(self) -> Event:
        return Event(self)


class Event:
    """The end of the copies that were begun before it."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._begun = stream, list[Callable[[], None]]()

    def record(self, _stream: object) -> None:
        stream = self._stream
        self._begun, stream.begun = stream.begun, []
        stream.events += 1
        stream.most_events = max(stream.most_events, stream.events)

    def synchronize(self) -> None:
        self._stream.events -= 1
        for copy in self._begun:
            copy()


@pytest.mark.parametrize(
    ("free", "pinned", "expected"),
    [
        (1 << 40, 1 << 40, 16384),
        # 64 · 32 float32 values a token are to fit half of what is free.
        (2 * 8192 * 300 + 16383, 1 << 40, 300),
        # 4 layers · 32 float32 values a token.
        (1 << 40, 512 * 70 + 511, 70),
        (0, 1 << 40, 1),
    ],
)
def test_a_batch_fits_the_memory_that_is_free(
    tiny_model: Build, monkeypatch: pytest.MonkeyPatch, free: int, pinned: int, expected: int
) -> None:
    loaded = tiny_model("gpt2")
    assert (loaded.stack.width, loaded.stack.n_blocks) == (32, 3)
    # A model over two GPUs runs where less is free; what is left on the CPU is of no account.
    frees = {GPU: 2 * free, torch.device("cuda:1"): free}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (frees[device], 1 << 40))
    monkeypatch.setattr(flows.capture.affordable, "_PINNED_BYTES", pinned)
    assert batch_size(loaded, ["residual"]) == 1024
    monkeypatch.setattr(LoadedModel, "device", property(lambda _: GPU))
    monkeypatch.setattr(LoadedModel, "devices", property(lambda _: {*frees, torch.device("cpu")}))
    assert batch_size(loaded, ["residual"]) == expected
    if expected == 70:
        assert batch_size(loaded, ["residual"], layers=[0]) == 4 * 70 + 3


_COPY = Picked.copy


def test_buffers_are_reused_only_once_their_copies_are_done(
    tiny_model: Build, ragged_tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = tiny_model("gpt2")
    monkeypatch.setattr(flows.capture.affordable, "_WINDOW_BATCHES", 1)
    part = Part(loaded, ragged_tokens, ["residual", "final_norm"], 16, piece_bytes=1 << 12)

    def rows() -> list[RowBlock]:
        return list(capture_stacks([part], batch_tokens=40))

    expected = rows()
    stream = Stream()
    monkeypatch.setattr(flows.capture.window, "_on_device", lambda _loaded, batch: batch.inputs)
    monkeypatch.setattr(LoadedModel, "device", property(lambda _: GPU))
    monkeypatch.setattr(LoadedModel, "devices", property(lambda _: {GPU}))
    monkeypatch.setattr(Picked, "copy", lambda picked, *arguments: stream.copy(picked, *arguments))
    monkeypatch.setattr(torch.cuda, "Event", stream.event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: None)
    pinned: list[bool] = []
    empty = flows.capture.rows._empty

    def ordinary(shape: tuple[int, ...], *, pinned_: bool) -> Tensor:
        pinned.append(pinned_)
        return empty(shape, pinned=False)

    monkeypatch.setattr(
        flows.capture.rows, "_empty", lambda shape, *, pinned: ordinary(shape, pinned_=pinned)
    )
    got = rows()
    # Two windows take turns, each with pinned buffers for two pairs of layers and the final norm,
    # which it has again and again: those of one are copied while the next is computed.
    assert pinned == [True] * 2 * 3
    assert stream.most_events == 2
    assert not stream.begun
    assert stream.events == 0
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert (one.token_start, one.token_stop, one.depth) == (
            other.token_start,
            other.token_stop,
            other.depth,
        )
        for site, values in one.values.items():
            np.testing.assert_array_equal(values, other.values[site])
