from __future__ import annotations

import numpy as np
import pytest

from analysis.errors import InputError, UnknownPopulationError
from analysis.populations import (
    CONTENT,
    FIRST,
    SPECIAL,
    TokenTable,
    choose_populations,
)

SPECIALS = np.array([True, False, False, False, False])
POSITION = np.array([0, 1, 2, 0, 1])
SEQUENCE = np.array([0, 0, 0, 1, 1])


def test_a_causal_model_has_its_first_tokens_apart() -> None:
    table = TokenTable.from_coordinates(
        special=SPECIALS, position=POSITION, sequence=SEQUENCE, causal=True
    )
    assert table.codes.tolist() == [SPECIAL, CONTENT, CONTENT, FIRST, CONTENT]
    assert table.n == 5


def test_an_encoder_keeps_its_first_tokens() -> None:
    table = TokenTable.from_coordinates(
        special=SPECIALS, position=POSITION, sequence=SEQUENCE, causal=False
    )
    assert table.codes.tolist() == [SPECIAL, CONTENT, CONTENT, CONTENT, CONTENT]


def test_coordinates_of_different_lengths_are_refused() -> None:
    with pytest.raises(InputError, match="special 5, position 5, sequence 4"):
        TokenTable.from_coordinates(
            special=SPECIALS, position=POSITION, sequence=SEQUENCE[:4], causal=False
        )


def test_all_populations_by_default_and_only_all_without_labels() -> None:
    names = [population.name for population in choose_populations(None, labelled=True)]
    assert names == ["all", "content", "typical", "unit"]
    names = [population.name for population in choose_populations(None, labelled=False)]
    assert names == ["all"]


def test_an_unknown_population_is_refused_with_a_near_name() -> None:
    with pytest.raises(UnknownPopulationError, match="'contents'; did you mean 'content'"):
        choose_populations(["contents"], labelled=True)


def test_content_needs_token_coordinates() -> None:
    with pytest.raises(InputError, match="needs the token coordinates"):
        choose_populations(["typical"], labelled=False)
