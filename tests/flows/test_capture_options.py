"""What a user pays for when he ingests: sites, rows and layers of his choice."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import flows.passes
from analysis.compute import measure
from flows.capture.checkpoints import Checkpoint
from flows.cli import actlas
from flows.console import byte_size
from flows.ingestion import ingest_checkpoint
from flows.running import CaptureOptions
from store import open_metrics, open_store
from store.catalogue import find_step
from store.errors import IdentityConflictError
from store.repository import Repository
from store.verify import census

ACTIVATION = "module:layers.{i}.mlp.act"
METRICS = ("average_cosine", "average_cosine_within", "curvature")


@pytest.fixture
def run(store: str) -> functools.partial[object]:
    return functools.partial(CliRunner().invoke, actlas, env={"ACTLAS_STORE": store})


def test_a_module_is_stored_measured_and_replayed(store: str, run, run_folder) -> None:
    folder = str(run_folder / "checkpoint-5")
    arguments = ["ingest", folder, "--corpus", "cats", "--sites", f"residual,{ACTIVATION}"]
    done = run([*arguments, "--plan"])
    assert done.exit_code == 0, done.output
    done = run(arguments)
    assert done.exit_code == 0, done.output
    model = open_store(store)["cats/tiny"].to_dataset()
    assert model[ACTIVATION].dims == ("step", "block", "token", f"{ACTIVATION}_unit")
    assert model[ACTIVATION].shape[1] == 2
    assert model[ACTIVATION].shape[3] == 32
    assert float(model[ACTIVATION].sel(step=5, block=2).min()) > -0.2  # GELU has a floor
    assert list(census(Repository.open(store), "cats/tiny")) == []
    report = measure(
        store, "cats/tiny", metrics=["average_cosine", "stable_rank"], sites=[ACTIVATION]
    )
    assert report.slabs == 2
    cosine = open_metrics(store, corpus="cats")[f"{ACTIVATION}_average_cosine"]
    assert np.isfinite(cosine.sel(population="content", step=5)).all()
    for command in (["verify", "--replay", "2"], ["ls"]):
        done = run([*command, *(["--source", folder] if "--replay" in command else [])])
        assert done.exit_code == 0, done.output
    assert "stored already" in run(arguments).output


@pytest.mark.parametrize(
    "choice", [["--tokens", "last"], ["--tokens", "mean"], ["--tokens-per-sequence", "3"]]
)
def test_rows_of_choice_are_kept_and_replayed(store: str, run, run_folder, choice) -> None:
    folder = str(run_folder / "checkpoint-5")
    arguments = ["ingest", folder, "--corpus", "cats", *choice]
    assert run(arguments).exit_code == 0
    model = open_store(store)["cats/tiny"].to_dataset()
    assert model.sizes["token"] == (60 if "3" in choice else 20)
    done = run(["verify", "--replay", "3", "--source", folder])
    assert done.exit_code == 0, done.output
    if "last" in choice:
        done = run(["compute", *METRICS, "--plan"])
        told = "left out, since not every row is kept: average_cosine_within, curvature"
        assert told in done.output
        refused = run(["compute", "curvature"])
        assert refused.exit_code == 1
        assert "curvature: needs whole sequences, of which cats/tiny keeps" in refused.stderr
    assert "stored already" in run(arguments).output
    other = run(["ingest", folder, "--corpus", "cats"])
    assert other.exit_code == 1
    assert "rows: stored {" in other.stderr


def test_layers_of_choice_keep_their_numbers(store: str, run, run_folder) -> None:
    folder = str(run_folder / "checkpoint-5")
    arguments = ["ingest", folder, "--corpus", "cats", "--layers", "0,2"]
    arguments += ["--sites", "residual,mlp_output"]
    done = run(arguments)
    assert done.exit_code == 0, done.output
    whole = run(["ingest", folder, "--corpus", "cats", "--name", "whole"])
    assert whole.exit_code == 0, whole.output
    model = open_store(store)["cats/tiny"].to_dataset()
    assert list(model.layer.values) == [0, 2]
    assert list(model.block.values) == [2]
    assert list(model.relative_depth.values) == [0, 1]
    every = open_store(store)["cats/whole"].residual
    np.testing.assert_array_equal(model.residual.sel(layer=2), every.sel(layer=2))
    done = run(["verify", "--replay", "2", "--source", folder, "cats/tiny"])
    assert done.exit_code == 0, done.output
    sites = ["residual", "mlp_output"]
    assert measure(store, "cats/tiny", metrics=["average_cosine"], sites=sites).slabs == 3
    cosine = open_metrics(store, corpus="cats")
    assert list(cosine.layer.values) == [0, 2]
    assert np.isfinite(cosine.average_cosine.sel(population="content")).all()
    beyond = run(["ingest", folder, "--corpus", "cats", "--layers", "3", "--name", "other"])
    assert "layer 3: the model has layers 0 to 2" in beyond.stderr


def test_further_layers_are_run_alone(store: str, run, run_folder, monkeypatch) -> None:
    folder, other = (str(run_folder / name) for name in ("checkpoint-5", "checkpoint-10"))
    ingest = ["ingest", "--corpus", "cats", "--sites", "residual,mlp_output"]
    assert run([*ingest, folder, "--name", "whole"]).exit_code == 0
    every = open_store(store)["cats/whole"].to_dataset()
    asked = []
    original = flows.passes._rows
    monkeypatch.setattr(
        flows.passes,
        "_rows",
        lambda part, *rest: asked.append((tuple(part.sites), part.layers)) or original(part, *rest),
    )

    def held():
        return open_store(store)["cats/tiny"].to_dataset()

    stored = run([*ingest, folder, "--layers", "1:3"])
    # Both blocks, whose labels are 1 and 2, so that they are all there are.
    assert "tiny step 5: stored residual[1:3], mlp_output, " in stored.stdout
    before = step_5(store)
    first = held().residual.sel(step=5).values
    plan = json.loads(run([*ingest, folder, "--layers", "0:2", "--plan", "--json"]).stdout)
    # Layer 0 of the residual stream is all that is lacking: 16 float32 values a token.
    assert plan["raw_bytes"] == held().sizes["token"] * 16 * 4
    added = run([*ingest, folder, "--layers", "0:2"])
    assert added.exit_code == 0, added.output
    assert (
        f"tiny step 5: added residual[0], {byte_size(step_5(store) - before)}, in " in added.stdout
    )
    assert f"; it holds residual, mlp_output, {byte_size(step_5(store))} now" in added.stdout
    assert asked[-1] == (("residual",), (0,))
    assert asked[0] == (("residual", "mlp_output"), (1, 2))
    assert list(held().layer.values) == [0, 1, 2]
    np.testing.assert_array_equal(held().residual.sel(step=5, layer=[1, 2]), first)
    for site in ("residual", "mlp_output"):
        np.testing.assert_array_equal(held()[site].sel(step=5), every[site].sel(step=5))
    assert "stored already" in run([*ingest, folder]).output
    assert run([*ingest, other, "--layers", "2"]).exit_code == 0
    assert np.isnan(held().residual.sel(step=10, layer=[0, 1])).all()
    assert np.isfinite(held().residual.sel(step=10, layer=2)).all()
    assert "residual[2] mlp_output[2]" in run(["ls", "cats/tiny"]).output
    assert "step 10 holds other sites or layers than the rest" in run(["ls"]).output
    sites = ["residual", "mlp_output"]
    # Of step 5 three layers and two blocks, of step 10 one of each.
    assert measure(store, "cats/tiny", metrics=["average_cosine"], sites=sites).slabs == 7
    arguments = ["verify", "cats/tiny", "--replay", "2", "--source", str(run_folder)]
    done = run(arguments)
    assert done.exit_code == 0, done.output
    spoil(store, "cats/tiny", step=10, site="mlp_output", depth=1)
    assert run(["verify", "cats/tiny"]).exit_code == 1
    repaired = run(["repair", "cats/tiny", "--source", str(run_folder)])
    assert repaired.exit_code == 0, repaired.output
    assert run(arguments).exit_code == 0
    assert np.isnan(held().mlp_output.sel(step=10, block=1)).all()
    assert run([*ingest, other]).exit_code == 0
    assert asked[-1] == (("residual", "mlp_output"), (0, 1))
    assert np.isfinite(held().mlp_output).all()
    # Two layers and a block came to step 10, and the layer and the block it had were repaired.
    assert measure(store, "cats/tiny", metrics=["average_cosine"], sites=sites).slabs == 5


def test_a_further_site_is_told_as_what_was_added(store: str, run, run_folder) -> None:
    ingest = ["ingest", str(run_folder / "checkpoint-5"), "--corpus", "cats"]
    assert run(ingest).exit_code == 0
    before = step_5(store)
    (told,) = json.loads(run([*ingest, "--sites", "residual,query", "--json"]).stdout)
    assert told["added"] == ["query"]
    assert told["holds"] == ["residual", "final_norm", "query"]
    assert (told["added_bytes"], told["added_tokens"]) == (told["stored_bytes"] - before, 0)
    (again,) = json.loads(run([*ingest, "--json"]).stdout)
    assert (again["added"], again["added_bytes"]) == ([], 0)
    replaced = [*ingest, "--dtype", "bfloat16", "--supersede", "--json"]
    (other,) = json.loads(run(replaced).stdout)
    assert other["added"] == ["residual", "final_norm"]
    assert other["added_bytes"] == other["stored_bytes"] > 0


def test_steps_that_lack_a_site_are_noted(store: str, run, run_folder) -> None:
    for step, sites in ((0, "residual"), (5, "residual"), (10, "residual,final_norm")):
        folder = str(run_folder / f"checkpoint-{step}")
        assert run(["ingest", folder, "--corpus", "cats", "--sites", sites]).exit_code == 0
    assert "step 10 holds other sites or layers than the rest" in run(["ls"]).output


def step_5(store: str) -> int:
    """Return the encoded bytes of step 5."""
    held = find_step(Repository.open(store), "cats/tiny", 5)
    assert held is not None
    return held.stored_bytes


def spoil(store: str, path: str, *, step: int, site: str, depth: int) -> None:
    """Change the checksums that are recorded for one layer or block."""
    session, root = Repository.open(store).write()
    group = root[path]
    slot = group["step"][:].tolist().index(step)
    group[f"{site}_checksum"][slot, depth] += 1
    Repository.open(store).commit(session, "spoil it", rebase=False)


def test_a_codec_of_choice_is_declared_and_holds_the_same_values(
    store: str, run, run_folder
) -> None:
    folder = str(run_folder / "checkpoint-5")
    arguments = ["ingest", folder, "--corpus", "cats", "--sites", "residual"]
    assert run(arguments).exit_code == 0
    done = run([*arguments, "--name", "fast", "--codec", "lz4"])
    assert done.exit_code == 0, done.output
    group = Repository.open(store).read()["cats/fast"]
    codecs = group["residual"].metadata.to_dict()["codecs"]
    (blosc,) = (codec["configuration"] for codec in codecs if codec["name"] == "blosc")
    assert (blosc["cname"], blosc["shuffle"]) == ("lz4", "bitshuffle")
    tree = open_store(store)
    one, two = (tree[f"cats/{name}"].residual for name in ("tiny", "fast"))
    np.testing.assert_array_equal(one.values, two.values)
    np.testing.assert_array_equal(one[0, 1, 7].values, two[0, 1, 7].values)
    assert list(census(Repository.open(store), "cats/fast")) == []


def test_two_choices_of_rows_are_a_usage_error(run, run_folder) -> None:
    arguments = ["ingest", str(run_folder), "--corpus", "cats", "--tokens", "last"]
    assert run([*arguments, "--tokens-per-sequence", "2"]).exit_code == 2


def test_blocks_by_name_are_part_of_the_identity(store: str, checkpoints: list[Checkpoint]) -> None:
    named = CaptureOptions(blocks="gpt_neox.layers")
    assert ingest_checkpoint(store, checkpoints[0], "cats", options=named).ingested
    held = find_step(Repository.open(store), "cats/tiny", 0)
    assert held is not None
    assert held.identity["blocks"] == "gpt_neox.layers"
    with pytest.raises(IdentityConflictError, match=r"blocks: stored .*, wanted nothing"):
        ingest_checkpoint(store, checkpoints[0], "cats")
    assert np.isfinite(open_store(store)["cats/tiny"].residual.values).all()


def test_several_processes_run_checkpoints_side_by_side(store: str, run, run_folder) -> None:
    folder = Path(store).parent / "tiny"
    shutil.copytree(run_folder, folder)
    weights = folder / "checkpoint-5" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:4096])
    done = run(["ingest", str(folder), "--corpus", "cats", "--workers", "2"])
    assert done.exit_code == 1
    assert "2 of 3 checkpoints were run" in done.stdout
    assert "tiny step 5" in done.stderr
    assert "is truncated" in done.stderr
    assert list(open_store(store)["cats/tiny"].step.values) == [0, 10]


def test_steps_that_are_not_there_are_named_and_the_others_run(store: str, run, run_folder) -> None:
    done = run(["ingest", str(run_folder), "--corpus", "cats", "--steps", "0,3,5"])
    assert done.exit_code == 1
    assert "2 of 3 checkpoints were run" in done.stdout
    assert "tiny step 3: " in done.stderr
    assert "has no step 3: it has 0, 5, 10" in done.stderr
    assert list(open_store(store)["cats/tiny"].step.values) == [0, 5]


def test_the_dtype_is_part_of_the_identity(store: str, checkpoints: list[Checkpoint]) -> None:
    narrow = CaptureOptions(dtype="bfloat16", sites=("residual",))
    assert ingest_checkpoint(store, checkpoints[0], "cats", options=narrow).ingested
    held = find_step(Repository.open(store), "cats/tiny", 0)
    assert held is not None
    assert (held.source_dtype, held.identity["dtype"]) == ("bfloat16", "bfloat16")
    values = open_store(store)["cats/tiny"].residual.values
    assert not np.any(values.view(np.uint32) & 0xFFFF)
    with pytest.raises(IdentityConflictError, match='dtype: stored "bfloat16", wanted "as stored"'):
        ingest_checkpoint(store, checkpoints[0], "cats")


def test_probabilities_are_stored_in_passes_and_replayed(
    store: str, run, run_folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    import flows.capture.parts

    monkeypatch.setattr(flows.capture.parts, "_PASS_BYTES", 1)  # a pass for each block
    folder = str(run_folder / "checkpoint-5")
    sites = "residual,attention_probability,attention_max"
    arguments = ["ingest", folder, "--corpus", "cats", "--sites", sites]
    planned = run([*arguments, "--plan"])
    assert planned.exit_code == 0, planned.output
    assert "is a value for every head and key of each token" in planned.stderr
    done = run(arguments)
    assert done.exit_code == 0, done.output
    model = open_store(store)["cats/tiny"].to_dataset()
    probability = model.attention_probability.sel(step=5)
    assert probability.dims == ("block", "head", "token", "key_position")
    np.testing.assert_allclose(probability.sum("key_position"), 1.0, atol=1e-5)
    largest = probability.max("key_position").values
    np.testing.assert_allclose(largest, model.attention_max.sel(step=5).values, atol=1e-5)
    # A causal model sees no key behind its own position.
    behind = np.arange(probability.sizes["key_position"]) > model.position.values[:, None]
    assert not probability.values[..., behind].any()
    assert list(census(Repository.open(store), "cats/tiny")) == []
    done = run(["verify", "--replay", "2", "--source", folder, "cats/tiny"])
    assert done.exit_code == 0, done.output


def test_the_loss_of_masked_tokens_is_stored_and_replayed(store: str, run, tmp_path) -> None:
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    words = "the a cat rat dog sat ran under mat slowly ."
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words.split()]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    folder = tmp_path / "bert"
    config = BertConfig(
        vocab_size=16,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    BertTokenizerFast(vocab=str(tmp_path / "vocab.txt")).save_pretrained(folder)
    done = run(["ingest", str(folder), "--corpus", "cats", "--sites", "residual,token_loss"])
    assert done.exit_code == 0, done.output
    model = open_store(store)["cats/bert"].to_dataset()
    losses = model.token_loss.sel(step=0)
    known = np.isfinite(losses.values)
    assert not np.any(known & model.special.values)
    assert 0.1 < known[~model.special.values].mean() < 0.2
    attributes = {name: losses.attrs[name] for name in ("masked_share", "mask_token_id")}
    assert attributes == {"masked_share": 0.15, "mask_token_id": 4}
    assert float(model.loss.sel(step=0)) == pytest.approx(float(np.nanmean(losses)), rel=1e-6)
    assert list(census(Repository.open(store), "cats/bert")) == []
    done = run(["verify", "--replay", "2", "--source", str(folder), "cats/bert"])
    assert done.exit_code == 0, done.output
