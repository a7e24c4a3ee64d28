import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import icechunk
import pytest
import zarr

from store.configuration import BRANCH
from store.errors import (
    ConflictError,
    FormatVersionError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
)
from store.repository import Repository
from store.schema import FIRST_FORMAT, FORMAT_ATTRIBUTE, FORMAT_VERSION


def put(repository, name, *, rebase):
    session, root = repository.write()
    root.create_group(name)
    return repository.commit(session, f"add {name}", rebase=rebase)


def test_a_created_store_opens_with_its_format_and_configuration(uri):
    created = Repository.create(uri)
    opened = Repository.open(uri)
    assert opened.snapshot_id() == created.snapshot_id()
    assert opened.read().attrs[FORMAT_ATTRIBUTE] == FIRST_FORMAT
    assert opened.icechunk.config.inline_chunk_threshold_bytes == 2048


def test_a_repository_travels_as_its_uri(uri):
    repository = Repository.create(uri)
    again = pickle.loads(pickle.dumps(repository))
    assert (again.uri, again.read_only) == (repository.uri, False)
    assert again.snapshot_id() == repository.snapshot_id()


def test_relative_path_file_uri_and_path_are_the_same_place(tmp_path, monkeypatch):
    Repository.create(tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    places = {Repository.open(place).uri for place in ("store", f"file://{tmp_path}/store")}
    assert places == {str(tmp_path / "store")}


def test_missing_path(tmp_path):
    with pytest.raises(StoreNotFoundError, match="the path does not exist"):
        Repository.open(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_path_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreNotFoundError, match="expected a directory, found a file"):
        Repository.open(tmp_path / "file")
    with pytest.raises(StoreExistsError, match="it is a file"):
        Repository.create(tmp_path / "file")


def test_directory_that_is_no_store_stays_as_it_was(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StoreNotFoundError, match="is not an activation store"):
        Repository.open(tmp_path)
    with pytest.raises(StoreExistsError, match="the directory is not empty"):
        Repository.create(tmp_path)
    with pytest.raises(StoreNotFoundError, match="is not an activation store"):
        Repository.open_or_create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_icechunk_repository_that_is_no_store(tmp_path):
    other = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "other")))
    session = other.writable_session("main")
    zarr.group(session.store, attributes={"title": "weather"})
    session.commit("weather")
    with pytest.raises(StoreNotFoundError, match="no attribute 'actlas_format'"):
        Repository.open(tmp_path / "other")
    with pytest.raises(StoreNotFoundError, match="no attribute 'actlas_format'"):
        Repository.open_or_create(tmp_path / "other")


def test_newer_format_is_refused(uri):
    repository = Repository.create(uri)

    def change(root):
        root.attrs[FORMAT_ATTRIBUTE] = FORMAT_VERSION + 1

    repository.update("future", change)
    with pytest.raises(FormatVersionError, match=f"has format {FORMAT_VERSION + 1}.*Upgrade"):
        Repository.open(uri)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("ftp://host/store", "scheme 'ftp'; expected a path"),
        ("s3:///prefix", "names no bucket"),
        ("memory://never-created", "nothing is there"),
    ],
)
def test_uri_that_leads_nowhere(uri, message):
    with pytest.raises(StoreError, match=message):
        Repository.open(uri)


def test_second_creation_is_refused_and_open_or_create_opens(uri):
    first = Repository.create(uri)
    with pytest.raises(StoreExistsError):
        Repository.create(uri)
    assert Repository.open_or_create(uri).snapshot_id() == first.snapshot_id()


def test_opening_to_write_reads_no_more_of_a_long_history(tmp_path, monkeypatch):
    repository = Repository.create(tmp_path / "store")
    for name in ("first", "second", "third"):
        put(repository, name, rebase=False)
    read = []
    whole = icechunk.Repository.ancestry

    def counted(self, **at):
        for snapshot in whole(self, **at):
            read.append(snapshot)
            yield snapshot

    monkeypatch.setattr(icechunk.Repository, "ancestry", counted)
    Repository.open_or_create(tmp_path / "store")
    # That of Icechunk's own beginning, of the creation and of three groups are there.
    assert len(read) == 2


def test_a_creation_that_died_half_way_is_finished(tmp_path):
    icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "store")))
    with pytest.raises(StoreNotFoundError, match="no attribute"):
        Repository.open(tmp_path / "store")
    repository = Repository.open_or_create(tmp_path / "store")
    assert repository.icechunk.config.inline_chunk_threshold_bytes == 2048


def test_racing_creations_agree(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(Repository.open_or_create, [tmp_path / "store"] * 4))
    assert len({repository.snapshot_id() for repository in found}) == 1


def test_commit_without_rebase_sees_what_came_first(uri):
    repository = Repository.create(uri)
    session, root = repository.write()
    root.create_group("late")
    put(repository, "early", rebase=False)
    with pytest.raises(ConflictError, match="came first"):
        repository.commit(session, "late", rebase=False)
    assert sorted(repository.read().group_keys()) == ["early"]


def test_commit_with_rebase_keeps_both(uri):
    repository = Repository.create(uri)
    session, root = repository.write()
    root.create_group("late")
    put(repository, "early", rebase=False)
    snapshot = repository.commit(session, "late", rebase=True)
    assert snapshot == repository.snapshot_id()
    assert sorted(repository.read().group_keys()) == ["early", "late"]


def test_rebase_over_the_same_node_names_it(uri):
    repository = Repository.create(uri)
    session, root = repository.write()
    root.create_group("same")
    put(repository, "same", rebase=False)
    with pytest.raises(ConflictError, match="/same") as caught:
        repository.commit(session, "same again", rebase=True)
    assert caught.value.paths == ("/same",)
    assert not caught.value.restructured


def test_update_runs_again_on_the_newer_snapshot(uri):
    repository = Repository.create(uri)
    seen = []

    def change(root):
        seen.append(sorted(root.group_keys()))
        if len(seen) == 1 and repository.location.directory is None:
            put(repository, "early", rebase=False)
        root.require_group("late")
        return len(seen)

    tries = repository.update("late", change)
    assert tries == len(seen)
    assert "late" in repository.read()


def test_update_without_changes_commits_nothing(uri):
    repository = Repository.create(uri)
    before = repository.snapshot_id()
    assert repository.update("nothing", lambda root: len(list(root))) == 0
    assert repository.snapshot_id() == before


def test_old_snapshots_stay_readable_and_unknown_ones_are_named(uri):
    repository = Repository.create(uri)
    before = repository.snapshot_id()
    put(repository, "group", rebase=False)
    assert list(repository.read(before).group_keys()) == []
    with pytest.raises(StoreError, match="no snapshot 'NOPE'"):
        repository.read("NOPE")


def test_read_only_store_refuses_writes(uri):
    Repository.create(uri)
    repository = Repository.open(uri, read_only=True)
    with pytest.raises(StoreError, match="opened read-only"):
        repository.write()
    assert pickle.loads(pickle.dumps(repository)).read_only


def test_a_commit_reaches_the_disk_before_the_branch_names_it(tmp_path, monkeypatch):
    repository = Repository.create(tmp_path / "store")
    tips = []
    for module in ("store.repository", "store.durable"):
        monkeypatch.setattr(
            f"{module}.sync_filesystem", lambda _: tips.append(repository.snapshot_id())
        )
    before = repository.snapshot_id()
    after = put(repository, "group", rebase=False)
    assert tips == [before, before]
    assert repository.snapshot_id() == after


def test_import_takes_logs_away_and_keeps_stdout_clean(tmp_path):
    program = (
        "import os, store.repository as r; assert os.environ['ICECHUNK_NO_LOGS'] == '1';"
        f"r.Repository.create({str(tmp_path / 'store')!r})"
    )
    root = str(Path(__file__).parents[2])
    quiet = {name: value for name, value in os.environ.items() if "ICECHUNK" not in name}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env=quiet,
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_logs_that_a_user_asked_for_are_left():
    program = "import os, store; assert 'ICECHUNK_NO_LOGS' not in os.environ"
    asked = {name: value for name, value in os.environ.items() if name != "ICECHUNK_NO_LOGS"}
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        cwd=Path(__file__).parents[2],
        env={**asked, "ICECHUNK_LOG": "warn"},
    )


def test_the_branch_is_main(memory_uri):
    repository = Repository.create(memory_uri)
    assert set(repository.icechunk.list_branches()) == {BRANCH}


def test_a_store_that_may_not_be_written_to_says_so(tmp_path):
    repository = Repository.create(tmp_path / "store")
    (tmp_path / "store" / ".actlas").rename(tmp_path / "aside")
    (tmp_path / "store" / ".actlas").touch()  # root may write everywhere, but not below a file
    with pytest.raises(StoreError, match=r"cannot write to the store at .* that you may write"):
        repository.update("change", lambda root: root.create_group("a"))
    assert "a" not in Repository.open(tmp_path / "store", read_only=True).read()
