"""Options of the neighbour search as they reach it from a store."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.compute import measure
from store.metrics import read_metrics


def results(stored):
    found = read_metrics(stored.repository, stored.path)
    assert found is not None
    return found.load()


def test_neighbours_of_ones_own_sequence_can_be_left_out(stored) -> None:
    # Every sequence is a tight cluster along a line of its own: near neighbours are its own.
    rng = np.random.default_rng(3)
    sequence = stored.tokens["sequence"]
    centres = 100 * rng.standard_normal((sequence.max() + 1, 8))
    line = rng.standard_normal((len(centres), 8))
    rows = centres[sequence] + line[sequence] * rng.standard_normal((len(sequence), 1))
    stored.add_step(20, np.repeat(rows[None].astype(np.float32), 3, axis=0))
    options = {"metrics": ["two_nn_mle"], "steps": [20], "layers": [0], "sample": 400}
    measure(stored.repository, stored.path, **options)
    own = results(stored)["two_nn_mle"].sel(step=20, layer=0, population="content").item()
    report = measure(stored.repository, stored.path, exclude_own_sequence=True, **options)
    assert report.computed == 1
    other = results(stored)["two_nn_mle"].sel(step=20, layer=0, population="content").item()
    assert own == pytest.approx(1, abs=0.3)
    assert other > 3 * own


def test_the_estimate_at_fewer_rows_is_stored(stored) -> None:
    names = ["two_nn", "two_nn_decimated", "gride", "gride_decimated", "mle", "mle_decimated"]
    measure(stored.repository, stored.path, metrics=names, steps=[0], layers=[1], sample=400)
    found = results(stored).sel(step=0, layer=1, population="content")
    assert found["decimation"].values.tolist() == [1, 2, 4, 8]
    curve = found["two_nn_decimated"].values
    assert curve[0] == found["two_nn"]
    assert np.isfinite(curve).all()
    assert np.isfinite(found["two_nn_decimated_stderr"].values[1:]).all()
    assert found["mle_decimated"].dims == ("decimation",)
    assert found["mle_decimated"].values[0] == found["mle"]
    assert found["mle_decimated"].values[3] < found["mle"]
    assert found["gride_decimated"].dims == ("decimation", "scale")
    np.testing.assert_array_equal(found["gride_decimated"][0], found["gride"])
    # A Gaussian in eight dimensions: fewer rows read it no higher.
    assert curve[3] < curve[0] + 4 * found["two_nn_decimated_stderr"].values[3]
