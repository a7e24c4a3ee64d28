"""Every variable and option that deploy/ sets is one that the program it is for knows."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import click
import dask.config
import distributed  # noqa: F401  # registers its settings with dask.config
import pytest
import yaml
from distributed.cli import dask_scheduler, dask_worker

PREFECT_NAMES = """
import json, pathlib
from pydantic import AliasChoices
from pydantic_settings import BaseSettings
from prefect.settings import Settings

names = []
def walk(model):
    prefix = model.model_config.get("env_prefix", "")
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseSettings):
            walk(field.annotation)
            continue
        names.append((prefix + name).upper())
        if isinstance(field.validation_alias, AliasChoices):
            names.extend(str(alias).upper() for alias in field.validation_alias.choices)
walk(Settings)
print(json.dumps(names))
"""


@pytest.fixture(scope="module")
def scripts(deploy):
    """Path → text of each file that starts something, comments included: they show commands too."""
    folders = (deploy / name for name in ("docker", "k8s", "slurm"))
    paths = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(deploy).as_posix(): path.read_text() for path in paths}


@pytest.fixture(scope="module")
def variables(scripts):
    """Name of a variable → a file that sets it."""
    pattern = re.compile(r"\b((?:PREFECT|DASK|ACTLAS)_[A-Z0-9_]+)(?=[=:,}]|$)", re.M)
    return {name: path for path, text in scripts.items() for name in pattern.findall(text)}


@pytest.fixture(scope="module")
def commands(scripts):
    """Every `command` and `args` of the YAML files that is a list, as a command line."""
    found = []

    def search(node):
        if isinstance(node, dict):
            for key, value in node.items():
                if key in ("command", "args") and isinstance(value, list):
                    found.append(shlex.join(map(str, value)))
                search(value)
        if isinstance(node, list):
            for item in node:
                search(item)

    for path, text in scripts.items():
        if path.endswith(".yaml"):
            search(list(yaml.safe_load_all(text)))
    return found


def options_of(command):
    return {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }


def options_in(line):
    return set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", line))


def test_prefect_variables_are_settings_of_prefect(variables, tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", PREFECT_NAMES],
        capture_output=True,
        text=True,
        check=True,
        env={"PREFECT_HOME": str(tmp_path), "PATH": ""},
    )
    # The compose file's own name for user:password, and what the server's container reads.
    known = {*json.loads(found.stdout), "PREFECT_AUTH"}
    ours = {name: path for name, path in variables.items() if name.startswith("PREFECT_")}
    assert len(ours) > 8
    assert {name: path for name, path in ours.items() if name not in known} == {}


def test_dask_variables_are_settings_of_dask(variables):
    missing = object()
    # `dask worker` reads the address itself: Dask declares no setting of that name.
    ours = {n: p for n, p in variables.items() if n.startswith("DASK_")}
    del ours["DASK_SCHEDULER_ADDRESS"]
    assert len(ours) > 8
    for name, path in ours.items():
        key = name.removeprefix("DASK_").lower().replace("__", ".")
        assert dask.config.get(key, missing) is not missing, f"{path}: {name} sets nothing"


def test_routes_of_the_scheduler_are_read_as_a_list_of_modules(deploy):
    cluster = next(yaml.safe_load_all((deploy / "k8s/prefect/dask-cluster.yaml").read_text()))
    [container] = cluster["spec"]["scheduler"]["spec"]["containers"]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    read = dask.config.collect_env(environment)
    routes = dask.config.get("distributed.scheduler.http.routes", config=read)
    usual = set(dask.config.get("distributed.scheduler.http.routes"))
    # All of Dask's own but the proxy, which would let a browser reach pages of the workers.
    assert set(routes) == usual - {"distributed.http.proxy"} | {"distributed.http.scheduler.api"}


@pytest.mark.parametrize(
    ("program", "command"),
    [("dask scheduler ", dask_scheduler.main), ("dask worker ", dask_worker.main)],
)
def test_dask_commands_use_options_that_exist(commands, program, command):
    lines = [line for line in commands if line.startswith(program)]
    assert len(lines) == 2  # one in compose, one for the operator
    for line in lines:
        assert options_in(line) <= options_of(command)


def test_workers_serve_their_pages_to_nobody_else(deploy, commands):
    """Dask opens 0.0.0.0 for a worker's pages even with --host and with --no-dashboard."""
    workers = [line for line in commands if line.startswith("dask worker ")]
    assert [line for line in workers if "--dashboard-address 127.0.0.1:" not in line] == []
    job = yaml.safe_load((deploy / "slurm" / "jobqueue.yaml").read_text())
    assert "127.0.0.1:0" in job["cluster"]["worker_extra_args"]
    assert job["cluster"]["scheduler_options"] == {"dashboard_address": "127.0.0.1:0"}


def test_actlas_commands_use_options_that_exist(root, scripts):
    from flows.cli import actlas

    guides = [(root / "docs" / name).read_text() for name in ("OPERATIONS.md", "SCALE.md")]
    # A command is written on one line, in code or in a comment.
    pattern = re.compile(
        r"\bactlas ((?:corpus add|ingest|compute|ls|show|plot|verify|watch|notify|monitor|gc"
        r"|flows (?:deploy|serve|run))\b[^\n`;|)]*)"
    )
    lines = pattern.findall("\n".join([*scripts.values(), *guides]))
    assert len(lines) > 4
    for line in lines:
        command: click.Command = actlas
        for word in line.split():
            if not isinstance(command, click.Group):
                break
            command = command.commands[word]
        assert options_in(line) <= options_of(command) | {"--help"}, line
