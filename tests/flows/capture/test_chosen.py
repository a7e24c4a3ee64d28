from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from flows.capture import Tokens, from_ids
from flows.capture.chosen import FIRST, LAST, MEAN, SAMPLE, RowChoice, choose_rows
from flows.capture.errors import InputError
from flows.capture.forward import capture
from flows.capture.guard import check_batching
from flows.capture.weights import LoadedModel

Build = Callable[..., LoadedModel]

CHOICES = [RowChoice(LAST), RowChoice(FIRST), RowChoice(MEAN), RowChoice(SAMPLE, 4, seed=7)]


@pytest.fixture(scope="module")
def bracketed() -> Tokens:
    """Return sequences of 3 to 20 ids whose first and last ones are special, and one of two."""
    rng = np.random.default_rng(1)
    tokens = from_ids([rng.integers(3, 96, size=n) for n in (6, 20, 2, 3, 11, 11, 7)])
    special = np.zeros(len(tokens), dtype=np.bool_)
    special[tokens.offsets[:-1]] = special[tokens.offsets[1:] - 1] = True
    starts = tokens.position * 2
    return replace(tokens, special=special, char_start=starts, char_end=starts + 2)


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.kind)
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_rows_are_those_of_the_whole(
    tiny_model: Build, bracketed: Tokens, family: str, choice: RowChoice
) -> None:
    loaded = tiny_model(family)
    (whole,) = capture(loaded, bracketed, ["residual"], block_rows=999)
    tokens = choose_rows(bracketed, bracketed, choice)
    blocks = list(capture(loaded, tokens, ["residual"], block_rows=4, batch_tokens=40))
    got = np.concatenate([block.values["residual"] for block in blocks], axis=1)
    assert got.shape[1] == tokens.n_rows == blocks[-1].token_stop
    states = whole.values["residual"]
    if choice.kind == MEAN:
        expected = np.stack(
            [states[:, bracketed.sequence_tokens(i)].mean(axis=1) for i in range(7)], axis=1
        )
    else:
        assert tokens.kept is not None
        expected = states[:, tokens.kept]
    # Another batch: sums in another order.
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert check_batching(loaded, tokens, ["residual"]) < 1e-5


def test_which_rows_are_kept(bracketed: Tokens) -> None:
    def positions(choice: RowChoice) -> list[list[int]]:
        columns = choose_rows(bracketed, bracketed, choice).coordinates()
        return [columns["position"][columns["sequence"] == i].tolist() for i in range(7)]

    assert positions(RowChoice(FIRST)) == [[0]] * 7
    # The last that is not special; the third sequence has none.
    assert positions(RowChoice(LAST)) == [[4], [18], [], [1], [9], [9], [5]]
    assert positions(RowChoice(MEAN)) == [[-1]] * 7
    drawn = positions(RowChoice(SAMPLE, 4, seed=7))
    assert [len(some) for some in drawn] == [4, 4, 0, 1, 4, 4, 4]
    assert all(some == sorted(set(some)) and 0 not in some for some in drawn)
    assert positions(RowChoice(SAMPLE, 4, seed=8)) != drawn
    fewer = bracketed.select([0, 1])
    again = choose_rows(
        fewer,
        replace(fewer, special=bracketed.special[:26]),
        RowChoice(SAMPLE, 4, seed=7),
    ).coordinates()
    assert again["position"].tolist() == drawn[0] + drawn[1]


def test_a_mean_has_the_characters_of_its_sequence(bracketed: Tokens) -> None:
    columns = choose_rows(bracketed, bracketed, RowChoice(MEAN)).coordinates()
    assert columns["char_start"].tolist() == [0] * 7
    assert columns["char_end"].tolist() == (2 * bracketed.lengths).tolist()
    unknown = choose_rows(
        from_ids([np.array([1, 2])]), from_ids([np.array([1, 2])]), RowChoice(MEAN)
    )
    assert unknown.coordinates()["char_start"].tolist() == [-1]


def test_nothing_but_special_tokens_is_refused() -> None:
    tokens = from_ids([np.array([1, 2])])
    with pytest.raises(InputError, match="no token is kept of 2: all of them are special"):
        choose_rows(tokens, replace(tokens, special=np.ones(2, np.bool_)), RowChoice(LAST))


def test_choices_survive_as_facts() -> None:
    for choice in (*CHOICES, RowChoice()):
        assert RowChoice.of_facts(choice.facts()) == choice
