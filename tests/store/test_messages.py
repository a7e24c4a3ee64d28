"""What commits say of themselves: each alone tells what it did."""

from __future__ import annotations

import pytest
import toy_extension

from store.history import history
from store.messages import added_metrics, dropped_sites, listed, site_name
from store.repository import Repository
from store.retention import drop_activations


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1, 2, 4, 8, 16], "0,1,2,4,8,16"),
        ([0, 1, 2, 4, 8, 16, 512], "0,1,2,4,…,512 (7)"),
    ],
)
def test_numbers_are_listed_as_far_as_they_are_few(numbers: list[int], told: str) -> None:
    assert listed(numbers) == told


@pytest.mark.parametrize(
    ("site", "layers", "told"),
    [
        ("residual", [0, 1, 2, 3], "residual"),
        ("mlp_output", [1, 2, 3], "mlp_output"),
        ("residual", [1, 2, 3], "residual[1:4]"),
        ("residual", [0, 2, 3], "residual[0,2:4]"),
        ("final_norm", [], "final_norm"),
    ],
)
def test_sites_are_named_with_their_layers(site: str, layers: list[int], told: str) -> None:
    assert site_name(site, layers, 3) == told


def test_metrics_are_named_as_far_as_they_are_few() -> None:
    assert added_metrics("c/m", ["two_nn"], [5]) == "add two_nn of c/m, step 5"
    many = ["a", "b", "c", "d"]
    assert added_metrics("c/m", many, [0, 5]) == "add 4 metrics of c/m, steps 0,5"
    assert dropped_sites("c/m", ["query", "key"], [5]) == "drop query, key of c/m, step 5"


def test_extensions_say_what_they_added(memory_uri: str) -> None:
    repository = toy_extension.prepare(memory_uri)
    for what in ("layers", "sites"):
        toy_extension.extend(repository, what, 1)
    toy_extension.grow(repository)
    toy_extension.extend(repository, "tokens", 1)
    drop_activations(repository, "plays/owner--toy", steps=[2])
    messages = [one.message for one in history(Repository.open(memory_uri))]
    assert messages[0].startswith("drop residual")
    assert messages[0].endswith(" of plays/owner--toy, step 2")
    for part in (
        "add corpus plays: ",
        "grow corpus plays: ",
        "add model plays/owner--toy: residual",
        "make room in plays/owner--toy: ",
        "store plays/owner--toy step 1: residual[0,3] beside ",
        "store plays/owner--toy step 1: 40 more tokens of residual",
    ):
        assert any(message.startswith(part) for message in messages), (part, messages)
