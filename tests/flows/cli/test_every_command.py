"""What holds for every command alike: help, loudness, output for programs, near names, messages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from flows.cli import actlas
from flows.demo.materials import encoder_directory


def leaves(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(leaves(actlas))
PRINTS_NO_DOCUMENT = {"completion", "flows serve"}
"""A script for a shell, and what runs until it is stopped with Prefect's own output."""
MODEL = f"random:{encoder_directory()}:num_hidden_layers=2"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_examples_that_are_valid(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(actlas, [*name.split(), "--help"]).output
    examples = re.findall(rf"^ +(?:[A-Z_]+=\S+ )*(actlas {name}\b.*)$", told, re.MULTILINE)
    assert examples, told
    for example in examples:
        words = shlex.split(example.partition(" > ")[0])[1 + len(name.split()) :]
        for word in (*words, "deploy/prefect.yaml"):
            if re.fullmatch(r"[\w./-]+\.(txt|np[yz]|yaml|csv|parquet|toml)", word):
                Path(word).parent.mkdir(parents=True, exist_ok=True)
                Path(word).touch()
            elif word.endswith("/"):
                Path(word).mkdir(exist_ok=True)
        COMMANDS[name].make_context(name, words)


@pytest.mark.parametrize("name", COMMANDS)
def test_options_that_all_commands_have(name: str) -> None:
    options = [option for one in COMMANDS[name].params for option in one.opts]
    assert len(options) == len(set(options))
    assert {"-q", "--quiet", "-v", "--verbose"} <= set(options)
    assert ("--json" in options) == (name not in PRINTS_NO_DOCUMENT)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_mistyped_option_is_recognised(name: str) -> None:
    for one in COMMANDS[name].params:
        for option in one.opts if isinstance(one, click.Option) else ():
            if option.startswith("--") and len(option) > 5:
                result = CliRunner().invoke(actlas, [*name.split(), f"{option}x"])
                assert result.exit_code == 2
                assert option in result.output.splitlines()[-1]


def test_a_mistyped_command_is_recognised() -> None:
    for name in COMMANDS:
        result = CliRunner().invoke(actlas, f"{name}x".split())
        assert result.exit_code == 2
        assert "Did you mean" in result.output
        assert f"'{name.split()[-1]}'" in result.output


def test_loudness_is_chosen_before_or_after_the_command(run) -> None:
    assert "settings from" in run("-v", "ls").output
    assert run("history", "--limit", "1").output.endswith("older ones: actlas history --limit 0\n")
    for quiet in (["-q", "history"], ["history", "--quiet"]):
        assert "older ones" not in run(*quiet, "--limit", "1").output
    assert "Give either" in run("-q", "ls", "-v", code=2).output


def test_a_setting_that_cannot_be_read_says_where_it_came_from(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("actlas.toml").write_text("[compute]\nsample = 'many'\n")
    assert "from the settings of actlas.toml" in run("compute", code=2).output
    monkeypatch.setenv("ACTLAS_COMPUTE_SAMPLE", "few")
    assert "environment variable ACTLAS_COMPUTE_SAMPLE" in run("compute", code=2).output
    assert "from the" not in run("compute", "--sample", "none", code=2).output


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ("ls --store nowhere", 2, r"the path does not exist\. .*actlas corpus add"),
        ("ls --store ftp://x/y", 2, "expected a path, or one of file://"),
        (
            "corpus add a/b --text dogs.txt",
            2,
            "'a/b' cannot name a corpus: expected a name without",
        ),
        ("tag now", 2, "choose another name"),
        ("ingest random:bert:hiden_size=3 --corpus cats", 2, "did you mean 'hidden_size'"),
        ("ls dogs", 2, "no corpus 'dogs' in .*; there are: cats|did you mean 'cats'"),
        ("ls cats/tinny", 2, "did you mean 'tiny'"),
        ("show two_nn", 1, "run `actlas compute two_nn` first"),
        ("show averge_cosine", 2, "did you mean 'average_cosine'"),
        ("show average_cosine --population contnt", 2, "did you mean 'content'"),
        ("show average_cosine --tag v1", 2, "no tag 'v1' in .*; there are none"),
        ("show average_cosine --as-of yesterday", 2, "expected ISO 8601 as in"),
        ("compute --models tin", 2, "did you mean 'tiny'"),
        ("compute two_nn --steps 7", 2, "no step 7 in cats/tiny; there are: 0, 10"),
        ("compute two_nn --memory 12XB", 2, "'12XB' is no size; expected one such as"),
        ("compute two_nn --dask foo", 2, "no scheduler is called 'foo'; expected 'threads'"),
        ("compute --where step=7", 2, "No such option '--where'"),
        (
            "plot average_cosine -o a.xyz",
            2,
            "'a.xyz' says no format: expected a name ending in .png",
        ),
        ("compare layers -o a.txt", 2, "expected a name ending in .png, .pdf, .svg"),
        ("report -o a.png", 2, "expected a name ending in .html"),
        ("ingest nowhere --corpus cats", 2, "nowhere does not exist; expected the folder of a"),
        ("ingest random:nowhere/x/y --corpus cats", 2, "a folder with a config.json"),
        ("ingest random:brt --corpus cats", 2, "did you mean .bert."),
        (f"ingest {MODEL} --corpus cats --sites query --layers 0", 2, "no value at layer 0"),
        ("show average_cosine --snapshot ABC", 2, "no snapshot 'ABC'"),
        ("compare models", 1, "no two models of one corpus"),
        ("corpus add dogs --text latin.txt", 1, "latin.txt is not UTF-8 text: byte 3 is 0xe9"),
        ("corpus add dogs --ids latin.txt", 1, "expected one that numpy.save made"),
        ("corpus add cats --text dogs.txt", 1, "corpus 'cats' is already stored, but not the same"),
        ("ingest empty --corpus cats", 1, "empty holds no checkpoint: .*expected a config.json"),
        (f"ingest {MODEL} --corpus cts", 2, "did you mean 'cats'"),
        (f"ingest {MODEL} --corpus cats --name x --device gpu", 2, "no device 'gpu' here"),
        (f"ingest {MODEL} --corpus cats --name x --device cuda:64", 2, "no device 'cuda:64' here"),
        (f"ingest {MODEL} --corpus cats --name x --sites residul", 2, "did you mean 'residual'"),
        ("gc --keep-history 30", 2, "'30' is no time: expected days"),
        ("export cats/tiny --format csv -o x", 2, "'csv' is not one of 'zarr'"),
        ("study encoder-decodr", 2, "did you mean 'encoder-decoder'"),
    ],
)
def test_wrong_tries_are_answered(
    run, arguments: str, code: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin.txt").write_bytes(b"caf\xe9 au lait")
    Path("dogs.txt").write_text("Dogs bark at cats. " * 40)
    Path("empty").mkdir()
    told = run(*shlex.split(arguments), code=code).output
    assert re.search(expected, told), told
    assert "Traceback" not in told
