"""Blocks of rows hold each row once, whatever windows they come in and however they are divided."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.capture import from_ids
from flows.capture.batches import windows
from flows.capture.blocks import Blocks, depths_together
from flows.capture.chosen import RowChoice, choose_rows
from flows.capture.shapes import SiteShape

SHAPES = [
    SiteShape("residual", ("layer", "token", "dim"), {"layer": 3, "dim": 2}),
    SiteShape("final_norm", ("token", "dim"), {"dim": 2}),
    SiteShape(
        "query", ("block", "head", "token", "head_dim"), {"block": 2, "head": 2, "head_dim": 3}
    ),
]


def rows_of(shape: SiteShape, rows: np.ndarray) -> np.ndarray:
    """Return values (depth, row, ...) of which each tells its depth, row and feature."""
    features = np.arange(np.prod(shape.features)).reshape(shape.features) / 64
    depths = np.arange(shape.depth).reshape(-1, *[1] * (1 + len(shape.features)))
    row = rows.reshape(1, -1, *[1] * len(shape.features))
    return (1000 * depths + row + features).astype(np.float32)


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=6),
    block_rows=st.integers(1, 40),
    piece_bytes=st.none() | st.integers(1, 500),
    copied=st.booleans(),
)
def test_every_row_comes_once_and_in_its_place(
    sizes: list[int], block_rows: int, piece_bytes: int | None, copied: bool
) -> None:
    n_rows = sum(sizes)
    blocks = Blocks(
        SHAPES, n_rows, block_rows, part=1, depth=4, piece_bytes=piece_bytes, copied=copied
    )
    together = depths_together(SHAPES, n_rows, block_rows, piece_bytes)
    whole = {shape.name: rows_of(shape, np.arange(n_rows)) for shape in SHAPES}
    times = {name: np.zeros(values.shape[:2], dtype=int) for name, values in whole.items()}
    stop = 0
    for size in sizes:
        # The rows of earlier windows in the same block are not there: it puts them in itself.
        rows = np.arange(stop - stop % block_rows, stop + size)
        rows[: stop % block_rows] = -1
        stop += size
        staged = {
            shape.name: [
                rows_of(shape, rows)[depths.start : depths.stop]
                for depths in shape.divided(together[shape.name])
            ]
            for shape in SHAPES
        }
        buffers = [values for own in staged.values() for values in own]
        for block in blocks.add(stop, staged):
            if copied:
                held = block.values.values()
                assert not any(np.shares_memory(one, two) for one in held for two in buffers)
            assert block.part == 1
            assert block.token_start % block_rows == 0
            assert block.token_stop == min(block.token_start + block_rows, n_rows) <= stop
            assert len(block.values) == (len(SHAPES) if piece_bytes is None else 1)
            for shape in SHAPES:
                if shape.name not in block.values:
                    continue
                values = block.values[shape.name]
                depth = 1 if shape.dims[0] == "token" else len(values)
                assert piece_bytes is None or depth == 1 or values.nbytes <= piece_bytes
                first = block.depth - 4
                at = slice(first, first + depth), slice(block.token_start, block.token_stop)
                expected = shape.in_store_order(whole[shape.name][at])
                np.testing.assert_array_equal(values, expected)
                times[shape.name][at] += 1
    assert all((seen == 1).all() for seen in times.values())


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=40),
    n_tokens=st.integers(1, 60),
    block_rows=st.integers(1, 50),
    per_sequence=st.none() | st.integers(1, 3),
)
def test_windows_end_with_the_sequence_that_completes_a_block(
    lengths: list[int], n_tokens: int, block_rows: int, per_sequence: int | None
) -> None:
    tokens = from_ids([np.arange(3, 3 + length) for length in lengths])
    if per_sequence is not None:
        tokens = choose_rows(tokens, tokens, RowChoice("sample", per_sequence))
    found = list(windows(tokens, n_tokens, block_rows))
    assert [number for window in found for number in window] == list(range(len(lengths)))
    for window in found[:-1]:
        # The last sequence completes a block: fewer rows than it has wait for the next window.
        whole = tokens.row_offsets[window.stop] // block_rows
        assert tokens.row_offsets[window.stop - 1] < whole * block_rows
        # A larger range ends with the first sequence that completes a block.
        next_block = (tokens.row_offsets[window.start] // block_rows + 1) * block_rows
        n_own = tokens.offsets[window.stop] - tokens.offsets[window.start]
        assert n_own <= n_tokens or tokens.row_offsets[window.stop - 1] < next_block
