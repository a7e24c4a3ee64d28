"""Settings: what is typed comes first, then the environment, then files; nothing is ignored."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from flows.cli import actlas
from flows.cli.configuration import read_settings


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run `actlas compute` in an empty folder and return the values that its options got."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ACTLAS_STORE", raising=False)
    seen: dict[str, object] = {}
    command = actlas.commands["compute"]
    monkeypatch.setattr(command, "callback", lambda **values: seen.update(values))

    def run(*arguments: str, code: int = 0, **environment: str):
        seen.clear()
        line = [*arguments] if "compute" in arguments else [*arguments, "compute"]
        result = CliRunner().invoke(actlas, line, env=environment, catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result if code else dict(seen)

    return run


def test_flags_come_before_environment_before_files(probe) -> None:
    Path("actlas.toml").write_text('store = "file"\n[compute]\nsample = 500\nsteps = [0, 64]\n')
    assert (probe()["store"], probe()["sample"], probe()["steps"]) == ("file", 500, (0, 64))
    assert probe(ACTLAS_STORE="env", ACTLAS_COMPUTE_SAMPLE="600")["store"] == "env"
    assert probe(ACTLAS_COMPUTE_SAMPLE="600")["sample"] == 600
    values = probe("compute", "--sample", "700", "--store", "flag", ACTLAS_STORE="env")
    assert (values["store"], values["sample"]) == ("flag", 700)


def test_the_folders_file_comes_before_the_users(probe, tmp_path: Path) -> None:
    user = tmp_path / "home" / "actlas"
    user.mkdir(parents=True)
    (user / "config.toml").write_text('store = "mine"\n[compute]\nseed = 4\n')
    Path("actlas.toml").write_text('store = "ours"\n')
    assert (probe()["store"], probe()["seed"]) == ("ours", 4)
    Path("other.toml").write_text("")
    assert probe("--config", "other.toml")["store"] == "./activations"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('stoer = "x"', "no option 'stoer'; did you mean 'store'"),
        ("[comptue]\nseed = 1", "no command 'comptue'; did you mean 'compute'"),
        ("[compute]\nsampel = 1", "no option of compute 'sampel'; did you mean 'sample'"),
        ("[compute]\nsample = 1979-05-27", "--sample is datetime"),
        ("store = ", "cannot read the settings of"),
        ("[corpus]\nstore = 'x'", "no command 'corpus.store'"),
        ("[compute]\nsample = 3", "3 is not in the range x>=10"),
    ],
)
def test_what_cannot_be_meant_is_refused(probe, text: str, message: str) -> None:
    Path("actlas.toml").write_text(text)
    assert message in " ".join(probe(code=2).stderr.split())


def test_every_option_can_be_set_in_a_file(tmp_path: Path) -> None:
    """Each option of each command, as its own table would name it."""
    file = tmp_path / "all.toml"

    def tables(group: click.Group, prefix: str = ""):
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                yield from tables(command, f"{prefix}{name}.")
            else:
                options = [o for p in command.params for o in p.opts if re.match("--(?!help)", o)]
                yield f"[{prefix}{name}]", *(f'{option[2:]} = "x"' for option in options)

    file.write_text("\n".join(line for table in tables(actlas) for line in table))
    settings = read_settings([file], actlas)
    assert settings["compute"]["as_json"] == "x"
    assert settings["corpus"]["add"]["chunk_chars"] == "x"


def test_every_option_has_a_variable_that_is_called_as_it_is_typed() -> None:
    shared = {"store": "ACTLAS_STORE", "dask": "ACTLAS_DASK"}

    def check(group: click.Group, prefix: str) -> None:
        for name, command in group.commands.items():
            within = f"{prefix}_{name}".upper()
            if isinstance(command, click.Group):
                check(command, within)
                continue
            for option in (p for p in command.params if isinstance(p, click.Option)):
                typed = max(option.opts, key=len)[2:]
                expected = shared.get(typed, f"{within}_{typed.upper()}".replace("-", "_"))
                assert option.envvar == expected

    check(actlas, "ACTLAS")


def test_a_variable_is_read_under_no_other_name(probe) -> None:
    assert probe(ACTLAS_DASK="local:3")["scheduler"] == "local:3"
    assert probe(ACTLAS_COMPUTE_SCHEDULER="local:3")["scheduler"] == "threads"


def test_verbose_says_which_files_and_quiet_says_nothing(probe) -> None:
    Path("actlas.toml").write_text("")
    result = CliRunner().invoke(actlas, ["-v", "compute"])
    assert result.stderr == "settings from actlas.toml\n"
    assert "either --quiet or --verbose" in probe("-q", "-v", code=2).stderr
