from __future__ import annotations

import numpy as np
import pytest

from analysis.comparisons import compare_layers, compare_steps
from analysis.linear_pairs import PAIR_METRICS
from store.errors import UnknownNameError


def test_layers_of_a_checkpoint(stored) -> None:
    twin = np.stack([stored.values[0][0], stored.values[0][0] * 2, stored.values[0][1]])
    stored.add_step(20, twin)
    found = compare_layers(stored.repository, stored.path, step=20, sample=200)
    assert found["cka"].dims == ("layer", "other_layer")
    assert found["layer"].values.tolist() == [0, 1, 2]
    for name in ("cka", "procrustes", "linear_r2", "neighborhood_overlap"):
        assert found[name].sel(layer=0, other_layer=1).item() == pytest.approx(1, abs=1e-5), name
        assert found[name].sel(layer=0, other_layer=2).item() < 0.9, name
    assert set(PAIR_METRICS) | {"information_imbalance"} <= set(found.data_vars)
    assert found["n"] == 200
    assert found.attrs["path"] == stored.path


def test_steps_of_a_layer(stored) -> None:
    stored.add_step(20, stored.values[0])
    found = compare_steps(stored.repository, stored.path, layer=1, sample=200)
    assert found["cka"].dims == ("step", "other_step")
    assert found["cka"].sel(step=0, other_step=20).item() == pytest.approx(1)
    assert found["cka"].sel(step=0, other_step=10).item() < 0.9


def test_only_what_is_asked_for(stored) -> None:
    found = compare_layers(stored.repository, stored.path, step=0, layers=[2, 0], sample=100)
    assert found["layer"].values.tolist() == [2, 0]


def test_a_step_that_is_not_there_is_named(stored) -> None:
    with pytest.raises(UnknownNameError, match="step"):
        compare_layers(stored.repository, stored.path, step=5)
