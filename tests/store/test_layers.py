"""Layers come later, in any order, some to some steps: each is stored once, and none moves."""

import itertools
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store import cube, open_store
from store.catalogue import catalogue, find_step
from store.create import ArraySpec, create_model
from store.errors import IncompleteError, StoreError, UnknownNameError
from store.held_layers import SITE_LAYERS
from store.repository import Repository
from store.schema import depth_dimension
from store.slab import slabs
from store.verify import census
from store.write import AlreadyStored, reserve_step

DEEP = ("residual", "mlp_output")
EVERY = (0, 1, 2, 3)
NUMBERS = itertools.count()


def create(toy, repository, layers, sites=("residual", "final_norm"), step_capacity=64):
    """Create the toy's group for some layers, or make room for them in it."""
    sizes = {"layer": len(layers), "block": len([n for n in layers if n])}
    arrays = [
        ArraySpec(one.variable, {**one.sizes, **{d: sizes[d] for d in sizes if d in one.sizes}})
        for one in map(toy.array_spec, sites)
    ]
    facts = {"n_blocks": toy.N_BLOCKS, "width": toy.WIDTH, "chunk_rows": toy.ROWS}
    if tuple(layers) != EVERY:
        facts["layer_choice"] = list(layers)
    create_model(
        repository,
        "plays",
        "owner/toy",
        arrays=arrays,
        tokens=toy.tokens(),
        attributes=facts,
        step_capacity=step_capacity,
    )


def of_layers(toy, step, site, labels, variant=0):
    whole = toy.values(step, site, variant)
    first = 0 if depth_dimension(site) == "layer" else 1
    return whole[[label - first for label in labels]]


def write(toy, writer, variant=0):
    for site in writer.sites:
        deep = site in writer.layers
        labels = writer.layers.get(site, ())
        rows = of_layers(toy, writer.step, site, labels, variant) if deep else None
        rows = toy.values(writer.step, site, variant) if rows is None else rows
        writer.write_block(site, 0, rows)


def add(toy, repository, step, layers, sites=("residual", "final_norm"), variant=0, **options):
    """Store layers of a step; return what had to be written, None for nothing."""
    create(toy, repository, layers, sites)
    asked = {"identity": {"variant": variant}, "sites": sites, "layers": layers, **options}
    writer = reserve_step(repository, toy.PATH, step, **asked)
    if isinstance(writer, AlreadyStored):
        return None
    with writer:
        write(toy, writer, variant)
        writer.commit(provenance={"weights_sha256": str(step)})
    return {site: writer.layers.get(site) for site in writer.sites}


def prepare(toy, uri, layers, **options):
    repository = toy.prepare(uri, sites=(), model="unused")
    create(toy, repository, layers, **options)
    return repository


def assert_holds(toy, repository, expected, variant=0):
    """Compare all ways to read with what is expected: step → site → layers or blocks."""
    assert census(repository) == []
    model = open_store(repository.uri)[toy.PATH].to_dataset()
    union = sorted({n for sites in expected.values() for own in sites.values() for n in own})
    assert list(model.step.values) == sorted(expected)
    shown = model.layer.values.tolist()
    # Where all steps hold all there is, layer 0 is listed even if only blocks are stored.
    assert shown in (union, [0, *union])
    np.testing.assert_allclose(model.relative_depth, np.array(shown) / toy.N_BLOCKS)
    for step, sites in expected.items():
        for site, labels in sites.items():
            dim = depth_dimension(site)
            rows = model[site].sel(step=step)
            np.testing.assert_array_equal(
                rows.sel({dim: list(labels)}), of_layers(toy, step, site, labels, variant)
            )
            others = [n for n in model[dim].values if n not in labels]
            assert np.isnan(rows.sel({dim: others}).values).all()
            found = slabs(repository, toy.PATH, site=site, steps=[step])
            assert [slab.label for slab in found] == [(dim, n) for n in labels]
            for slab, label in zip(found, labels, strict=True):
                alone = of_layers(toy, step, site, [label], variant)[0]
                np.testing.assert_array_equal(slab.rows(np.arange(toy.N_TOKENS)), alone)
        assert find_step(repository, toy.PATH, step).layers == sites
    (held,) = catalogue(repository, model="owner/toy")
    assert list(held.layers) == shown


def test_a_further_range_is_stored_alone(toy, memory_uri):
    repository = prepare(toy, memory_uri, (0, 1))
    assert add(toy, repository, 5, (0, 1)) == {"residual": (0, 1), "final_norm": None}
    assert repository.read().attrs["actlas_format"] == 1
    before = repository.read()[toy.PATH]["residual_checksum"][0]
    assert add(toy, repository, 5, (2, 3)) == {"residual": (2, 3)}
    assert repository.read().attrs["actlas_format"] == 3
    np.testing.assert_array_equal(
        repository.read()[toy.PATH]["residual_checksum"][0][: len(before)], before
    )
    assert_holds(toy, repository, {5: {"residual": EVERY}})
    assert add(toy, repository, 5, EVERY) is None
    assert list(repository.read()[toy.PATH]["layer"][:]) == [0, 1, 2, 3]
    whole = prepare(toy, f"{memory_uri}-whole", EVERY)
    add(toy, whole, 5, EVERY)
    one, two = (find_step(each, toy.PATH, 5) for each in (repository, whole))
    assert (one.stored_bytes, one.sites) == (two.stored_bytes, two.sites)


def test_earlier_layers_come_first_however_late_they_are_stored(toy, memory_uri):
    repository = prepare(toy, memory_uri, (2, 3))
    add(toy, repository, 5, (2, 3))
    add(toy, repository, 5, (0,))
    assert list(repository.read()[toy.PATH]["layer"][:]) == [2, 3, 0]
    assert_holds(toy, repository, {5: {"residual": (0, 2, 3)}})
    values = cube(repository.uri, corpus="plays", models=["owner/toy"])
    assert list(values.layer.values) == [0, 2, 3]
    np.testing.assert_array_equal(
        values.sel(model="owner/toy", step=5, layer=[0, 3]),
        of_layers(toy, 5, "residual", (0, 3)),
    )


@settings(max_examples=6, deadline=None)
@given(
    requests=st.lists(
        st.tuples(
            st.sampled_from([1, 2, 3]),
            st.sets(st.sampled_from(EVERY), min_size=1).map(sorted).map(tuple),
            st.sampled_from([("residual",), ("mlp_output",), DEEP]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_order_of_steps_layers_and_sites(toy, requests):
    repository = toy.prepare(
        f"memory://layers-{abs(hash(str(requests)))}", sites=(), model="unused"
    )
    expected = {}
    for step, layers, sites in requests:
        wanted = {
            site: [n for n in layers if n or depth_dimension(site) == "layer"] for site in sites
        }
        sites = tuple(site for site in sites if wanted[site])
        if not sites:
            continue
        held = expected.setdefault(step, {})
        new = {
            site: tuple(n for n in wanted[site] if n not in held.get(site, ())) for site in sites
        }
        written = add(toy, repository, step, layers, sites)
        assert (written or {}) == {site: labels for site, labels in new.items() if labels}
        for site in sites:
            held[site] = tuple(sorted({*held.get(site, ()), *wanted[site]}))
    if expected:
        assert_holds(toy, repository, expected)


def test_a_writer_under_way_while_layers_are_added_stores_what_it_has(toy, uri):
    repository = prepare(toy, uri, (0, 1))
    add(toy, repository, 1, (0, 1))
    with reserve_step(repository, toy.PATH, 2, identity={"variant": 0}) as writer:
        write(toy, writer)
        add(toy, repository, 1, EVERY)
        assert_holds(toy, repository, {1: {"residual": EVERY}})
        writer.commit(provenance={})
    assert_holds(toy, repository, {1: {"residual": EVERY}, 2: {"residual": (0, 1)}})


def test_layers_that_were_given_up_are_not_shown(toy, memory_uri):
    repository = prepare(toy, memory_uri, (0, 1))
    add(toy, repository, 1, (0, 1))
    create(toy, repository, EVERY)
    asked = {"identity": {"variant": 0}, "sites": ["residual"], "layers": EVERY}
    with (
        reserve_step(repository, toy.PATH, 1, **asked) as writer,
        pytest.raises(IncompleteError, match="residual were not written"),
    ):
        writer.commit(provenance={})
    assert_holds(toy, repository, {1: {"residual": (0, 1)}})
    assert add(toy, repository, 1, EVERY, ("residual",)) == {"residual": (2, 3)}
    assert_holds(toy, repository, {1: {"residual": EVERY}})


def rewritten_at(toy, repository):
    return datetime.fromisoformat(str(repository.read()[toy.PATH]["rewritten_at"][0]))


def test_replacing_and_rewriting_keep_to_the_layers(toy, memory_uri):
    repository = prepare(toy, memory_uri, EVERY)
    add(toy, repository, 1, EVERY, (*DEEP, "final_norm"))
    add(toy, repository, 1, (1, 2), ("residual", "final_norm"), variant=1, supersede=True)
    assert_holds(toy, repository, {1: {"residual": (1, 2)}}, variant=1)
    group = repository.read()[toy.PATH]
    assert np.isnan(group["residual"][0, [0, 3]]).all()
    assert not group["residual_checksum"][0, [0, 3]].any()
    again = add(toy, repository, 1, EVERY, ("residual",), variant=1, rewrite=True)
    assert again == {"residual": (1, 2)}
    assert_holds(toy, repository, {1: {"residual": (1, 2)}}, variant=1)
    earlier = rewritten_at(toy, repository)
    add(toy, repository, 1, EVERY, ("residual",), variant=1, rewrite=True)
    assert earlier < rewritten_at(toy, repository)  # Even if it was in the same second.


def test_a_lost_chunk_of_a_layer_is_found(toy, memory_uri):
    repository = prepare(toy, memory_uri, (2, 3))
    add(toy, repository, 1, (2, 3), ("residual",))
    add(toy, repository, 1, (0,), ("residual",))
    session, root = repository.write()
    group = root[toy.PATH]
    group["residual_checksum"][0, 2, 1] += 1
    repository.commit(session, "break it", rebase=False)
    (found,) = census(repository)
    assert (found.kind, found.layer, found.tokens) == ("corrupt", 0, (16, 32))


def test_what_cannot_be_is_refused(toy, memory_uri):
    repository = prepare(toy, memory_uri, (0, 1), sites=DEEP)
    with pytest.raises(UnknownNameError, match=r"no layer 3 in plays/owner--toy"):
        reserve_step(repository, toy.PATH, 1, identity={}, layers=[3])
    with pytest.raises(StoreError, match="mlp_output of plays/owner--toy has no value at layer 0"):
        reserve_step(repository, toy.PATH, 1, identity={}, sites=["mlp_output"], layers=[0])


def test_a_store_in_which_each_step_holds_all_says_nothing_of_layers(toy, memory_uri):
    repository = prepare(toy, memory_uri, EVERY)
    add(toy, repository, 1, EVERY)
    assert Repository.open(repository.uri).read().attrs["actlas_format"] == 1
    assert repository.read()[toy.PATH][SITE_LAYERS][0] == ""
