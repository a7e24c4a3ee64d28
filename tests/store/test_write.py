import json
from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.errors import (
    ConflictError,
    IdentityConflictError,
    IncompleteError,
    InvalidBlockError,
    NonFiniteError,
    ReservationLostError,
    StepReservedError,
    StoreError,
    UnknownNameError,
)
from store.layout import activation_codecs, checksum
from store.write import AlreadyStored, reserve_step

SITES = ("residual", "final_norm", "query", "attention_entropy")


@pytest.fixture
def repository(toy, memory_uri):
    return toy.prepare(memory_uri)


def reserve(repository, toy, step=1, **options):
    return reserve_step(repository, toy.PATH, step, identity={"variant": 0}, **options)


def test_what_was_written_reads_back_through_zarr(toy, uri):
    repository = toy.prepare(uri, sites=SITES)
    snapshot = toy.ingest(repository, 7)
    assert snapshot == repository.snapshot_id()
    toy.assert_stored(repository, 7, sites=SITES)


def test_the_bytes_are_those_that_zarr_writes(toy, memory_uri):
    repository = toy.prepare(memory_uri, sites=["residual", "query"])
    toy.ingest(repository, 7)
    group = repository.read()[toy.PATH]
    for site in ("residual", "query"):
        plain = zarr.storage.MemoryStore()
        array = zarr.create_array(
            plain,
            shape=group[site].shape,
            chunks=group[site].chunks,
            dtype="float32",
            compressors=activation_codecs(),
            fill_value=np.nan,
        )
        array[0] = toy.values(7, site)
        keys = [key for key in plain._store_dict if key.startswith("c/")]
        assert len(keys) == (16 if site == "residual" else 12)
        for key in keys:
            ours = zarr.core.sync.sync(
                group.store.get(f"{toy.PATH}/{site}/{key}", zarr.buffer.default_buffer_prototype())
            )
            assert ours.to_bytes() == plain._store_dict[key].to_bytes()


def test_a_commit_records_where_the_values_come_from(repository, toy):
    provenance = {
        "revision": "main",
        "weights_sha256": "ab",
        "weight_files": {"b.safetensors": "2", "a.safetensors": "1"},
        "tokens_sha256": "cd",
        "source_dtype": "bfloat16",
        "loss": 2.5,
        "versions": {"torch": "2"},
    }
    with reserve(repository, toy) as writer:
        toy.write_all(writer)
        writer.commit(provenance=provenance)
    group = repository.read()[toy.PATH]
    row = {name: group[name][0].item() for name in (*provenance, "complete", "step", "sites")}
    assert (row["complete"], row["step"], row["sites"]) == (True, 1, "residual final_norm")
    assert row["weight_files"] == '{"a.safetensors":"1","b.safetensors":"2"}'
    assert json.loads(row["versions"]) == {"torch": "2"}
    assert (row["revision"], row["source_dtype"], row["loss"]) == ("main", "bfloat16", 2.5)
    assert json.loads(group["identity"][0].item()) == {"variant": 0}
    assert datetime.fromisoformat(group["ingested_at"][0].item()).tzinfo is not None
    assert group["stored_bytes"][0] > 0


def test_checksums_are_of_the_rows_that_exist(repository, toy):
    toy.ingest(repository, 1)
    group = repository.read()[toy.PATH]
    values = toy.values(1, "residual")
    for layer in range(4):
        parts = [values[layer, start : start + 16] for start in range(0, 50, 16)]
        assert group["residual_checksum"][0, layer].tolist() == [checksum(part) for part in parts]


def test_unknown_provenance_is_refused(repository, toy):
    with reserve(repository, toy) as writer:
        toy.write_all(writer)
        with pytest.raises(UnknownNameError, match=r"no provenance 'revison'.*'revision'"):
            writer.commit(provenance={"revison": "x"})


def test_nothing_is_visible_before_the_commit(repository, toy):
    with reserve(repository, toy) as writer:
        toy.write_all(writer)
        assert toy.stored(repository, 1) is None
        assert np.isnan(repository.read()[toy.PATH]["residual"][0]).all()


def test_an_abandoned_slot_is_free_again(repository, toy):
    def fail_half_way():
        with reserve(repository, toy) as writer:
            toy.write_all(writer)
            raise RuntimeError("model failed")

    with pytest.raises(RuntimeError, match="model failed"):
        fail_half_way()
    assert (repository.read()[toy.PATH]["step"][:] == -1).all()
    toy.ingest(repository, 2)
    assert repository.read()[toy.PATH]["step"][0] == 2


def test_a_writer_is_used_once(repository, toy):
    writer = reserve(repository, toy)
    writer.abandon()
    writer.abandon()
    with pytest.raises(StoreError, match="committed or abandoned before"):
        writer.write_block("residual", 0, toy.values(1, "residual"))


def test_the_same_again_is_already_stored(repository, toy):
    toy.ingest(repository, 1)
    before = repository.snapshot_id()
    assert toy.ingest(repository, 1) == AlreadyStored(
        toy.PATH, 1, ("residual", "final_norm"), {"residual": (0, 1, 2, 3)}
    )
    assert repository.snapshot_id() == before


def test_something_else_under_the_same_step_is_refused(repository, toy):
    toy.ingest(repository, 1)
    before = repository.snapshot_id()
    with pytest.raises(IdentityConflictError, match="variant: stored 0, wanted 1"):
        toy.ingest(repository, 1, variant=1)
    assert repository.snapshot_id() == before


def test_superseding_replaces_and_keeps_the_history(toy, memory_uri):
    repository = toy.prepare(memory_uri, sites=SITES)
    before = toy.ingest(repository, 1)
    toy.ingest(repository, 1, variant=1, supersede=True, sites=["residual", "query"])
    toy.assert_stored(repository, 1, variant=1, sites=["residual", "query"])
    group = repository.read()[toy.PATH]
    assert np.isnan(group["final_norm"][0]).all()
    assert not group["final_norm_checksum"][0].any()
    old = toy.stored(repository, 1, snapshot=before)
    np.testing.assert_array_equal(old["final_norm"], toy.values(1, "final_norm"))


def test_what_is_superseded_stays_visible_until_the_commit(repository, toy):
    toy.ingest(repository, 1)
    with reserve_step(repository, toy.PATH, 1, identity={"variant": 1}, supersede=True) as writer:
        toy.write_all(writer, variant=1)
        toy.assert_stored(repository, 1)
    toy.assert_stored(repository, 1)


def test_a_later_site_is_added_without_touching_the_rest(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    toy.ingest(repository, 1)
    toy.ingest(repository, 2)
    bytes_before = int(repository.read()[toy.PATH]["stored_bytes"][0])
    toy.prepare(memory_uri, sites=["query"])
    writer = reserve(repository, toy)
    assert writer.sites == ("query",)
    with writer:
        toy.write_all(writer)
        writer.commit(provenance={})
    toy.assert_stored(repository, 1, sites=["residual", "final_norm", "query"])
    toy.assert_stored(repository, 2)
    group = repository.read()[toy.PATH]
    assert group["revision"][0].item() == "step1"
    assert int(group["stored_bytes"][0]) > bytes_before


def test_sites_can_be_chosen(toy, memory_uri):
    repository = toy.prepare(memory_uri, sites=SITES)
    toy.ingest(repository, 1, sites=["final_norm"])
    toy.assert_stored(repository, 1, sites=["final_norm"])
    with pytest.raises(UnknownNameError, match=r"no site 'querry'.*did you mean 'query'"):
        reserve(repository, toy, sites=["querry"])


def test_unknown_model_and_negative_step(repository, toy):
    with pytest.raises(UnknownNameError, match=r"no model 'owner--toi'.*did you mean 'owner--toy'"):
        reserve_step(repository, "plays/owner--toi", 1, identity={})
    with pytest.raises(UnknownNameError, match="no corpus 'play'"):
        reserve_step(repository, "play/owner--toy", 1, identity={})
    with pytest.raises(StoreError, match="step is 0 or more, got -1"):
        reserve(repository, toy, -1)


def test_a_site_left_out_is_named(repository, toy):
    with reserve(repository, toy) as writer:
        writer.write_block("final_norm", 0, toy.values(1, "final_norm"))
        writer.write_block("residual", 0, toy.values(1, "residual")[:, :32])
        with pytest.raises(IncompleteError, match=r"2 of 4 chunks of residual .* tokens 32 to 47"):
            writer.commit(provenance={})
        writer.write_block("residual", 32, toy.values(1, "residual")[:, 32:])
        writer.commit(provenance={})
    toy.assert_stored(repository, 1)


@pytest.mark.parametrize(
    ("start", "shape", "dtype", "message"),
    [
        (8, (4, 8, 64), "f4", "cut chunks of 16 tokens in two; start at a multiple of 16"),
        (0, (4, 15, 64), "f4", "tokens 0 to 14 cut chunks"),
        (48, (4, 16, 64), "f4", "tokens 48 to 63 are not within 0 to 49"),
        (-16, (4, 16, 64), "f4", "are not within"),
        (0, (4, 0, 64), "f4", "are not within"),
        (0, (5, 16, 64), "f4", r"expected the shape \('layer', 'token', 'dim'\) = \(4, 50, 64\)"),
        (0, (16, 64), "f4", r"got \(16, 64\)"),
        (0, (4, 16, 64), "f8", "expected float32 values, got float64"),
    ],
)
def test_blocks_that_do_not_fit(repository, toy, start, shape, dtype, message):
    with (
        reserve(repository, toy) as writer,
        pytest.raises(InvalidBlockError, match=message),
    ):
        writer.write_block("residual", start, np.zeros(shape, dtype))


def test_a_block_twice_and_an_unknown_site(repository, toy):
    with reserve(repository, toy) as writer:
        writer.write_block("residual", 0, toy.values(1, "residual"))
        with pytest.raises(InvalidBlockError, match="tokens 32 to 49 were written before"):
            writer.write_block("residual", 32, toy.values(1, "residual")[:, 32:])
        with pytest.raises(UnknownNameError, match="did you mean 'residual'"):
            writer.write_block("residuals", 0, toy.values(1, "residual"))


def test_nonfinite_values_are_refused_by_name(repository, toy):
    values = toy.values(1, "residual")
    values[2, 5, :3] = np.nan
    values[3, 5, 0] = np.inf
    with reserve(repository, toy) as writer:
        with pytest.raises(
            NonFiniteError, match="3 values of residual, layer 2 of step 1 of plays/owner--toy"
        ) as caught:
            writer.write_block("residual", 0, values)
        assert (caught.value.site, caught.value.layer, caught.value.count) == ("residual", 2, 3)
    assert (repository.read()[toy.PATH]["step"][:] == -1).all()


def test_nonfinite_blocks_are_numbered_from_one(toy, memory_uri):
    repository = toy.prepare(memory_uri, sites=["query", "token_loss"])
    with reserve(repository, toy) as writer:
        values = toy.values(1, "query")
        values[0, 0, 0, 0] = np.inf
        with pytest.raises(NonFiniteError, match="query, layer 1 of"):
            writer.write_block("query", 0, values)
        # The first token of a sequence has no loss, so that NaN there is no fault.
        later = int((toy.tokens()["position"] > 0).sum())
        assert 0 < later < 50
        with pytest.raises(NonFiniteError, match=f"{later} values of token_loss of step 1"):
            writer.write_block("token_loss", 0, np.full(50, np.nan, np.float32))


def test_the_first_token_of_a_sequence_needs_no_loss(toy, memory_uri):
    repository = toy.prepare(memory_uri, sites=["token_loss"])
    losses = np.where(toy.tokens()["position"] > 0, 2.5, np.nan).astype(np.float32)
    with reserve(repository, toy) as writer:
        writer.write_block("token_loss", 0, losses)
        writer.commit(provenance={})
    assert repository.read()[toy.PATH]["nonfinite"][0] == 0
    np.testing.assert_array_equal(toy.stored(repository, 1)["token_loss"], losses)


def test_allowed_nonfinite_values_are_stored_and_counted(repository, toy):
    values = toy.values(1, "residual")
    values[2, 5, :3] = np.nan
    values[3, 49, 0] = -np.inf
    with reserve(repository, toy, allow_nonfinite=True) as writer:
        writer.write_block("residual", 0, values)
        writer.write_block("final_norm", 0, toy.values(1, "final_norm"))
        writer.commit(provenance={})
    assert repository.read()[toy.PATH]["nonfinite"][0] == 4
    np.testing.assert_array_equal(toy.stored(repository, 1)["residual"], values)


def test_large_finite_values_are_not_infinite(repository, toy):
    values = np.full((4, 50, 64), np.finfo(np.float32).max)
    with reserve(repository, toy) as writer:
        writer.write_block("residual", 0, values)


def test_capacity_grows_and_writers_in_flight_finish(toy, uri):
    repository = toy.prepare(uri, step_capacity=2)
    with reserve(repository, toy, 5) as writer:
        whole = toy.values(5, "residual")
        writer.write_block("residual", 0, whole[:, :32])
        for step in (1, 2):
            toy.ingest(repository, step)
        assert repository.read()[toy.PATH]["residual"].shape[0] == 4
        writer.write_block("residual", 32, whole[:, 32:])
        writer.write_block("final_norm", 0, toy.values(5, "final_norm"))
        toy.ingest(repository, 3)
        toy.ingest(repository, 4)
        writer.commit(provenance={})
    for step in range(1, 6):
        toy.assert_stored(repository, step)


def test_a_site_added_by_another_leaves_writers_in_flight_alone(toy, uri):
    repository = toy.prepare(uri)
    with reserve(repository, toy, sites=["residual", "final_norm"]) as writer:
        toy.write_all(writer)
        toy.prepare(uri, sites=["query"])
        writer.commit(provenance={})
    toy.assert_stored(repository, 1)


def test_a_living_writer_keeps_its_slot(toy, uri):
    repository = toy.prepare(uri)
    with reserve(repository, toy) as writer:
        with pytest.raises(StepReservedError, match=r"is being stored by .* since 20.*Wait for it"):
            reserve(repository, toy)
        with pytest.raises(StepReservedError):
            reserve(repository, toy, wait=timedelta(seconds=0.3))
        toy.write_all(writer)
        writer.commit(provenance={})
    toy.assert_stored(repository, 1)


def test_a_writer_that_was_taken_over_stores_nothing(repository, toy, monkeypatch):
    slow = reserve(repository, toy)
    toy.write_all(slow)
    slow._reservation.claim.release()
    quick = reserve(repository, toy)
    with pytest.raises(ReservationLostError, match="was taken over by"):
        slow.commit(provenance={"revision": "slow"})
    toy.write_all(quick)
    quick.commit(provenance={"revision": "quick"})
    assert repository.read()[toy.PATH]["revision"][0].item() == "quick"


def test_an_acknowledgement_that_got_lost_is_recovered(repository, toy, monkeypatch):
    commit = type(repository).commit

    def commit_twice(self, session, message, *, rebase):
        commit(self, session, message, rebase=rebase)
        error = ConflictError("answer lost")
        raise error

    with reserve(repository, toy) as writer:
        toy.write_all(writer)
        monkeypatch.setattr(type(repository), "commit", commit_twice)
        snapshot = writer.commit(provenance={})
    assert snapshot == repository.snapshot_id()
    toy.assert_stored(repository, 1)


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_order_of_steps_blocks_and_chunk_sizes_stores_the_same(toy, tmp_path_factory, data):
    rows = data.draw(st.sampled_from([8, 16, 64]), label="chunk rows")
    steps = data.draw(st.permutations([0, 3]), label="steps")
    uri = f"memory://{tmp_path_factory.mktemp('property')}"
    repository = toy.prepare(uri, step_capacity=1, attributes={"chunk_rows": rows})
    for step in steps:
        with reserve(repository, toy, step) as writer:
            for site in writer.sites:
                starts = range(0, writer.n_tokens, rows)
                cuts = data.draw(st.sets(st.sampled_from(starts)), label="cuts")
                edges = [*sorted({0, *cuts}), writer.n_tokens]
                blocks = list(pairwise(edges))
                for low, high in data.draw(st.permutations(blocks), label="order"):
                    writer.write_block(site, low, toy.values(step, site)[..., low:high, :])
            writer.commit(provenance={})
    for step in steps:
        toy.assert_stored(repository, step)


def test_a_commit_that_failed_is_not_taken_for_the_one_before(repository, toy, monkeypatch):
    toy.ingest(repository, 1)

    def fail(self, session, message, *, rebase):
        raise StoreError("the network is gone")

    with reserve_step(repository, toy.PATH, 1, identity={"variant": 1}, supersede=True) as writer:
        toy.write_all(writer, variant=1)
        with monkeypatch.context() as patch:
            patch.setattr(type(repository), "commit", fail)
            with pytest.raises(StoreError, match="the network is gone"):
                writer.commit(provenance={})
    toy.assert_stored(repository, 1)
