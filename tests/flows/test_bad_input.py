"""What users get wrong, through the command line: a sentence, a code, and the store as it was."""

from __future__ import annotations

import functools
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from flows.cli import actlas
from flows.corpora import add_ids
from store.read import open_store
from store.repository import Repository
from store.schema import FORMAT_ATTRIBUTE, FORMAT_VERSION

sys.path.insert(0, str(Path(__file__).parents[1]))

from documents import pieces_of

Refused = Callable[..., str]


@pytest.fixture
def refused(store: str) -> Refused:
    """Run ``actlas``; it has to fail with a message and to leave the store's contents alone."""

    def contents(uri: str) -> list[str]:
        if not (Path(uri) / "refs").is_dir():
            return []
        listed = CliRunner().invoke(actlas, ["ls", "--json", "--store", uri])
        corpora = sorted(Repository.open(uri, read_only=True).read().group_keys())
        complete = [
            f"{model['path']} {step['step']} {step['weights_sha256']}"
            for model in json.loads(listed.stdout)
            for step in model["steps"]
        ]
        return corpora + complete

    def invoke(*arguments: str, code: int = 1, uri: str = store) -> str:
        readable = uri == store
        before = contents(uri) if readable else []
        result = CliRunner().invoke(
            actlas, list(arguments), env={"ACTLAS_STORE": uri}, catch_exceptions=False
        )
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        assert result.stdout == ""
        assert (contents(uri) if readable else []) == before
        return " ".join(result.stderr.split())

    return invoke


@pytest.fixture
def checkpoint(run_folder: Path, tmp_path: Path) -> Path:
    """Return a folder of one checkpoint, to be damaged."""
    copy = tmp_path / "model"
    shutil.copytree(run_folder / "checkpoint-5", copy)
    return copy


def test_a_folder_without_a_checkpoint(refused: Refused, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "notes.txt").touch()
    message = refused("ingest", str(empty), "--corpus", "cats")
    assert re.search(
        r"empty holds no checkpoint: it has notes.txt; expected a config.json", message
    )


def test_a_folder_that_does_not_exist(refused: Refused, checkpoint: Path) -> None:
    message = refused("ingest", str(checkpoint.parent / "modle"), "--corpus", "cats", code=2)
    assert re.search("modle does not exist; did you mean '.*model'", message)


def test_truncated_weights(refused: Refused, checkpoint: Path) -> None:
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    message = refused("ingest", str(checkpoint), "--corpus", "cats")
    assert re.search(r"model.safetensors is truncated: it has \d+ bytes, .* announces", message)


def test_one_damaged_checkpoint_keeps_no_other_out(store: str, run_folder: Path) -> None:
    run = Path(store).parent / "tiny"
    shutil.copytree(run_folder, run)
    weights = run / "checkpoint-5" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:4096])
    arguments = ["ingest", str(run), "--corpus", "cats", "--store", store]
    done = CliRunner().invoke(actlas, arguments)
    assert done.exit_code == 1
    assert "2 of 3 checkpoints were run.\n" in done.stdout
    assert re.search(
        r"1 of 3 checkpoints failed, the others are done:\n  tiny step 5: .* is truncated: it has"
        " 4096 bytes",
        done.stderr,
    )
    assert list(open_store(store)["cats/tiny"].step.values) == [0, 10]
    again = CliRunner().invoke(actlas, [*arguments, "--json"])
    assert again.exit_code == 1
    assert [result["step"] for result in json.loads(again.stdout)] == [0, 10]


def test_sequences_longer_than_the_model_takes_are_counted(store: str, run_folder: Path) -> None:
    """The model has 64 positions, so each sequence loses 6 of its 70 ids."""
    ids = Path(store).parent / "ids.npy"
    np.save(ids, np.arange(140).reshape(2, 70) % 64)
    run = functools.partial(CliRunner().invoke, actlas, env={"ACTLAS_STORE": store})
    assert run(["corpus", "add", "long", "--ids", str(ids)]).exit_code == 0
    arguments = ["ingest", str(run_folder / "checkpoint-5"), "--corpus", "long"]
    refused = run([*arguments, "--no-truncate"])
    assert refused.exit_code == 1
    assert "2 of 2 sequences of long are longer than the 64 tokens that tiny" in refused.stderr
    said = "2 of 2 sequences are longer than the model takes, and are cut"
    assert said in run([*arguments, "--plan"]).stdout
    assert said in run(arguments).stdout
    assert said in run(arguments).stdout
    assert open_store(store)["long/tiny"].sizes["token"] == 2 * 64


def test_code_beside_a_checkpoint_is_not_run(refused: Refused, checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    config |= {
        "model_type": "mine",
        "auto_map": {"AutoConfig": "mine.Mine", "AutoModel": "mine.My"},
    }
    (checkpoint / "config.json").write_text(json.dumps(config))
    ran = checkpoint / "ran"
    (checkpoint / "mine.py").write_text(f"open({str(ran)!r}, 'w').close()")
    message = refused("ingest", str(checkpoint), "--corpus", "cats")
    assert "needs Python code that comes with it, which is not run unless asked for" in message
    assert "--trust-remote-code" in message
    assert not ran.exists()


MINE = """
import torch
from transformers import PretrainedConfig, PreTrainedModel

class Mine(PretrainedConfig):
    model_type = "mine"
    def __init__(self, vocab_size=64, hidden_size=16, num_hidden_layers=2, **rest):
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.num_hidden_layers = num_hidden_layers
        super().__init__(**rest)

class My(PreTrainedModel):
    config_class = Mine
    def __init__(self, config):
        super().__init__(config)
        self.embeddings = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        blocks = (torch.nn.Linear(config.hidden_size, config.hidden_size) for _ in range(2))
        self.blocks = torch.nn.ModuleList(blocks)
        self.post_init()
    def get_input_embeddings(self):
        return self.embeddings
    def forward(self, input_ids, attention_mask=None, **_):
        hidden = self.embeddings(input_ids)
        for block in self.blocks:
            hidden = block(hidden)
        return (hidden,)
"""


def test_code_beside_a_checkpoint_runs_where_it_is_trusted(
    refused: Refused, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    import transformers.dynamic_module_utils
    from safetensors.torch import save_file

    modules = tmp_path / "modules"
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(modules))
    monkeypatch.syspath_prepend(str(modules))
    (documented,) = pieces_of(__file__)
    _, *arguments, trusted = shlex.split(documented.text)
    folder = tmp_path / arguments[1]
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    auto = {"AutoConfig": "mine.Mine", "AutoModel": "mine.My"}
    config = {"model_type": "mine", "auto_map": auto, "vocab_size": 64, "num_hidden_layers": 2}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(MINE)
    drawn = torch.Generator().manual_seed(0)
    weights = {"embeddings.weight": torch.randn(64, 16, generator=drawn)}
    for i in range(2):
        weights[f"blocks.{i}.weight"] = torch.randn(16, 16, generator=drawn)
        weights[f"blocks.{i}.bias"] = torch.zeros(16)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    add_ids(store, "plays", [np.arange(1, 4), np.arange(5, 20)])
    assert trusted == "--trust-remote-code"
    assert trusted in refused(*arguments)
    run = functools.partial(CliRunner().invoke, actlas, catch_exceptions=False)
    done = run([*arguments, trusted, "--store", store])
    assert done.exit_code == 0, done.output
    rows = open_store(store)["plays/new-kind"].residual.sel(step=0)
    expected = weights["embeddings.weight"][1:4]
    np.testing.assert_array_equal(rows.sel(layer=0).values[:3], expected)
    for i in range(2):
        expected = expected @ weights[f"blocks.{i}.weight"].T
        np.testing.assert_allclose(rows.sel(layer=i + 1).values[:3], expected, rtol=1e-4, atol=1e-4)
    again = ["verify", "plays/new-kind", "--replay", "2", "--store", store]
    assert trusted in run(again).stderr
    assert run([*again, trusted]).exit_code == 0
    later = shutil.copytree(folder, tmp_path / "later")
    watch = ["watch", str(later), "--corpus", "plays", "--once", "--settle", "0s", "--store", store]
    unasked = run([*watch, "--metrics", "none"])
    assert unasked.exit_code == 1
    assert trusted in unasked.stderr
    assert run([*watch, "--metrics", "none", trusted]).exit_code == 0
    assert open_store(store)["plays/later"].sizes["step"] == 1
    # The code is part of what the values were made from.
    (folder / "mine.py").write_text(MINE + "\n# changed\n")
    other = refused(*arguments, trusted)
    assert "config_sha256: stored" in other


def test_a_tokenizer_of_another_model(refused: Refused, checkpoint: Path) -> None:
    from transformers import AutoConfig, GPTNeoXForCausalLM

    config = AutoConfig.from_pretrained(checkpoint)
    config.vocab_size = 20
    GPTNeoXForCausalLM(config).save_pretrained(checkpoint)
    message = refused("ingest", str(checkpoint), "--corpus", "cats")
    assert re.search(r"token id \d+ is outside the vocabulary of gpt_neox, 0 to 19", message)


def test_no_config(refused: Refused, checkpoint: Path) -> None:
    (checkpoint / "config.json").unlink()
    message = refused("ingest", str(checkpoint), "--corpus", "cats")
    assert "holds no config.json: expected the model's config beside its weights" in message


def test_no_tokenizer(refused: Refused, checkpoint: Path) -> None:
    for file in checkpoint.glob("tokenizer*"):
        file.unlink()
    message = refused("ingest", str(checkpoint), "--corpus", "cats")
    assert re.search("has no tokenizer: .* or use a corpus of token ids", message)


def test_no_tokenizer_is_needed_for_ids(store: str, checkpoint: Path, tmp_path: Path) -> None:
    for file in checkpoint.glob("tokenizer*"):
        file.unlink()
    np.save(tmp_path / "ids.npy", np.random.default_rng(0).integers(0, 60, (4, 10)))
    for arguments in (
        ["corpus", "add", "ids", "--ids", str(tmp_path / "ids.npy")],
        ["ingest", str(checkpoint), "--corpus", "ids"],
    ):
        result = CliRunner().invoke(actlas, [*arguments, "--store", store])
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no text"),
        (" \n \n", "holds no text"),
        ("too short", "has 9 characters, fewer than one piece of 512"),
    ],
)
def test_texts_that_are_empty_or_short(
    refused: Refused, tmp_path: Path, content: str, message: str
) -> None:
    file = tmp_path / "text.txt"
    file.write_text(content)
    assert message in refused("corpus", "add", "new", "--text", str(file))


def test_a_text_shorter_than_one_sequence_of_tokens(
    store: str, refused: Refused, checkpoint: Path, tmp_path: Path
) -> None:
    file = tmp_path / "text.txt"
    file.write_text("the cat sat")
    added = ["corpus", "add", "new", "--text", str(file), "--chunk-tokens", "60", "--store", store]
    assert CliRunner().invoke(actlas, added).exit_code == 0
    message = refused("ingest", str(checkpoint), "--corpus", "new")
    assert "as many tokens as one sequence of 60" in message


def test_a_file_that_is_not_there(refused: Refused) -> None:
    assert "does not exist" in refused("corpus", "add", "new", "--text", "nowhere.txt", code=2)


def test_unknown_names(refused: Refused, checkpoint: Path) -> None:
    assert "did you mean 'cats'" in refused("ingest", str(checkpoint), "--corpus", "cts", code=2)
    assert "no model 'x'" in refused("compute", "--models", "x", code=2)


@pytest.mark.parametrize("name", ["..", "metrics"])
def test_names_that_cannot_be_kept(refused: Refused, checkpoint: Path, name: str) -> None:
    text = checkpoint.parent / "long.txt"
    text.write_text("cat " * 200)
    expected = f"'{name}' cannot name a corpus or a model: expected a name"
    assert expected in refused("corpus", "add", name, "--text", str(text), code=2)
    named = ("ingest", str(checkpoint), "--corpus", "cats", "--name", name)
    assert expected in refused(*named, code=2)


def test_a_step_that_the_folder_does_not_have(refused: Refused, run_folder: Path) -> None:
    message = refused("ingest", str(run_folder), "--corpus", "cats", "--steps", "3", code=2)
    assert "has no step 3: it has 0, 5, 10" in message


def test_a_site_that_no_model_has(refused: Refused, run_folder: Path) -> None:
    arguments = ("ingest", str(run_folder), "--corpus", "cats", "--sites", "residul")
    assert "'residul' is not a site, nor 'module:PATH' of" in refused(*arguments, code=2)


def test_a_site_that_the_model_does_not_have(refused: Refused, run_folder: Path) -> None:
    arguments = ("ingest", str(run_folder), "--corpus", "cats", "--sites", "module:nowhere")
    assert "'module:nowhere' names no module of GPTNeoX" in refused(*arguments, code=2)


@pytest.mark.parametrize("command", [["ls"], ["compute"], ["show", "two_nn"], ["verify"]])
def test_a_store_that_is_not_there(refused: Refused, tmp_path: Path, command: list[str]) -> None:
    uri = str(tmp_path / "nowhere")
    assert re.search(r"no store at .*nowhere", refused(*command, uri=uri, code=2))
    assert not Path(uri).exists()


def test_a_store_that_is_a_file(refused: Refused, tmp_path: Path, checkpoint: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    assert "file" in refused("ls", uri=str(file), code=2)
    text = tmp_path / "text.txt"
    text.write_text("the cat " * 100)
    refused("corpus", "add", "new", "--text", str(text), uri=str(file), code=2)
    refused("ingest", str(checkpoint), "--corpus", "cats", uri=str(file), code=2)
    assert file.read_text() == "precious"


def test_a_folder_that_is_not_a_store(refused: Refused, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "cat.jpg").touch()
    text = tmp_path / "text.txt"
    text.write_text("the cat " * 100)
    for command in (["ls"], ["corpus", "add", "new", "--text", str(text)]):
        assert "photos" in refused(*command, uri=str(folder), code=2)
    assert [file.name for file in folder.iterdir()] == ["cat.jpg"]


def test_a_store_of_a_newer_format(store: str, refused: Refused, checkpoint: Path) -> None:
    repository = Repository.open(store)

    def change(root: zarr.Group) -> None:
        root.attrs[FORMAT_ATTRIBUTE] = FORMAT_VERSION + 1

    repository.update("pretend to come from the future", change)
    for command in (["ls"], ["ingest", str(checkpoint), "--corpus", "cats"]):
        result = CliRunner().invoke(actlas, [*command, "--store", store])
        assert result.exit_code == 1
        assert re.search(rf"has format {FORMAT_VERSION + 1}; .*Upgrade actlas", result.stderr)


def test_values_that_are_not_finite(store: str, refused: Refused, checkpoint: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(checkpoint / "model.safetensors")
    name = next(name for name in weights if "layers.0.mlp.dense_4h_to_h.bias" in name)
    weights[name][0] = float("inf")
    save_file(weights, checkpoint / "model.safetensors", metadata={"format": "pt"})
    message = refused("ingest", str(checkpoint), "--corpus", "cats")
    assert re.search("residual, layer 1 of step 0 of cats/model are NaN or infinite", message)
    assert "store and count them: --allow-nonfinite" in " ".join(message.split())
    assert "model" not in Repository.open(store).read()["cats"]
    arguments = ["ingest", str(checkpoint), "--corpus", "cats", "--allow-nonfinite"]
    assert CliRunner().invoke(actlas, [*arguments, "--store", store]).exit_code == 0
    assert "values not finite" in CliRunner().invoke(actlas, ["ls", "--store", store]).stdout


def test_another_model_of_the_same_name(refused: Refused, store: str, run_folder: Path) -> None:
    first = ["ingest", str(run_folder / "checkpoint-0"), "--corpus", "cats", "--name", "x"]
    assert CliRunner().invoke(actlas, [*first, "--store", store]).exit_code == 0
    copy = Path(store).parent / "other" / "checkpoint-0"
    shutil.copytree(run_folder / "checkpoint-10", copy)
    message = refused("ingest", str(copy), "--corpus", "cats", "--name", "x")
    assert re.search("step 0 of cats/x is already stored, but not the same: .*weights_sha", message)


def test_a_figure_of_an_unknown_kind(refused: Refused) -> None:
    """It is told before anything is looked for: nothing was computed here."""
    message = refused("plot", "average_cosine", "-o", "figure.docx", code=2)
    assert "expected a name ending in .png, .pdf, .svg" in message


def test_a_model_whose_rows_depend_on_the_batch(
    refused: Refused, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard of every ingest compares padded sequences with the same ones alone."""
    from transformers import BertModel

    plain = BertModel.forward

    def blind(self: BertModel, *args: object, **kwargs: object) -> object:
        return plain(self, *args, **(kwargs | {"attention_mask": None}))

    add_ids(store, "ids", [np.arange(1, 4), np.arange(5, 20), np.arange(7, 16)])
    model = "random:bert:hidden_size=16,num_hidden_layers=2,num_attention_heads=2,vocab_size=50"
    monkeypatch.setattr(BertModel, "forward", functools.update_wrapper(blind, plain))
    arguments = ("ingest", model, "--corpus", "ids")
    message = refused(*arguments)
    assert re.search(r"Error: residual of sequence \d differs by .* --batch-tokens 1", message)
    # Alone, a sequence has no padding to be seen.
    alone = CliRunner().invoke(
        actlas, [*arguments, "--batch-tokens", "1", "--store", store], catch_exceptions=False
    )
    assert alone.exit_code == 0, alone.output
