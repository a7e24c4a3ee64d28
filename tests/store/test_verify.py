import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from zarr.core.sync import sync

from store.errors import UnknownNameError
from store.token_digests import TOKEN_DIGESTS
from store.verify import census
from store.write import reserve_step

SITES = ("residual", "final_norm", "query")


def test_a_sound_store_has_no_findings(toy, uri):
    repository = toy.prepare(uri, SITES)
    for step in (0, 9):
        toy.ingest(repository, step)
    reserve_step(repository, toy.PATH, 99, identity={})
    done = []
    assert census(repository, progress=lambda at, all_: done.append((at, all_))) == []
    # A step has 4 layers of residual, 3 blocks of query, and final_norm: 8, and there are two.
    assert done == [(at, 16) for at in range(1, 17)]


def test_an_empty_store_has_no_findings(toy, memory_uri):
    assert census(toy.prepare(memory_uri)) == []


def flip_byte(path):
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-7])


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "kind", "detail"),
    [
        (Path.unlink, "missing", "the chunk is missing"),
        (cut_short, "truncated", "bytes are left of"),
        (empty, "truncated", "shorter than what was written"),
        (flip_byte, "corrupt", "the checksum of its .* bytes differs"),
    ],
)
def test_damage_is_found_where_it_is(toy, disk_repository, chunk_file, damage, kind, detail):
    for step in (3, 7):
        toy.ingest(disk_repository, step)
    # Step 7 is in slot 1; chunk 3 of layer 2 holds the last two of 50 tokens, 16 a chunk.
    damage(chunk_file(disk_repository, f"{toy.PATH}/residual/c/1/2/3/0"))
    (finding,) = census(disk_repository)
    assert (finding.kind, finding.path, finding.site) == (kind, toy.PATH, "residual")
    assert (finding.step, finding.layer, finding.tokens) == (7, 2, (48, 50))
    assert re.search(detail, finding.detail)


def test_several_damages_come_in_order(toy, disk_repository, chunk_file):
    toy.ingest(disk_repository, 7)
    paths = [
        chunk_file(disk_repository, f"{toy.PATH}/{key}")
        for key in ("residual/c/0/0/1/0", "residual/c/0/3/0/0", "final_norm/c/0/2/0")
    ]
    for path in paths:
        path.unlink()
    assert [(found.site, found.layer, found.tokens) for found in census(disk_repository)] == [
        ("residual", 0, (16, 32)),
        ("residual", 3, (0, 16)),
        ("final_norm", None, (32, 48)),
    ]


def test_values_other_than_those_recorded_are_found(toy, memory_uri):
    """A well-formed chunk in the wrong place, which no codec notices."""
    repository = toy.prepare(memory_uri)
    toy.ingest(repository, 7)

    def swap(root):
        residual = root[toy.PATH]["residual"]
        residual[0, 1, 16:32] = residual[0, 2, 16:32]

    repository.update("overwrite", swap)
    (finding,) = census(repository)
    assert (finding.kind, finding.layer, finding.tokens) == ("corrupt", 1, (16, 32))
    assert "was recorded when written" in finding.detail


def test_a_chunk_deleted_from_the_metadata_is_missing(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    toy.ingest(repository, 7)
    key = f"{toy.PATH}/residual/c/0/2/1/0"
    repository.update("delete", lambda root: sync(root.store.delete(key)))
    (finding,) = census(repository)
    assert (finding.kind, finding.layer, finding.tokens) == ("missing", 2, (16, 32))


def test_values_that_were_not_finite_when_written_are_no_finding(toy, memory_uri):
    repository = toy.prepare(memory_uri, ("residual",))
    values = toy.values(7, "residual")
    values[1, 5, :3] = [np.nan, np.inf, -np.inf]
    with reserve_step(repository, toy.PATH, 7, identity={}, allow_nonfinite=True) as writer:
        writer.write_block("residual", 0, values)
        writer.commit(provenance={})
    assert census(repository) == []

    def recount(root):
        root[toy.PATH]["nonfinite"][0] = 0

    repository.update("deny", recount)
    (finding,) = census(repository)
    assert (finding.kind, finding.step, finding.tokens) == ("nonfinite", 7, None)
    assert finding.detail == "3 values are NaN or infinite, 0 were when written"


def test_damaged_token_coordinates_are_found(toy, disk_repository, chunk_file):
    toy.ingest(disk_repository, 7)
    chunk_file(disk_repository, f"{toy.PATH}/token_id/c/0").unlink()
    (finding,) = census(disk_repository)
    assert (finding.kind, finding.site, finding.step) == ("corrupt", "token_id", None)
    assert finding.detail.startswith("cannot be read")


def test_only_what_is_asked_for_is_checked(toy, disk_repository, chunk_file):
    toy.prepare(disk_repository.uri, model="other")
    toy.ingest(disk_repository, 7)
    chunk_file(disk_repository, f"{toy.PATH}/residual/c/0/0/0/0").unlink()
    assert census(disk_repository, "plays/other") == []
    assert len(census(disk_repository, "plays")) == 1
    assert len(census(disk_repository, toy.PATH)) == 1
    with pytest.raises(UnknownNameError, match="no model 'toy' in plays"):
        census(disk_repository, "plays/toy")


def test_a_text_that_is_not_the_one_added_is_found(toy, memory_uri):
    repository = toy.prepare(memory_uri)

    def change(root):
        root["plays/text"][1] = "or nott"

    repository.update("damage", change)
    (finding,) = census(repository)
    assert (finding.kind, finding.path, finding.site) == ("corrupt", "plays", "text")
    assert finding.detail.startswith("text 1 has SHA-256")
    assert census(repository, toy.PATH) == []


def change_token(toy, repository, *, digests=True):
    """Give token 30 another id, as whoever overwrites a column; forget the digests if told to."""
    session, root = repository.write()
    root[toy.PATH]["token_id"][30] = 7
    if not digests:
        del root[toy.PATH].attrs[TOKEN_DIGESTS]
    repository.commit(session, "change a token", rebase=False)


def test_a_changed_token_column_is_found(toy, uri):
    repository = toy.prepare(uri)
    toy.ingest(repository, 1)
    change_token(toy, repository)
    (found,) = census(repository)
    assert (found.kind, found.site, found.step) == ("corrupt", "token_id", None)
    assert re.search(r"values have SHA-256 \w{12}, \w{12} was recorded", found.detail)


def test_tokens_that_are_not_those_a_step_was_made_from_are_found(toy, memory_uri):
    repository = toy.prepare(memory_uri, attributes={"n_sequences": 2})
    # Two sequences of 25 tokens whose ids are 0 to 49, as docs/STORE_FORMAT.md says it.
    content = b"actlas tokens 1\n" + np.array([0, 25, 50], "<i8").tobytes()
    digest = hashlib.sha256(content + np.arange(50, dtype="<i4").tobytes()).hexdigest()
    writer = reserve_step(repository, toy.PATH, 5, identity={})
    with writer:
        toy.write_all(writer)
        writer.commit(provenance={"tokens_sha256": digest})
    assert census(repository) == []
    change_token(toy, repository, digests=False)
    (found,) = census(repository)
    assert (found.site, found.step) == ("token_id", 5)
    assert f"the step was made from tokens of {digest[:12]}" in found.detail
