"""docs/STORE_FORMAT.md says what store/schema.py declares."""

import re
from pathlib import Path

import pytest

from store import schema

TEXT = (Path(__file__).parents[2] / "docs" / "STORE_FORMAT.md").read_text()
ROWS = {
    match["name"]: (match["dims"].split(", "), match["dtype"])
    for match in re.finditer(
        r"^\| `(?P<name>\w+)` \| (?P<dims>[\w, ]+) \| (?P<dtype>\w+) \|", TEXT, re.MULTILINE
    )
}
DECLARED = {
    **schema.SITES,
    **schema.TOKEN_COORDINATES,
    **schema.PLACE_COORDINATES,
    **schema.STEP_COORDINATES,
    **schema.DEPTH_COORDINATES,
    **schema.CORPUS_VARIABLES,
    **schema.ITEM_VARIABLES,
    **schema.SOURCE_COLUMNS,
}


@pytest.mark.parametrize("name", DECLARED)
def test_every_declared_array_is_described(name):
    variable = DECLARED[name]
    dtype = "string" if variable.dtype == "str" else variable.dtype
    assert ROWS[name] == ([*variable.dims], dtype)


def test_nothing_else_is_described():
    arrays = {name for name, (dims, _) in ROWS.items() if dims[0] in {"step", "token", "text"}}
    assert arrays <= set(DECLARED)


def test_the_version_is_the_one_written():
    assert TEXT.startswith(f"# The store format, version {schema.FORMAT_VERSION}\n")
    versions = f"{schema.FORMAT_VERSION}, or {schema.FIRST_FORMAT}, or {schema.GROWN_FORMAT}"
    assert f"{schema.FORMAT_ATTRIBUTE} = {versions}" in TEXT
