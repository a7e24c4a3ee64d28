"""The study of a single untrained block, on a block of width 32, end to end."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from flows.cli import actlas
from flows.studies import sources
from flows.studies.block import meeting_point

CONFIG = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "intermediate_size": 48,
    "vocab_size": 2048,
}


def test_the_point_where_a_difference_turns_lies_on_the_line() -> None:
    x = np.array([1.0, 2.0, 4.0])
    # From −1 at 2 to 3 at 4 it is zero a quarter of the way.
    assert meeting_point(x, np.array([-3.0, -1.0, 3.0])) == 2.5
    assert meeting_point(x, np.array([-3.0, -2.0, -1.0])) is None


@pytest.mark.slow(minutes=1)
@pytest.mark.usefixtures("quick_figures")
def test_a_block_is_swept_drawn_and_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_BIASES", (0, 4, 8))
    monkeypatch.setattr(sources, "_SCALES", (8,))
    monkeypatch.setattr(sources, "_SCALED_BIASES", (4,))
    monkeypatch.setattr(sources, "BLOCK_SEEDS", (0, 1))
    config = tmp_path / "small"
    config.mkdir()
    (config / "config.json").write_text(json.dumps(CONFIG))
    out, store = tmp_path / "out", str(tmp_path / "store")
    arguments = ["study", "untrained-block", "--models", str(config), "--store", store]
    result = CliRunner().invoke(actlas, [*arguments, "-o", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert {"bias.svg", "scale.svg", "numbers.nc"} <= {file.name for file in out.iterdir()}

    with (out / "numbers.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    norms = [
        float(row["value"])
        for row in rows
        if row["metric"] == "mean_norm" and row["layer"] == "1" and row["population"] == "all"
    ]
    assert len(norms) == 10  # 3 biases, 1 scale and 1 with biases drawn, by 2 seeds
    # A layer norm of weight 1 ends a block: each output has the norm √d, but for its epsilon.
    np.testing.assert_allclose(norms, math.sqrt(32), rtol=1e-5)

    account = (out / "account.md").read_text()
    assert "the outputs are at least as anisotropic as the inputs at every N" in account
    place = float(account.split("N* = ")[1].split(";")[0])
    assert place == pytest.approx(math.sqrt(32), rel=0.02)
    assert "N = 4, queries and keys scaled: × 1: deviation" in account

    # The same seed gives the same numbers, in a store of its own and without the others.
    monkeypatch.setattr(sources, "BLOCK_SEEDS", (1,))
    monkeypatch.setattr(sources, "_BIASES", (4,))
    monkeypatch.setattr(sources, "_SCALED_BIASES", ())
    arguments[-1] = str(tmp_path / "another")
    again = CliRunner().invoke(actlas, [*arguments, "-o", str(tmp_path / "again")])
    assert again.exit_code == 0, again.output
    lines, found = (
        set((folder / "numbers.csv").read_text().splitlines())
        for folder in (out, tmp_path / "again")
    )
    assert len(found) > 30
    assert found < lines


def test_the_grid_of_controls_is_refused_for_blocks(tmp_path: Path) -> None:
    arguments = ["study", "untrained-block", "--controls", "--store", str(tmp_path / "store")]
    result = CliRunner().invoke(actlas, arguments)
    assert result.exit_code == 2
    assert "leave out --controls" in result.output
