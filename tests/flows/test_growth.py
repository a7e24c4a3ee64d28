"""More sequences of a corpus later: models follow step by step, and nothing is computed twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import flows.passes
from flows.capture.checkpoints import Checkpoint, find_checkpoints
from flows.capture.chosen import RowChoice
from flows.capture.drawing import Draw, draw
from flows.cli import actlas
from flows.corpora import Chunking, add_ids, add_texts
from flows.ingestion import ingest_checkpoint
from flows.repair import repair_model
from flows.replay import replay_model
from flows.running import CaptureOptions
from store import cube, open_store
from store.align import align
from store.catalogue import catalogue, find_step
from store.errors import IdentityConflictError
from store.metrics.provenance import step_identities
from store.repository import Repository
from store.slab import slabs
from store.verify import census


def add(store: str, text: str, n: int | None, **options):
    """Add ``n`` of the 80 sequences of 50 characters of a text."""
    chunking = options.pop("chunking", Chunking("chars", 50))
    return add_texts(
        store, "cats", {"cats.txt": text}, chunking=chunking, max_sequences=n, **options
    )


def texts(store: str) -> list[str]:
    return [str(one) for one in open_store(store)["cats"]["text"].values]


def run_tokens(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many tokens each call of the model's runner is given."""
    seen: list[int] = []
    original = flows.passes._rows

    def noted(part, *args):
        seen.append(len(part.tokens))
        return original(part, *args)

    monkeypatch.setattr(flows.passes, "_rows", noted)
    return seen


def test_earlier_texts_stay_and_the_same_request_is_known_again(store: str, text: str) -> None:
    before = texts(store)
    first = Repository.open(store).snapshot_id()
    added = add(store, text, 30)
    assert (added.texts, added.grown_from) == (30, 20)
    after = texts(store)
    assert after[:20] == before
    assert len(set(after)) <= 30
    assert len(after) == 30
    snapshot = Repository.open(store).snapshot_id()
    assert add(store, text, 30).content_sha256 == added.content_sha256
    assert Repository.open(store).snapshot_id() == snapshot
    assert add(store, text, None).texts == 80
    assert texts(store)[:30] == after
    assert len(open_store(store, snapshot=first)["cats"]["text"]) == 20


def test_more_than_there_are_adds_nothing(tmp_path: Path, text: str) -> None:
    store = str(tmp_path / "short")
    added = add(store, text, 90)
    assert added.texts == 80
    snapshot = Repository.open(store).snapshot_id()
    for n in (80, 200, None):
        assert add(store, text, n).content_sha256 == added.content_sha256
    assert Repository.open(store).snapshot_id() == snapshot
    with pytest.raises(IdentityConflictError, match="max_sequences: stored 90, wanted 79"):
        add(store, text, 79)


@pytest.mark.parametrize(
    "other",
    [
        {"n": 10},  # fewer than there are
        {"n": 30, "seed": 1},
        {"n": 30, "special_tokens": False},
        {"n": 30, "chunking": Chunking("chars", 40)},
    ],
)
def test_what_is_not_the_corpus_and_more_is_refused(store: str, text: str, other) -> None:
    with pytest.raises(IdentityConflictError, match="already stored, but not the same"):
        add(store, text, **other)


def test_another_text_is_refused(store: str, text: str) -> None:
    with pytest.raises(IdentityConflictError, match="content_sha256"):
        add(store, text[::-1], 30)


def test_draws_follow_one_another() -> None:
    documents = np.repeat([0, 1, 2], 20)
    first = draw(documents[:40], [Draw(2, 10)], seed=3)
    grown = draw(documents, [Draw(2, 10), Draw(3, 25), Draw(3, None)], seed=3)
    assert grown[:10] == first == sorted(first)
    assert grown[10:25] == sorted(grown[10:25])
    assert sorted(grown) == list(range(60))


def test_a_step_grows_by_what_is_new_alone(
    store: str, text: str, checkpoints: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = run_tokens(monkeypatch)
    ingest_checkpoint(store, checkpoints[0], "cats")
    small = open_store(store)["cats/tiny"].to_dataset().load()
    snapshot = Repository.open(store).snapshot_id()
    add(store, text, 30)
    result = ingest_checkpoint(store, checkpoints[0], "cats")
    assert result.ingested
    more = open_store(store)["cats/tiny"].sizes["token"] - small.sizes["token"]
    assert (result.added, result.added_tokens) == ((), more)
    assert 0 < result.added_bytes < result.stored_bytes
    assert not ingest_checkpoint(store, checkpoints[0], "cats").ingested
    large = open_store(store)["cats/tiny"].to_dataset()
    assert seen == [small.sizes["token"], large.sizes["token"] - small.sizes["token"]]
    rows = slice(small.sizes["token"])
    np.testing.assert_array_equal(large.residual[:, :, rows].values, small.residual.values)
    assert large.attrs["n_sequences"] == 30
    assert "extents" not in large.attrs
    # The same as what another store gets from the longer corpus at once.
    other = store + "-other"
    shutil.copytree(store, other)
    again = find_checkpoints(str(checkpoints[0].directory), name="again")[0]
    ingest_checkpoint(other, again, "cats")
    whole = open_store(other)["cats/again"].to_dataset()
    assert whole.drop_attrs().token_id.identical(large.drop_attrs().token_id)
    np.testing.assert_allclose(whole.residual.values, large.residual.values, atol=1e-5)
    np.testing.assert_allclose(whole.final_norm.values, large.final_norm.values, atol=1e-5)
    repository = Repository.open(store)
    assert census(repository) == []
    (held,) = catalogue(repository)
    (expected,) = catalogue(Repository.open(other), model="again")
    assert held.steps[0].identity == expected.steps[0].identity
    assert (held.n_tokens, held.token_axis) == (expected.n_tokens, expected.token_axis)
    old = open_store(store, snapshot=snapshot)["cats/tiny"].to_dataset()
    assert old.load().identical(small)


def test_a_half_extended_model_is_shown_as_it_was(
    store: str, text: str, checkpoints: list[Checkpoint]
) -> None:
    for checkpoint in checkpoints[:2]:
        ingest_checkpoint(store, checkpoint, "cats")
    before = open_store(store)["cats/tiny"].to_dataset().load()
    identities = step_identities(store, Repository.open(store).snapshot_id(), "cats/tiny")
    add(store, text, 30)
    ingest_checkpoint(store, checkpoints[0], "cats")
    repository = Repository.open(store)
    half = open_store(store)["cats/tiny"].to_dataset()
    np.testing.assert_array_equal(half.residual.values, before.residual.values)
    assert half.token_id.equals(before.token_id)
    assert half.attrs["n_sequences"] == 20
    assert cube(store, corpus="cats").sizes["token"] == before.sizes["token"]
    assert {slab.n_tokens for slab in slabs(repository, "cats/tiny")} == {before.sizes["token"]}
    (held,) = catalogue(repository)
    assert held.n_tokens == before.sizes["token"] < held.token_axis
    assert [step.n_tokens for step in held.steps] == [held.token_axis, held.n_tokens]
    listed = CliRunner().invoke(actlas, ["ls", "cats/tiny", "--store", store]).stdout
    assert "tokens are shown until steps 5 are ingested again" in " ".join(listed.split())
    assert census(repository) == []
    assert all(one.sound for one in replay_model(repository, held, count=3))
    now = step_identities(store, repository.snapshot_id(), "cats/tiny")
    assert now[5] == identities[5]
    assert now[0] != identities[0]
    ingest_checkpoint(store, checkpoints[1], "cats")
    whole = open_store(store)["cats/tiny"].to_dataset()
    assert whole.sizes["token"] == held.token_axis
    assert np.isfinite(whole.residual.values).all()
    last = step_identities(store, Repository.open(store).snapshot_id(), "cats/tiny")
    assert len({identities[0], now[0], last[0]}) == 3


def test_new_steps_sites_and_models_join_whatever_the_order(
    store: str, text: str, checkpoints: list[Checkpoint]
) -> None:
    ingest_checkpoint(store, checkpoints[0], "cats", options=CaptureOptions(sites=("residual",)))
    add(store, text, 30)
    both = CaptureOptions(sites=("residual", "query", "token_loss"))
    assert ingest_checkpoint(store, checkpoints[2], "cats", options=both).ingested
    small = open_store(store)["cats/tiny"]
    assert list(small.step.values) == [0, 10]
    result = ingest_checkpoint(store, checkpoints[0], "cats", options=both)
    assert result.sites == ("residual", "query", "token_loss")
    large = open_store(store)["cats/tiny"].to_dataset()
    assert large.sizes["token"] > small.sizes["token"]
    assert np.isfinite(large["query"].values).all()
    assert np.isfinite(large.residual.values).all()
    assert census(Repository.open(store)) == []


def test_steps_that_lack_a_site_are_left_out_of_its_metrics(
    store: str, checkpoints: list[Checkpoint]
) -> None:
    ingest_checkpoint(store, checkpoints[0], "cats", options=CaptureOptions(sites=("residual",)))
    both = CaptureOptions(sites=("residual", "query"))
    ingest_checkpoint(store, checkpoints[1], "cats", options=both)
    command = ["compute", "average_cosine", "--sites", "query", "--store", store]
    done = CliRunner().invoke(actlas, command)
    assert done.exit_code == 0, done.output
    assert "do not hold query: cats/tiny step 0" in done.output
    named = CliRunner().invoke(actlas, [*command, "--steps", "0,5"])
    assert named.exit_code == 2
    assert "no step 0" in named.output


def test_the_loss_is_of_all_tokens(store: str, text: str, checkpoints: list[Checkpoint]) -> None:
    options = CaptureOptions(sites=("token_loss",))
    ingest_checkpoint(store, checkpoints[0], "cats", options=options)
    add(store, text, 30)
    ingest_checkpoint(store, checkpoints[0], "cats", options=options)
    model = open_store(store)["cats/tiny"].to_dataset()
    losses = model.token_loss.values[0]
    np.testing.assert_array_equal(np.isnan(losses), model.position.values == 0)
    np.testing.assert_allclose(model.loss.values, np.nanmean(losses, dtype=np.float64))
    assert census(Repository.open(store)) == []


def test_models_over_the_shorter_and_the_longer_corpus_align(
    store: str, text: str, checkpoints: list[Checkpoint]
) -> None:
    ingest_checkpoint(store, checkpoints[0], "cats")
    add(store, text, 30)
    other = find_checkpoints(str(checkpoints[1].directory), name="other")[0]
    ingest_checkpoint(store, other, "cats")
    tree = open_store(store)
    one, two = align(tree["cats/tiny"], tree["cats/other"]).rows()
    np.testing.assert_array_equal(one, two)
    assert len(one) > 100


def test_cut_by_tokens_the_first_sequences_stay(
    tmp_path: Path, text: str, checkpoints: list[Checkpoint]
) -> None:
    uri = str(tmp_path / "store")
    by_tokens = Chunking("tokens", 16)
    add(uri, text, 5, chunking=by_tokens)
    ingest_checkpoint(uri, checkpoints[0], "cats")
    before = open_store(uri)["cats/tiny"].to_dataset().load()
    assert add(uri, text, 9, chunking=by_tokens).grown_from == 1
    ingest_checkpoint(uri, checkpoints[0], "cats")
    after = open_store(uri)["cats/tiny"].to_dataset()
    assert after.sizes["token"] == 9 * 16
    np.testing.assert_array_equal(after.residual[:, :, : 5 * 16].values, before.residual.values)
    # Another text from which nothing was drawn: the same tokens, of another corpus by name.
    more = {"cats.txt": text, "more.txt": text[::-1]}
    add_texts(uri, "cats", more, chunking=by_tokens, max_sequences=9)
    assert len(open_store(uri)["cats"]["text"]) == 2
    assert ingest_checkpoint(uri, checkpoints[0], "cats").ingested
    assert not ingest_checkpoint(uri, checkpoints[0], "cats").ingested
    now = open_store(uri)["cats/tiny"]
    np.testing.assert_array_equal(now.residual.values, after.residual.values)
    assert now.attrs["corpus_sha256"] == open_store(uri)["cats"].attrs["content_sha256"]
    assert census(Repository.open(uri)) == []


def test_ids_grow_and_so_do_both_stacks(tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    ids = np.random.default_rng(0).integers(2, 50, (6, 10))
    add_ids(uri, "ids", list(ids[:4]))
    sizes = "vocab_size=50,d_model=16,d_kv=8,num_heads=2,d_ff=32,num_layers=2,num_decoder_layers=3"
    (checkpoint,) = find_checkpoints(f"random:t5:{sizes}", name="t5")
    ingest_checkpoint(uri, checkpoint, "ids")
    assert add_ids(uri, "ids", list(ids)).grown_from == 4
    assert add_ids(uri, "ids", list(ids)).grown_from is None
    assert ingest_checkpoint(uri, checkpoint, "ids").ingested
    tree = open_store(uri)
    assert tree["ids/t5/encoder"].residual.shape == (1, 3, 60, 16)
    assert tree["ids/t5/decoder"].residual.shape == (1, 4, 60, 16)
    assert census(Repository.open(uri)) == []


def test_repair_brings_a_damaged_step_over_the_longer_corpus(
    store: str, text: str, checkpoints: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.configuration.INLINE_BYTES", 0)
    ingest_checkpoint(store, checkpoints[0], "cats")
    add(store, text, 30)
    repository = Repository.open(store)
    held = find_step(repository, "cats/tiny", 0)
    assert held is not None
    for chunk in sorted((Path(store) / "chunks").iterdir(), key=lambda one: -one.stat().st_size)[
        :2
    ]:
        chunk.unlink()
    assert census(repository)
    assert repair_model(repository, "cats", "tiny").left == ()
    model = open_store(store)["cats/tiny"].to_dataset()
    assert model.attrs["n_sequences"] == 30
    assert np.isfinite(model.residual.values).all()


@pytest.mark.parametrize("rows", [RowChoice("last"), RowChoice("mean"), RowChoice("sample", 3)])
def test_chosen_rows_grow_as_well(
    store: str, text: str, checkpoints: list[Checkpoint], rows: RowChoice
) -> None:
    options = CaptureOptions(rows=rows)
    ingest_checkpoint(store, checkpoints[0], "cats", options=options)
    small = open_store(store)["cats/tiny"].to_dataset().load()
    add(store, text, 30)
    assert ingest_checkpoint(store, checkpoints[0], "cats", options=options).ingested
    large = open_store(store)["cats/tiny"].to_dataset()
    again = find_checkpoints(str(checkpoints[0].directory), name="again")[0]
    ingest_checkpoint(store, again, "cats", options=options)
    whole = open_store(store)["cats/again"].to_dataset()
    n = small.sizes["token"]
    assert n < large.sizes["token"] == whole.sizes["token"]
    np.testing.assert_array_equal(large.residual[:, :, :n].values, small.residual.values)
    np.testing.assert_allclose(large.residual.values, whole.residual.values, atol=1e-5)
    assert census(Repository.open(store)) == []
