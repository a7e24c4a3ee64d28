"""The guides' arithmetic and code: computed and run again."""

from __future__ import annotations

import re

import pytest

from store.layout import chunk_rows, token_chunks


def table(text, heading):
    """Rows of the first table after a line, as lists of cells."""
    lines = iter(text[text.index(heading) :].splitlines())
    rows = []
    for line in lines:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[2:]


def number(cell):
    return float(cell.split()[0].replace(",", ""))


@pytest.fixture(scope="module")
def operations(root):
    return (root / "docs" / "OPERATIONS.md").read_text()


def test_capacity_examples_follow_the_formula_and_the_layout(operations):
    ratios = {
        name: float(value) for value, name in re.findall(r"([\d.]+) ([a-z]+\d\d)", operations)
    }
    rows = table(operations, "For 100,000 tokens:")
    assert len(rows) == 5
    for shape, source, memory, stored, objects, hundred in rows:
        blocks, width = map(int, shape.split(" × "))
        raw = 4 * 100_000 * width * (blocks + 1) / 1e9
        chunks = token_chunks(100_000, chunk_rows(width, 100_000)) * (blocks + 1)
        # Three digits are shown.
        assert number(memory) == pytest.approx(raw, rel=0.005)
        assert number(stored) == pytest.approx(raw / ratios[source], rel=0.005)
        assert number(objects) == chunks
        assert number(hundred) == pytest.approx(raw / ratios[source] / 10, rel=0.02)


def test_every_file_a_guide_links_to_exists(root):
    for guide in ("OPERATIONS.md", "SCALE.md"):
        text = (root / "docs" / guide).read_text()
        for target in re.findall(r"\]\((?!http)([^)#]+)", text):
            assert (root / "docs" / target).exists(), f"{guide} links to {target}"


@pytest.fixture(scope="module")
def scale(root):
    return (root / "docs" / "SCALE.md").read_text()


def columns(text, heading):
    """First cell of each row → the numbers after it."""
    return {name: [number(cell) for cell in cells] for name, *cells in table(text, heading)}


SIZES_GB = (1e3, 4e4, 1e6)


@pytest.mark.parametrize(("column", "width", "layers"), [(0, 768, 13), (1, 2048, 25)])
def test_rates_are_carried_through(scale, column, width, layers):
    rates = {n: c[column] for n, c in columns(scale, "## Rates of one core").items()}
    errors = [value for name, value in rates.items() if "with standard errors" in name]
    slab = 16_384 * width * 4 / 1e9
    found = columns(scale, f"Width {width}, {layers} layers")
    for index, gigabytes in enumerate(SIZES_GB):
        slabs = gigabytes / slab
        everything = slabs * sum(errors) / 3600
        expected = {
            "steps": slabs / layers,
            "slabs, which are tasks": slabs,
            "writing, core-hours": gigabytes * rates["write, s/GB"] / 3600,
            "moments, core-hours": slabs * rates["moments, s a slab"] / 3600,
            "everything, core-hours": everything,
            "cores for everything in a day": everything / 24,
            "scheduler busy at 20 ms a task, hours": slabs * 0.02 / 3600,
        }
        assert {name: row[index] for name, row in found.items()} == pytest.approx(
            expected, rel=0.006
        )


def test_the_cost_model_gives_the_example(scale):
    found = columns(scale, "## Cost model")
    measured = columns(scale, "Width 2048")["everything, core-hours"]
    for index, gigabytes in enumerate(SIZES_GB):
        objects = gigabytes * 1e9 / 2**22
        expected = {
            "storage, $ a month": gigabytes / 2.9 * 0.02,
            "writing the objects, $": objects * 5e-6,
            "reading them once, $": objects * 0.4e-6,
            "everything measured once, $": measured[index] * 0.04,
        }
        assert {name: row[index] for name, row in found.items()} == pytest.approx(
            expected, rel=0.006
        )
