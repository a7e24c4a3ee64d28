"""Values rounded at capture, and values of narrower dtypes that come back bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from flows.capture.checkpoints import Checkpoint, find_checkpoints
from flows.capture.rounding import rounded
from flows.ingestion import ingest_checkpoint
from flows.replay import replay_model
from flows.running import CaptureOptions
from store import open_store
from store.catalogue import catalogue, find_step
from store.errors import IdentityConflictError, NonFiniteError
from store.repository import Repository


def nearest_bfloat16(values):
    """Round by the bits: half an ulp is added, and to ties only where the last bit is set."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return kept.astype(np.uint32).view(np.float32)


def awkward_values():
    rng = np.random.default_rng(0)
    exponents = rng.integers(-140, 127, 4000)
    spread = (rng.choice([-1, 1], 4000) * rng.uniform(1, 2, 4000) * 2.0**exponents).astype("f4")
    ties = (np.arange(0x3F80_0000, 0x3F90_0000, 0x8000, dtype=np.uint32)).view(np.float32)
    edges = np.array([0, -0.0, 1e-45, -1e-40, 6e-8, 65504, 65519.9, 3.38e38], np.float32)
    return np.concatenate([spread, ties, edges])


def test_bfloat16_is_the_nearest_with_ties_to_even():
    values = awkward_values()
    found = rounded(torch.from_numpy(values), "bfloat16").float().numpy()
    np.testing.assert_array_equal(found.view(np.uint32), nearest_bfloat16(values).view(np.uint32))


def test_float16_is_numpys_subnormals_and_infinities_included():
    values = awkward_values()
    found = rounded(torch.from_numpy(values), "float16").float().numpy()
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16).astype(np.float32)
    assert np.isinf(expected).any()
    assert ((expected != 0) & (np.abs(expected) < 2.0**-14)).any()
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_rounded_step_holds_the_rounded_values(
    store: str, checkpoints: list[Checkpoint], precision
) -> None:
    ingest_checkpoint(store, replace(checkpoints[0], model="exact"), "cats")
    options = CaptureOptions(precision=precision)
    ingest_checkpoint(store, checkpoints[0], "cats", options=options)
    tree = open_store(store)
    exact = tree["cats/exact"].residual.values
    expected = nearest_bfloat16(exact) if precision == "bfloat16" else np.float32(np.float16(exact))
    np.testing.assert_array_equal(tree["cats/tiny"].residual.values, expected)
    assert tree["cats/tiny"].precision.values == [precision]
    repository = Repository.open(store)
    (held,) = catalogue(repository, model="tiny")
    assert (held.steps[0].source_dtype, held.steps[0].precision) == ("float32", precision)
    # Found where it lay, without a word about the place, and run in the same precision.
    (replayed,) = replay_model(repository, held, count=2)
    assert replayed.sound


def test_another_precision_under_the_same_name_is_refused(
    store: str, checkpoints: list[Checkpoint]
) -> None:
    ingest_checkpoint(store, checkpoints[0], "cats")
    rounding = CaptureOptions(precision="bfloat16")
    with pytest.raises(
        IdentityConflictError, match=r'precision: stored "float32", wanted "bfloat16"'
    ):
        ingest_checkpoint(store, checkpoints[0], "cats", options=rounding)
    ingest_checkpoint(store, checkpoints[0], "cats", options=replace(rounding, supersede=True))
    assert not ingest_checkpoint(store, checkpoints[0], "cats", options=rounding).ingested


def scaled(checkpoint: Checkpoint, folder: Path, factor: float, dtype: torch.dtype) -> Checkpoint:
    """Return a copy of a checkpoint in a dtype, with its embeddings multiplied."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(checkpoint.directory)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(factor)
    model.to(dtype).save_pretrained(folder / "tiny" / "checkpoint-5")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint.directory)
    tokenizer.save_pretrained(folder / "tiny" / "checkpoint-5")
    return find_checkpoints(str(folder / "tiny"))[0]


def test_beyond_float16_is_refused_with_the_reason(
    store: str, tmp_path: Path, checkpoints: list[Checkpoint]
) -> None:
    large = scaled(checkpoints[1], tmp_path, 1e7, torch.float32)
    with pytest.raises(NonFiniteError, match=r"residual, layer 0 .* in float16, which ends at"):
        ingest_checkpoint(store, large, "cats", options=CaptureOptions(precision="float16"))
    allowed = CaptureOptions(precision="float16", allow_nonfinite=True)
    ingest_checkpoint(store, large, "cats", options=allowed)
    held = find_step(Repository.open(store), "cats/tiny", 5)
    assert held is not None
    assert held.nonfinite > 0


@pytest.mark.parametrize(
    ("dtype", "factor"),
    [
        (torch.bfloat16, 1e-38),  # subnormal embeddings: the smallest normal number is 1.2e-38
        (torch.float16, 1e-3),  # normal down to 6.1e-5
        (torch.float16, 1e9),  # all infinite
    ],
)
def test_narrow_sources_come_back_bit_for_bit(
    store: str, tmp_path: Path, checkpoints: list[Checkpoint], dtype, factor
) -> None:
    narrow = scaled(checkpoints[1], tmp_path, factor, dtype)
    ingest_checkpoint(store, narrow, "cats", options=CaptureOptions(allow_nonfinite=True))
    model = open_store(store)["cats/tiny"]
    assert narrow.directory is not None
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(narrow.directory, dtype="auto")
    table = plain.get_input_embeddings().weight.detach()
    assert table.dtype == dtype
    rows = torch.from_numpy(model.residual.sel(step=5, layer=0).values)
    own = table[torch.from_numpy(model.token_id.values).long()]
    # Back in its own dtype every bit is there, and widening it again changes nothing.
    assert torch.equal(rows.to(dtype).view(torch.int16), own.view(torch.int16))
    assert torch.equal(rows.view(torch.int32), own.float().view(torch.int32))
    tiny = float(torch.finfo(dtype).smallest_normal)
    assert (((rows != 0) & (rows.abs() < tiny)) | rows.isinf()).any()
