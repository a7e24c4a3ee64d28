"""What deploy/prefect.yaml says is what the flows take; a server is needed for none of this."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result
from prefect.client.orchestration import SyncPrefectClient

from flows.cli import actlas
from flows.deployments import (
    HEARTBEAT_SECONDS,
    HEARTBEATS_MISSED,
    TAG,
    _keeps_leases_in_memory,
    read_deployments,
)
from flows.failures import ServerError
from flows.notify import CHECKPOINT_AVAILABLE

FILE = Path(__file__).parents[2] / "deploy" / "prefect.yaml"
pytestmark = pytest.mark.filterwarnings("default:::prefect", "default:::websockets")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTLAS_CHECKPOINTS", "/checkpoints/run")
    monkeypatch.setenv("ACTLAS_CORPUS", "plays")
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[str, str], Path]:
    """Copy the file with one mistake in it."""

    def change(right: str, wrong: str) -> Path:
        text = FILE.read_text()
        assert right in text
        (tmp_path / "prefect.yaml").write_text(text.replace(right, wrong, 1))
        return tmp_path / "prefect.yaml"

    return change


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(actlas, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def test_the_deployments_can_run() -> None:
    described = read_deployments(FILE)
    flows = [one.entrypoint for one in described]
    assert flows == ["flows.watch:watch", "flows.ingest:ingest", "flows.measure:measure"]
    assert described[0].parameters == {
        "request": {"sources": ["/checkpoints/run"], "corpus": "plays"}
    }
    assert {one.work_pool.name for one in described} == {"actlas"}
    assert "can run" in run("flows", "deploy", "--check", "--file", FILE).output


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("request:", "requests:", "watch does not take its parameters"),
        ("sources:", "source:", "(?s)watch does not take .*source"),
        ('sources: ["{{ $ACTLAS_CHECKPOINTS }}"]', "sources: []", "watch does not take"),
        ("flows.watch:watch", "flows.watch:wotch", "no flow flows.watch:wotch"),
        ("flows.measure:measure", "flows.measured:measure", "no flow flows.measured"),
        ("$ACTLAS_CORPUS", "$ACTLAS_CORPORA", "needs ACTLAS_CORPORA in the environment"),
        ("work_pool:", "work_pole:", "does not describe deployments"),
        ("deployments:", "deployments: [", "does not describe deployments"),
    ],
)
def test_mistakes_are_found_before_a_server_is_asked(
    changed: Callable[[str, str], Path], right: str, wrong: str, message: str
) -> None:
    with pytest.raises(ServerError, match=message):
        read_deployments(changed(right, wrong))


def test_one_run_at_a_time_woken_by_the_event_with_a_heartbeat() -> None:
    import yaml

    document = yaml.safe_load(FILE.read_text())
    for one in document["deployments"]:
        assert one["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}
        assert TAG in one["tags"]
        variables = one["work_pool"]["job_variables"]
        assert variables["env"]["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == str(HEARTBEAT_SECONDS)
        assert variables["command"] == "python -m flows.execute"
    assert HEARTBEATS_MISSED >= 3
    assert document["deployments"][0]["triggers"][0]["expect"] == [CHECKPOINT_AVAILABLE]
    assert document["pull"] == []


def test_without_a_server_it_is_said_what_to_do(run_folder: Path) -> None:
    checkpoint = run_folder / "checkpoint-5"
    for arguments in (
        ("notify", checkpoint),
        ("notify", checkpoint, "--run", "watch/actlas"),
        ("flows", "deploy", "--file", FILE),
        ("flows", "serve", run_folder, "--corpus", "cats"),
    ):
        assert "set PREFECT_API_URL" in run(*arguments, code=1).stderr.replace("\n", " ")


def test_a_server_that_is_away_is_named(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    settings = {PREFECT_API_URL: "http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    with temporary_settings(settings):
        told = run("notify", run_folder / "checkpoint-5", code=1).stderr
    assert "http://127.0.0.1:9/api does not answer" in told


@pytest.mark.parametrize("kind", ["memory", "filesystem"])
def test_a_server_that_would_forget_who_runs_is_found_out(kind: str) -> None:
    module = f"prefect.server.concurrency.lease_storage.{kind}"
    settings = {"server": {"concurrency": {"lease_storage": module}}}
    answers = httpx.MockTransport(lambda request: httpx.Response(200, json=settings))
    client = SyncPrefectClient("http://server/api", httpx_settings={"transport": answers})
    assert _keeps_leases_in_memory(client) is (kind == "memory")


def test_only_one_checkpoint_is_announced(run_folder: Path) -> None:
    assert "name the folder of one" in run("notify", run_folder, code=1).stderr
