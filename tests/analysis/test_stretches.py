"""A long layer divided over tasks gives what one pass over it gives."""

from __future__ import annotations

import numpy as np
import pytest

from analysis import stretches
from analysis.compute import measure
from store.metrics import read_metrics

NAMES = ["average_cosine", "average_cosine_within", "svd_anisotropy", "max_norm_ratio", "curvature"]


def results(stored):
    found = read_metrics(stored.repository, stored.path)
    assert found is not None
    return found.load()


@pytest.mark.parametrize("bytes_each", [20 * 25 * 8 * 4 // 3, 100])
def test_stretches_of_a_layer_are_the_layer(
    tmp_path, make_stored, monkeypatch: pytest.MonkeyPatch, bytes_each: int
) -> None:
    whole, parts = (make_stored(str(tmp_path / name)) for name in ("whole", "parts"))
    options = {"metrics": [*NAMES, "two_nn", "partition_isotropy"], "sample": 200}
    measure(whole.repository, whole.path, **options)
    monkeypatch.setattr(stretches.divide, "__defaults__", (bytes_each,))
    told: list[tuple[int, int]] = []
    report = measure(
        parts.repository, parts.path, progress=lambda *done: told.append(done), **options
    )
    assert report.slabs == 3
    assert told == [(1, 3)] * 3
    expected = results(whole)
    found = results(parts).reindex_like(expected)  # populations lie in the order of arrival
    assert set(found.data_vars) == set(expected.data_vars)
    for name in expected.data_vars:
        # Blocks of products are cut elsewhere, so that float32 rounds otherwise.
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-6, atol=1e-7, err_msg=name)


def test_norms_that_grow_are_passed_over_again(
    tmp_path, make_stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = make_stored(str(tmp_path / "store"))
    rows = np.random.default_rng(0).standard_normal((500, 8)) * np.geomspace(1, 1e4, 500)[:, None]
    stored.add_step(10, np.stack([rows.astype(np.float32)] * 3))
    monkeypatch.setattr(stretches.divide, "__defaults__", (500 * 8 * 4 // 5,))
    options = {"steps": [10], "layers": [0], "populations": ["typical"]}
    measure(stored.repository, stored.path, metrics=["median_norm"], **options)
    found = results(stored).sel(step=10, layer=0, population="typical")
    norms = np.linalg.norm(rows[stored.tokens["position"] > 0], axis=1)
    typical = norms[norms <= 3 * np.median(norms)]
    assert found["n"] == len(typical)
    assert found["median_norm"].item() == pytest.approx(np.median(typical), rel=1e-6)
