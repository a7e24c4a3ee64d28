from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import Result

from flows.cli import actlas
from flows.cli.options import NameList, NumberList
from flows.corpora import Chunking, add_texts
from store.repository import Repository

Run = Callable[..., Result]


def commands(group: click.Group = actlas, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


COMMANDS = dict(commands())


@pytest.fixture
def run(store: str, runner: Callable[[str], Run]) -> Run:
    return runner(store)


@pytest.fixture(scope="module")
def filled(
    tmp_path_factory: pytest.TempPathFactory,
    text: str,
    run_folder: Path,
    runner: Callable[[str], Run],
) -> Run:
    """Return the same for a store with two steps and two metrics, which tests leave as it is."""
    uri = str(tmp_path_factory.mktemp("filled") / "store")
    add_texts(uri, "cats", {"cats.txt": text}, chunking=Chunking("chars", 50), max_sequences=20)
    run = runner(uri)
    run("ingest", str(run_folder), "--corpus", "cats", "--steps", "0,10")
    run("compute", "average_cosine", "svd_anisotropy")
    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_examples(run: Run, name: str) -> None:
    help_text = run(*name.split(), "--help").output
    lines = [line.strip() for line in help_text.splitlines()]
    shown = lines[lines.index("Examples:") + 1 :]
    assert shown
    # Before a command there may be variables, and a long example goes on in the next line.
    assert all(re.match(rf"(?:[A-Z_]+=\S+ )*actlas {name}", line) for line in shown)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_are_valid_command_lines(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deploy").mkdir()
    Path("deploy/prefect.yaml").touch()  # where `flows deploy` looks of itself
    command = COMMANDS[name]
    assert command.epilog is not None
    for line in command.epilog.splitlines()[2:]:
        words = shlex.split(line.partition(" > ")[0])
        arguments = words[words.index("actlas") + 1 + len(name.split()) :]
        for folder in (Path(word) for word in arguments if word.endswith("/")):
            folder.mkdir(parents=True, exist_ok=True)
        for file in (Path(word) for word in arguments if re.fullmatch(r"[\w/-]+\.[a-z]+", word)):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        command.make_context(name, arguments)


def test_from_text_to_a_figure(run: Run, run_folder: Path, tmp_path: Path, text: str) -> None:
    file = tmp_path / "cats.txt"
    file.write_text(text)
    added = run("corpus", "add", "new", "--text", str(file), "--chunk-chars", "50").output
    assert "Corpus new: 80 texts, 4,000 characters" in added
    assert "actlas ingest MODEL --corpus new" in added
    ingested = run("ingest", str(run_folder), "--corpus", "new").output
    assert "new/tiny step 5: stored residual, final_norm" in ingested
    assert "3 of 3 checkpoints were run" in ingested
    computed = run("compute", "average_cosine", "--corpus", "new").output
    assert "new/tiny: 36 values computed" in computed  # 3 steps, 3 layers, 4 populations
    figure = tmp_path / "cosine.png"
    run("plot", "average_cosine", "--x", "step", "--corpus", "new", "-o", str(figure))
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_adding_a_corpus_answers_in_json(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "cats.txt"
    file.write_text("the cat sat on the mat")
    added = run("corpus", "add", "new", "--text", str(file), "--chunk-chars", "5", "--json").output
    assert json.loads(added)["texts"] == 4


def test_a_second_ingest_runs_nothing(filled: Run, run_folder: Path) -> None:
    output = filled("ingest", str(run_folder), "--corpus", "cats", "--steps", "0,10").output
    assert output.count("stored already, no model was run") == 2
    assert "0 of 2 checkpoints were run" in output
    assert "0 values computed" in filled("compute", "average_cosine").output


def test_a_plan_runs_nothing(run: Run, store: str, run_folder: Path) -> None:
    before = Repository.open(store).snapshot_id()
    arguments = ("ingest", str(run_folder), "--corpus", "cats", "--plan")
    assert "3 of 3 checkpoints to run" in run(*arguments).output
    plan = json.loads(run(*arguments, "--json").output)
    assert plan["fits"] is True
    assert [step["step"] for step in plan["steps"]] == [0, 5, 10]
    # (3 layers + the final norm) of 16 float32 values a token
    assert plan["steps"][0]["raw_bytes"] == plan["steps"][0]["tokens"] * 4 * 16 * 4
    assert Repository.open(store).snapshot_id() == before


def test_the_plan_of_what_is_stored_says_so(filled: Run, run_folder: Path) -> None:
    arguments = ("ingest", str(run_folder), "--corpus", "cats", "--plan")
    plan = json.loads(filled(*arguments, "--json").output)
    assert [step["stored"] for step in plan["steps"]] == [True, False, True]
    assert "1 of 3 checkpoints to run" in filled(*arguments).output


def test_ls_lists_models_and_the_steps_of_one(filled: Run) -> None:
    table = filled("ls").output
    assert "cats/tiny" in table
    assert "0,10" in table
    assert "2 of 2" in table
    assert "checkpoint-10" in filled("ls", "cats/tiny").output
    (model,) = json.loads(filled("ls", "--json").output)
    assert model["path"] == "cats/tiny"
    assert [step["step"] for step in model["steps"]] == [0, 10]
    assert model["steps"][0]["loss"] is None


def test_ls_of_a_store_without_models_says_what_to_do(run: Run) -> None:
    assert run("ls").output.startswith("No model is stored yet. Next: actlas ingest MODEL")
    assert "No model is stored over cats yet." in run("ls", "cats").output


def test_show_gives_the_same_values_as_table_json_and_csv(filled: Run) -> None:
    arguments = ("show", "average_cosine", "--steps", "10", "--layers", "1,2")
    rows = json.loads(filled(*arguments, "--json").output)
    assert [(row["model"], row["step"], row["layer"]) for row in rows] == [
        ("tiny", 10, 1),
        ("tiny", 10, 2),
    ]
    assert all(-1 <= row["value"] <= 1 and row["stderr"] > 0 for row in rows)
    header, *lines = filled(*arguments, "--csv").output.splitlines()
    assert header == "corpus,model,step,layer,same_weights,shared_weights,value,stderr,snapshot"
    assert [float(line.split(",")[6]) for line in lines] == [row["value"] for row in rows]
    assert f"{rows[0]['value']:.5g}" in filled(*arguments).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compte"], "Did you mean one of: .*'compute'"),
        (["ls", "--jsn"], "Did you mean '--json'"),
        (["ls", "cat"], "no corpus 'cat' .* did you mean 'cats'"),
        (["ls", "cats/tinny"], "no model 'tinny' .* did you mean 'tiny'"),
        (["compute", "average_cosin"], "did you mean 'average_cosine'"),
        (["compute", "average_cosine", "--populations", "contents"], "did you mean 'content'"),
        (["compute", "average_cosine", "--steps", "3"], "no step 3 .* there are: 0, 10"),
        (["compute", "average_cosine", "--layers", "9"], "no layer 9 .* there are: 0, 1, 2"),
        (["compute", "average_cosine", "--models", "tinny"], "did you mean 'tiny'"),
        (["show", "average_cosin"], "did you mean 'average_cosine'"),
        (["show", "average_cosine", "--population", "typicl"], "did you mean 'typical'"),
        (["compute", "--steps", "one"], "'one' is neither 'all' nor whole numbers"),
        (["show", "average_cosine", "--csv", "--json"], "either --json or --csv"),
        (["corpus", "add", "x"], "Give one of --text FILE…, --ids FILE.npy"),
        (["ingest", "m", "n", "--corpus", "cats", "--name", "x"], "--name goes with one MODEL"),
    ],
)
def test_usage_errors_have_code_2_and_near_names(
    filled: Run, arguments: list[str], message: str
) -> None:
    result = filled(*arguments, code=2)
    assert result.stdout == ""
    assert re.search(message, " ".join(result.stderr.split()))


def test_what_was_not_computed_has_code_1_and_a_remedy(filled: Run) -> None:
    assert "run `actlas compute drift_norm`" in filled("show", "drift_norm", code=1).stderr


def test_lists_of_numbers_and_names() -> None:
    assert NumberList().convert("2,0,2", None, None) == (0, 2)
    assert NumberList().convert("all", None, None) is None
    assert NameList().convert("b, a,b", None, None) == ("b", "a")


def test_help_needs_neither_torch_nor_prefect_nor_the_store() -> None:
    code = (
        "import sys; from flows.cli import actlas\n"
        "try: actlas(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'prefect', 'xarray', 'zarr', 'dask', 'numba', 'scipy'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
