from datetime import UTC, datetime, timedelta

import pytest

from store import open_store
from store.errors import StoreError, UnknownNameError
from store.history import create_tag, find_snapshot, history, tags


@pytest.fixture
def repository(toy, uri):
    repository = toy.prepare(uri)
    toy.ingest(repository, 0)
    return repository


def test_the_history_says_what_was_done_newest_first(repository, toy):
    toy.ingest(repository, 8)
    newest, *earlier = history(repository)
    assert newest.id == repository.snapshot_id()
    assert newest.message == "store plays/owner--toy step 8: residual, final_norm"
    assert newest.tags == ()
    assert [one.written_at for one in earlier] == sorted(
        (one.written_at for one in earlier), reverse=True
    )
    assert timedelta(0) < datetime.now(UTC) - newest.written_at < timedelta(minutes=5)


def test_a_tag_names_a_snapshot_for_good(repository, toy):
    first = create_tag(repository, "paper-v1")
    toy.ingest(repository, 8)
    assert tags(repository) == {"paper-v1": first}
    assert find_snapshot(repository, tag="paper-v1") == first
    assert [one.tags for one in history(repository) if one.id == first] == [("paper-v1",)]
    assert create_tag(repository, "paper-v1", first) == first
    with pytest.raises(StoreError, match=rf"tag 'paper-v1' stands for snapshot {first} already"):
        create_tag(repository, "paper-v1")
    with pytest.raises(StoreError, match="no snapshot 'NOPE'"):
        create_tag(repository, "other", "NOPE")


def test_a_store_opens_as_it_was(repository, toy):
    first = create_tag(repository, "before")
    moment = history(repository)[0].written_at
    toy.ingest(repository, 8)
    for chosen in (
        {"tag": "before"},
        {"snapshot": first},
        {"as_of": moment},
        {"as_of": moment.replace(tzinfo=None).isoformat()},
    ):
        tree = open_store(repository.uri, **chosen)
        assert tree.attrs["snapshot"] == first
        assert tree[toy.PATH]["step"].values.tolist() == [0]
    later = datetime.now(UTC) + timedelta(hours=1)
    assert open_store(repository.uri, as_of=later)[toy.PATH]["step"].values.tolist() == [0, 8]


def test_what_cannot_be_meant(repository):
    create_tag(repository, "paper-v1")
    with pytest.raises(UnknownNameError, match=r"no tag 'paper-v2' .*did you mean 'paper-v1'"):
        open_store(repository.uri, tag="paper-v2")
    with pytest.raises(StoreError, match="give one of snapshot, tag and as_of, got 2"):
        open_store(repository.uri, tag="paper-v1", as_of="2026-01-01")
    with pytest.raises(StoreError, match="as_of 'yesterday' is not a time; expected ISO 8601"):
        open_store(repository.uri, as_of="yesterday")
    with pytest.raises(StoreError, match="has no snapshot made by 2001-01-01"):
        open_store(repository.uri, as_of="2001-01-01")
