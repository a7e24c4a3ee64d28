from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import flows.capture.weights
import flows.running
from flows.capture.checkpoints import Checkpoint, find_checkpoints
from flows.corpora import add_ids, add_texts
from flows.ingestion import ingest_checkpoint
from flows.running import CaptureOptions
from store import open_store
from store.catalogue import catalogue, find_step
from store.errors import IdentityConflictError, NonFiniteError, UnknownNameError
from store.repository import Repository
from store.unused import remove_unused_model


def test_a_checkpoint_goes_in_with_its_provenance(
    store: str, checkpoints: list[Checkpoint]
) -> None:
    result = ingest_checkpoint(store, checkpoints[1], "cats")
    assert (result.path, result.step, result.ingested) == ("cats/tiny", 5, True)
    assert result.sites == ("residual", "final_norm")
    held = find_step(Repository.open(store), "cats/tiny", 5)
    assert held is not None
    assert held.revision == "checkpoint-5"
    assert held.source_dtype == "float32"
    assert list(held.weight_files) == ["model.safetensors"]
    assert held.identity["weights_sha256"] == held.weights_sha256
    assert held.stored_bytes == result.stored_bytes > 0


def test_values_are_those_of_plain_transformers(store: str, checkpoints: list[Checkpoint]) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    ingest_checkpoint(store, checkpoints[0], "cats")
    tree = open_store(store)
    model = tree["cats/tiny"].to_dataset()
    text = str(tree["cats"]["text"].values[7])
    folder = checkpoints[0].directory
    tokenizer = AutoTokenizer.from_pretrained(folder)
    plain = AutoModel.from_pretrained(folder)
    with torch.no_grad():
        states = plain(
            **tokenizer(text, return_tensors="pt", return_token_type_ids=False),
            output_hidden_states=True,
        ).hidden_states
    rows = model.residual.sel(step=0).where(model.sequence == 7, drop=True)
    # float32 on both sides; batches differ, so that sums are taken in another order.
    for layer in (0, 1):
        np.testing.assert_allclose(rows.sel(layer=layer), states[layer][0], atol=1e-5)
    final = model.final_norm.sel(step=0).where(model.sequence == 7, drop=True)
    np.testing.assert_allclose(final, states[2][0], atol=1e-5)


def refuse_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        pytest.fail("a model was loaded")

    monkeypatch.setattr(flows.capture.weights, "load_model", load)


def test_again_changes_nothing_and_loads_no_model(
    store: str, checkpoints: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_checkpoint(store, checkpoints[0], "cats")
    before = Repository.open(store).snapshot_id()
    refuse_models(monkeypatch)
    assert not ingest_checkpoint(store, checkpoints[0], "cats").ingested
    assert Repository.open(store).snapshot_id() == before


def test_other_weights_under_the_same_step_are_refused_unread(
    store: str, checkpoints: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_checkpoint(store, checkpoints[0], "cats")
    before = Repository.open(store).snapshot_id()
    refuse_models(monkeypatch)
    other = replace(checkpoints[1], step=0)
    with pytest.raises(IdentityConflictError, match=r"weights_sha256: stored .* wanted"):
        ingest_checkpoint(store, other, "cats")
    assert Repository.open(store).snapshot_id() == before


def test_superseding_keeps_the_old_values_in_the_history(
    store: str, checkpoints: list[Checkpoint]
) -> None:
    ingest_checkpoint(store, checkpoints[0], "cats")
    before = Repository.open(store).snapshot_id()
    old = open_store(store)["cats/tiny"].residual.values
    other = replace(checkpoints[1], step=0)
    assert ingest_checkpoint(store, other, "cats", options=CaptureOptions(supersede=True)).ingested
    new = open_store(store)["cats/tiny"].residual.values
    assert np.abs(new - old).max() > 0.01
    kept = open_store(store, snapshot=before)["cats/tiny"].residual.values
    np.testing.assert_array_equal(kept, old)


def test_the_same_weights_under_two_steps_are_flagged(
    store: str, checkpoints: list[Checkpoint]
) -> None:
    for step, same in ((0, ()), (1, (0,))):
        result = ingest_checkpoint(store, replace(checkpoints[0], step=step), "cats")
        assert result.same_weights == same
    (held,) = catalogue(Repository.open(store))
    assert [step.duplicates for step in held.steps] == [(1,), (0,)]


def test_a_site_can_be_added_later(store: str, checkpoints: list[Checkpoint]) -> None:
    residual = CaptureOptions(sites=("residual",))
    assert ingest_checkpoint(store, checkpoints[0], "cats", options=residual).sites == ("residual",)
    more = CaptureOptions(sites=("residual", "final_norm"))
    added = ingest_checkpoint(store, checkpoints[0], "cats", options=more)
    assert added.ingested
    assert added.sites == ("residual", "final_norm")


def test_the_order_of_ingestion_and_the_batch_size_do_not_matter(
    store: str, tmp_path: Path, text: str, checkpoints: list[Checkpoint]
) -> None:
    other = str(tmp_path / "other")
    shutil.copytree(store, other)
    for checkpoint in checkpoints:
        ingest_checkpoint(store, checkpoint, "cats")
    for checkpoint in reversed(checkpoints):
        ingest_checkpoint(other, checkpoint, "cats", options=CaptureOptions(batch_tokens=40))
    one, two = (open_store(uri)["cats/tiny"].to_dataset() for uri in (store, other))
    assert list(one.step.values) == list(two.step.values) == [0, 5, 10]
    np.testing.assert_allclose(one.residual.values, two.residual.values, atol=1e-5)


def test_values_that_are_not_finite_are_refused_and_leave_nothing(
    store: str, tmp_path: Path, checkpoints: list[Checkpoint]
) -> None:
    broken = with_nan(checkpoints[1], tmp_path)
    ingest_checkpoint(store, checkpoints[0], "cats")
    with pytest.raises(NonFiniteError, match=r"residual, layer 1 of step 5 of cats"):
        ingest_checkpoint(store, broken, "cats")
    assert list(open_store(store)["cats/tiny"].step.values) == [0]
    allowed = CaptureOptions(allow_nonfinite=True)
    assert ingest_checkpoint(store, broken, "cats", options=allowed).ingested
    held = find_step(Repository.open(store), "cats/tiny", 5)
    assert held is not None
    assert held.nonfinite > 0


def with_nan(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    """Return a copy of a checkpoint whose first block gives NaN."""
    from safetensors.torch import load_file, save_file

    assert checkpoint.directory is not None
    copy = folder / "tiny" / checkpoint.directory.name
    shutil.copytree(checkpoint.directory, copy)
    weights = load_file(copy / "model.safetensors")
    name = next(name for name in weights if "layers.0.mlp.dense_4h_to_h.bias" in name)
    weights[name][0] = float("nan")
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    return find_checkpoints(str(copy.parent))[0]


def test_deleting_the_model_leaves_the_store_whole(
    store: str, tmp_path: Path, checkpoints: list[Checkpoint]
) -> None:
    folder = checkpoints[0].directory
    assert folder is not None
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (checkpoint,) = find_checkpoints(str(copy), name="tiny")
    ingest_checkpoint(store, checkpoint, "cats")
    shutil.rmtree(copy)
    assert np.isfinite(open_store(store)["cats/tiny"].residual.values).all()


def test_ids_need_no_tokenizer(tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    ids = np.random.default_rng(0).integers(0, 50, (6, 10))
    add_ids(uri, "ids", list(ids))
    config = "hidden_size=16,num_hidden_layers=2,num_attention_heads=2,vocab_size=50"
    (checkpoint,) = find_checkpoints(f"random:gpt2:{config}", name="untrained")
    ingest_checkpoint(uri, checkpoint, "ids")
    model = open_store(uri)["ids/untrained"].to_dataset()
    np.testing.assert_array_equal(model.token_id.values, ids.reshape(-1))
    assert model.residual.shape == (1, 3, 60, 16)


def test_tokens_are_cut_for_each_model(tmp_path: Path, text: str, checkpoints) -> None:
    from flows.corpora import Chunking

    uri = str(tmp_path / "store")
    add_texts(uri, "cats", {"cats.txt": text}, chunking=Chunking("tokens", 16), max_sequences=5)
    ingest_checkpoint(uri, checkpoints[0], "cats")
    model = open_store(uri)["cats/tiny"].to_dataset()
    assert model.sizes["token"] == 5 * 16
    assert int(model.position.max()) == 15
    start, end = int(model.char_start[20]), int(model.char_end[20])
    assert 0 <= start < end <= len(text)


def test_the_stacks_of_an_encoder_decoder_are_groups_of_their_own(tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    ids = np.random.default_rng(0).integers(2, 50, (6, 10))
    add_ids(uri, "ids", list(ids))
    sizes = "vocab_size=50,d_model=16,d_kv=8,num_heads=2,d_ff=32,num_layers=2,num_decoder_layers=3"
    (checkpoint,) = find_checkpoints(f"random:t5:{sizes}", name="t5")
    assert ingest_checkpoint(uri, checkpoint, "ids").ingested
    assert not ingest_checkpoint(uri, checkpoint, "ids").ingested
    tree = open_store(uri)
    assert tree["ids/t5/encoder"].residual.shape == (1, 3, 60, 16)
    assert tree["ids/t5/decoder"].residual.shape == (1, 4, 60, 16)
    # The decoder starts with an id of its own and sees the text one position later.
    shown = tree["ids/t5/decoder"].token_id.values.reshape(6, 10)
    np.testing.assert_array_equal(shown[:, 1:], ids[:, :-1])
    assert tree["ids/t5/decoder"].special.values.reshape(6, 10)[:, 0].all()


def test_rows_of_attention_are_kept_when_asked_for(
    store: str, checkpoints: list[Checkpoint]
) -> None:
    options = CaptureOptions(sites=("residual", "query", "attention_entropy"))
    ingest_checkpoint(store, checkpoints[0], "cats")
    added = ingest_checkpoint(store, checkpoints[0], "cats", options=options)
    assert added.ingested
    assert set(added.sites) == {"residual", "final_norm", "query", "attention_entropy"}
    entropy = open_store(store)["cats/tiny"].attention_entropy
    assert entropy.dims == ("step", "block", "head", "token")
    assert 0 <= float(entropy.min()) <= float(entropy.max()) <= 1 + 1e-6


def test_an_unknown_corpus_is_named_with_its_neighbours(store: str, checkpoints) -> None:
    with pytest.raises(UnknownNameError, match=r"no corpus 'cat' .* did you mean 'cats'"):
        ingest_checkpoint(store, checkpoints[0], "cat")


def test_progress_adds_up_to_all_tokens(store: str, checkpoints: list[Checkpoint]) -> None:
    seen: list[tuple[int, int]] = []
    ingest_checkpoint(
        store, checkpoints[0], "cats", progress=lambda done, total: seen.append((done, total))
    )
    assert sum(done for done, _ in seen) == seen[0][1]


def test_losses_of_tokens_give_the_loss_of_the_step(
    store: str, checkpoints: list[Checkpoint]
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ingest_checkpoint(store, checkpoints[1], "cats")
    # Losses that are added later bring the loss of the step with them.
    options = CaptureOptions(sites=("residual", "token_loss"))
    assert ingest_checkpoint(store, checkpoints[1], "cats", options=options).ingested
    tree = open_store(store)
    plain = AutoModelForCausalLM.from_pretrained(checkpoints[1].directory)
    tokenizer = AutoTokenizer.from_pretrained(checkpoints[1].directory)
    losses = []
    for text in tree["cats"]["text"].values:
        ids = tokenizer(str(text), return_tensors="pt").input_ids
        with torch.no_grad():
            scores = plain(ids).logits[0, :-1]
        losses.append(torch.nn.functional.cross_entropy(scores, ids[0, 1:], reduction="none"))
    expected = torch.cat(losses).double().mean().item()
    model = tree["cats/tiny"].to_dataset()
    # float32 logits of about 4 on both sides, in batches on one of them.
    assert float(model.loss.sel(step=5)) == pytest.approx(expected, rel=1e-6)
    stored = model.token_loss.sel(step=5).values
    assert np.array_equal(np.isnan(stored), model.position.values == 0)
    held = find_step(Repository.open(store), "cats/tiny", 5)
    assert held is not None
    assert held.nonfinite == 0


def test_a_model_that_another_writer_takes_back_is_created_again(
    store: str, checkpoints: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = flows.running.reserve_step
    removed: list[bool] = []

    def reserve_late(repository, path, *args, **options):
        if not removed:
            removed.append(remove_unused_model(repository, path))
        return reserve(repository, path, *args, **options)

    monkeypatch.setattr(flows.running, "reserve_step", reserve_late)
    assert ingest_checkpoint(store, checkpoints[0], "cats").ingested
    assert removed == [True]
    assert list(open_store(store)["cats/tiny"].step.values) == [0]
