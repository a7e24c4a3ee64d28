"""The token axis of a model grows with its corpus; steps follow, and no reader sees half of it."""

import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store import open_store
from store.catalogue import catalogue, find_step
from store.corpora import grow_corpus, text_columns
from store.create import ArraySpec, create_model
from store.errors import ConflictError, IdentityConflictError, InvalidBlockError
from store.repository import Repository
from store.schema import SITES, TOKEN, TOKEN_COORDINATES
from store.verify import census
from store.write import AlreadyStored, reserve_step

SHORT = {"corpus": "short"}
LONG = {"corpus": "long"}
SMALL_SITES = ("residual", "final_norm")


def tokens(toy, n):
    columns = {name: np.zeros(n, item.dtype) for name, item in TOKEN_COORDINATES.items()}
    return columns | {"token_id": np.arange(n), "position": np.arange(n) % 25}


def lengthen(toy, repository, n, sha="long", rows=16):
    arrays = [
        ArraySpec(spec.variable, {**spec.sizes, TOKEN: n})
        for spec in map(toy.array_spec, SMALL_SITES)
    ]
    attributes = {"n_blocks": toy.N_BLOCKS, "width": toy.WIDTH, "corpus_sha256": sha}
    create_model(
        repository,
        "plays",
        "owner/toy",
        arrays=arrays,
        tokens=tokens(toy, n),
        attributes=attributes | {"chunk_rows": rows},
    )


def prepare(toy, uri, n=50, rows=16):
    """A store whose corpus has the content ``short``, and a model of n tokens."""
    repository = toy.prepare(uri, sites=(), model="unused")
    lengthen(toy, repository, n, sha=toy.CORPUS.content_sha256, rows=rows)
    return repository


def grow(toy, repository, n, rows=16):
    former = toy.CORPUS.content_sha256
    entries = [
        {"content_sha256": digest, "length": length, "max_sequences": None}
        for digest, length in ((former, 2), ("long", 3))
    ]
    spec = replace(toy.CORPUS, content_sha256="long", growth=entries)
    grow_corpus(repository, spec, text_columns(["more"], ["b"], [0]), former_sha256=former)
    lengthen(toy, repository, n, rows=rows)


def values(toy, step, site, n):
    """The first n rows of what does not depend on n."""
    dims = SITES[site].dims[1:]
    shape = [200 if dim == TOKEN else toy.SIZES[dim] for dim in dims]
    whole = np.random.default_rng([step, len(site)]).standard_normal(shape, dtype=np.float32)
    return whole.take(range(n), axis=dims.index(TOKEN))


def write_rest(toy, writer):
    for site in writer.sites:
        start = writer.held_tokens - writer.held_tokens % writer.chunk_rows
        whole = values(toy, writer.step, site, writer.n_tokens)
        axis = SITES[site].dims[1:].index(TOKEN)
        rest = whole.take(range(start, writer.n_tokens), axis=axis)
        if writer.held_tokens:
            held = writer.held_rows(site)
            np.testing.assert_array_equal(held, rest.take(range(held.shape[axis]), axis=axis))
        writer.write_block(site, start, rest)


def store_step(toy, repository, step, identity, grown_from=()):
    writer = reserve_step(repository, toy.PATH, step, identity=identity, grown_from=grown_from)
    if isinstance(writer, AlreadyStored):
        return False
    with writer:
        write_rest(toy, writer)
        writer.commit(provenance={"weights_sha256": str(step)})
    return True


def assert_shown(toy, repository, steps, n):
    model = open_store(repository.uri)[toy.PATH].to_dataset()
    assert list(model.step.values) == steps
    assert model.sizes[TOKEN] == len(model.token_id) == n
    for step in steps:
        for site in SMALL_SITES:
            np.testing.assert_array_equal(model[site].sel(step=step), values(toy, step, site, n))


def test_a_model_is_shown_as_it_was_until_its_last_step_is_longer(toy, uri):
    repository = prepare(toy, uri)
    for step in (1, 2):
        store_step(toy, repository, step, SHORT)
    assert open_store(repository.uri).attrs["actlas_format"] == 1
    grow(toy, repository, 90)
    assert open_store(repository.uri).attrs["actlas_format"] == 2
    assert_shown(toy, repository, [1, 2], 50)
    assert store_step(toy, repository, 2, LONG, [SHORT])
    assert_shown(toy, repository, [1, 2], 50)
    assert store_step(toy, repository, 3, LONG, [SHORT])
    assert_shown(toy, repository, [1, 2, 3], 50)
    assert store_step(toy, repository, 1, LONG, [SHORT])
    assert_shown(toy, repository, [1, 2, 3], 90)
    assert not store_step(toy, repository, 1, LONG, [SHORT])
    assert census(repository) == []


def test_what_a_step_holds_is_counted_as_if_it_had_been_written_at_once(toy, memory_uri):
    grown = prepare(toy, memory_uri)
    store_step(toy, grown, 1, SHORT)
    grow(toy, grown, 90)
    store_step(toy, grown, 1, LONG, [SHORT])
    whole = prepare(toy, memory_uri + "-whole", n=90)
    store_step(toy, whole, 1, LONG)
    one, two = (find_step(repository, toy.PATH, 1) for repository in (grown, whole))
    assert one.stored_bytes == two.stored_bytes
    name = "residual_checksum"
    first, second = (r.read()[toy.PATH][name][0] for r in (grown, whole))
    np.testing.assert_array_equal(first, second)


@settings(max_examples=5, deadline=None)
@given(
    short=st.integers(1, 70),
    more=st.integers(1, 70),
    rows=st.sampled_from([1, 16, 64]),
    order=st.permutations([1, 2]),
)
def test_any_lengths_and_chunks(toy, short, more, rows, order):
    repository = prepare(toy, f"memory://grow-{short}-{more}-{rows}-{order[0]}", short, rows)
    for step in order:
        store_step(toy, repository, step, SHORT)
    grow(toy, repository, short + more, rows)
    for step in reversed(order):
        assert_shown(toy, repository, [1, 2], short)
        store_step(toy, repository, step, LONG, [SHORT])
    assert_shown(toy, repository, [1, 2], short + more)
    assert census(repository) == []


def test_a_writer_under_way_while_the_axis_grows_stores_what_it_has(toy, uri):
    repository = prepare(toy, uri)
    store_step(toy, repository, 1, SHORT)
    with reserve_step(repository, toy.PATH, 2, identity=SHORT) as writer:
        write_rest(toy, writer)
        grow(toy, repository, 90)
        store_step(toy, repository, 1, LONG, [SHORT])
        assert_shown(toy, repository, [1], 90)
        writer.commit(provenance={})
    assert_shown(toy, repository, [1, 2], 50)
    store_step(toy, repository, 2, LONG, [SHORT])
    assert_shown(toy, repository, [1, 2], 90)
    assert census(repository) == []


def test_an_extension_that_was_given_up_leaves_the_step_as_it_was(toy, uri):
    repository = prepare(toy, uri)
    store_step(toy, repository, 1, SHORT)
    grow(toy, repository, 90)
    with (
        reserve_step(repository, toy.PATH, 1, identity=LONG, grown_from=[SHORT]) as writer,
        pytest.raises(InvalidBlockError, match=r"start with held_rows\(\)"),
    ):
        writer.write_block("residual", 48, np.zeros((4, 42, 64), np.float32))
    assert_shown(toy, repository, [1], 50)
    assert census(repository) == []
    (held,) = catalogue(repository, model="owner/toy")
    assert (held.n_tokens, held.token_axis) == (50, 90)


def test_other_identities_do_not_grow(toy, uri):
    repository = prepare(toy, uri)
    store_step(toy, repository, 1, {"corpus": "another"})
    grow(toy, repository, 90)
    with pytest.raises(IdentityConflictError, match="another"):
        store_step(toy, repository, 1, LONG, [SHORT])


def test_other_tokens_are_refused_although_the_corpus_grew(toy, uri):
    repository = prepare(toy, uri)
    grow(toy, repository, 90)
    with pytest.raises(IdentityConflictError, match="stored 90 tokens, wanted 60"):
        lengthen(toy, repository, 60)
    with pytest.raises(ConflictError, match="changed by another writer"):
        grow(toy, repository, 90)
    reopened = Repository.open(repository.uri)
    assert reopened.read()["plays"]["text"].shape == (3,)


def test_an_ingest_that_began_before_the_growth_still_fits_a_model_that_did_not_grow(toy, uri):
    repository = toy.prepare(uri, sites=(), model="unused")
    former = toy.CORPUS.content_sha256
    entries = [
        {"content_sha256": digest, "length": length, "max_sequences": None}
        for digest, length in ((former, 2), ("long", 3))
    ]
    spec = replace(toy.CORPUS, content_sha256="long", growth=entries)
    grow_corpus(repository, spec, text_columns(["more"], ["b"], [0]), former_sha256=former)
    lengthen(toy, repository, 50, sha=former)
    assert store_step(toy, repository, 1, SHORT)
    lengthen(toy, repository, 90)
    with pytest.raises(IdentityConflictError, match="The corpus grew meanwhile: run it again"):
        lengthen(toy, repository, 50, sha=former)
    assert store_step(toy, repository, 1, LONG, [SHORT])
    assert_shown(toy, repository, [1], 90)


def test_a_grown_store_of_an_earlier_version_opens_for_ever(toy, tmp_path):
    """``data/store-format-2.tar.gz`` is of the first version of format 2. Never replace it.

    Steps 1 and 2 had 50 tokens before the corpus grew; step 1 has 90.
    """
    archive = Path(__file__).with_name("data") / "store-format-2.tar.gz"
    with tarfile.open(archive) as archived:
        archived.extractall(tmp_path, filter="data")
    repository = Repository.open(tmp_path / "store-format-2")
    assert_shown(toy, repository, [1, 2], 50)
    assert census(repository) == []
    store_step(toy, repository, 2, LONG, [SHORT])
    assert_shown(toy, repository, [1, 2], 90)
    assert census(repository) == []


def test_steps_grow_side_by_side(toy, tmp_path):
    repository = prepare(toy, str(tmp_path / "store"))
    for step in range(4):
        store_step(toy, repository, step, SHORT)
    grow(toy, repository, 90)

    def extend(step):
        own = Repository.open(repository.uri)
        lengthen(toy, own, 90)
        return store_step(toy, own, step, LONG, [SHORT])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(extend, range(4)))
    assert_shown(toy, repository, [0, 1, 2, 3], 90)
    assert census(repository) == []
