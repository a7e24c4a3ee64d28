import numpy as np
import pytest

from store.cells import read_cells, update_cells
from store.write import reserve_step


def commit(repository, toy, *, supersede=False, variant=0, **provenance):
    identity = {"variant": variant}
    with reserve_step(
        repository, toy.PATH, 1, identity=identity, supersede=supersede, sites=["final_norm"]
    ) as writer:
        toy.write_all(writer, variant)
        writer.commit(provenance=provenance)
    return repository.read()[toy.PATH]


def touched(repository):
    """Return the arrays whose chunks the newest commit wrote, without the path of their group."""
    parent = list(repository.icechunk.ancestry(branch="main"))[1].id
    changes = repository.icechunk.diff(
        from_snapshot_id=parent, to_snapshot_id=repository.snapshot_id()
    )
    return {name.split("/")[-1] for name in changes.updated_chunks}


def test_what_reads_as_empty_anyway_is_not_written(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    group = commit(repository, toy, revision="main", source_dtype="float32")
    assert touched(repository) == {
        *("complete", "writer", "sites", "n_tokens", "revision", "source_dtype", "stored_bytes"),
        *("identity", "ingested_at", "final_norm", "final_norm_checksum"),
    }
    names = ("precision", "checkpoint", "weights_sha256", "nonfinite", "revision")
    assert read_cells(group, 0, *names) == ["", "", "", 0, "main"]
    assert np.isnan(group["loss"][0])


def test_what_a_step_had_before_does_not_stay(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    commit(repository, toy, revision="old", precision="bfloat16", loss=2.5)
    group = commit(repository, toy, supersede=True, variant=1, revision="old")
    assert read_cells(group, 0, "revision", "precision") == ["old", ""]
    assert np.isnan(group["loss"][0])
    assert {"precision", "loss"} <= touched(repository)
    assert "checkpoint" not in touched(repository)


@pytest.mark.parametrize("value", [0.0, -0.0, np.nan, np.inf, 1.5])
def test_a_cell_is_what_was_written_last(toy, memory_uri, value):
    repository = toy.prepare(memory_uri)
    session, root = repository.write()
    group = root[toy.PATH]
    for before in (value, 3.0, value):
        update_cells(group, 2, {"loss": before})
    repository.commit(session, "a loss", rebase=False)
    (found,) = read_cells(repository.read()[toy.PATH], 2, "loss")
    assert np.float64(found).tobytes() == np.float64(value).tobytes()
