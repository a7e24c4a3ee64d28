"""The Dask cluster that deploy/ describes, run for real on loopback with its own certificates."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import dask
import pytest
import xarray as xr
import yaml
from distributed import Client
from distributed.security import Security

from analysis.compute import measure
from store.metrics import read_metrics

pytestmark = pytest.mark.slow(minutes=1)

BIN = Path(sys.executable).parent


def certificates(deploy, folder):
    subprocess.run([deploy / "docker" / "certificates.sh", folder], check=True, capture_output=True)
    return folder


def security(folder):
    certificate, key = str(folder / "certificate.pem"), str(folder / "key.pem")
    return Security(
        require_encryption=True,
        tls_ca_file=str(folder / "authority.pem"),
        tls_client_cert=certificate,
        tls_client_key=key,
    )


def client_settings(folder):
    """What `actlas compute --dask tls://…` reads from the environment of a client."""
    return {
        "distributed.comm.require-encryption": True,
        "distributed.comm.tls.ca-file": str(folder / "authority.pem"),
        "distributed.comm.tls.client.cert": str(folder / "certificate.pem"),
        "distributed.comm.tls.client.key": str(folder / "key.pem"),
    }


def wait_until_listening(port):
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.1)


def kill(process):
    """End a process and the workers that it watches over, as a lost node does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=20)


@pytest.fixture(scope="module")
def trusted(deploy, tmp_path_factory):
    return certificates(deploy, tmp_path_factory.mktemp("trusted") / "certificates")


@pytest.fixture(scope="module")
def cluster(deploy, trusted, tmp_path_factory):
    """Address of a scheduler, and its two workers, with the environment of the compose file."""
    services = yaml.safe_load((deploy / "docker" / "compose.yaml").read_text())["services"]
    secrets = {
        "/run/secrets/dask_authority": trusted / "authority.pem",
        "/run/secrets/dask_certificate": trusted / "certificate.pem",
        "/run/secrets/dask_key": trusted / "key.pem",
    }
    scratch = str(tmp_path_factory.mktemp("scratch"))

    def start(service, *arguments):
        own = {k: str(secrets.get(v, v)) for k, v in services[service]["environment"].items()}
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DASK_")} | own
        command = [BIN / "dask", service.removeprefix("dask-"), *arguments, "--host", "127.0.0.1"]
        return subprocess.Popen(
            command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
        )

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"tls://127.0.0.1:{port}"
    pages = ("--dashboard-address", "127.0.0.1:0")
    arguments = ("--nthreads", "1", "--memory-limit", "1GB", "--local-directory", scratch)
    processes = [start("dask-scheduler", "--protocol", "tls", "--port", str(port), *pages)]
    processes += [start("dask-worker", address, *arguments, *pages) for _ in range(2)]
    wait_until_listening(port)
    yield address, processes[1:]
    for process in processes:
        kill(process)


def settings_of_worker():
    names = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "OMP_NUM_THREADS")
    return tuple(os.environ.get(name) for name in names)


@pytest.fixture
def create_stored(root):
    """The function that makes the stores of the tests of analysis."""
    place = root / "tests" / "analysis" / "conftest.py"
    module = importlib.util.module_from_spec(
        specification := importlib.util.spec_from_file_location("stores", place)
    )
    sys.modules["stores"] = module
    specification.loader.exec_module(module)
    return module.create_stored


@pytest.mark.parametrize(
    ("scheme", "answer"),
    [("tcp", "ConnectionResetError|CommClosedError|Timed out"), ("tls", "certificate does not")],
)
def test_nobody_gets_in_without_a_certificate_that_the_authority_signed(
    deploy, cluster, tmp_path, scheme, answer
):
    address = cluster[0].replace("tls", scheme)
    strangers = security(certificates(deploy, tmp_path / "other")) if scheme == "tls" else None
    with pytest.raises(OSError, match=answer):
        Client(address, security=strangers, timeout="5s")
    # A client that failed would block the next one, were it collected while that is made.
    gc.collect()


def test_settings_reach_the_workers(cluster, trusted):
    address, _ = cluster
    with Client(address, security=security(trusted), timeout="60s") as client:
        client.wait_for_workers(2, timeout=60)
        # Dask's nanny would put 65536 in place of the first, were it not in its environment.
        assert set(client.run(settings_of_worker).values()) == {("67108864", "33554432", "1")}


def test_metrics_are_those_of_threads_when_a_worker_is_lost_half_way(
    cluster, trusted, create_stored, tmp_path, monkeypatch
):
    address, [victim, _] = cluster
    # A slab a task, so that there is a half way.
    monkeypatch.setattr("analysis.compute.BATCH_BYTES", 1)
    measured, tasks = {}, 16 * 3

    def progress(_, total):
        assert total == tasks
        kill(victim)

    for scheduler in ("threads", address):
        stored = create_stored(str(tmp_path / scheduler[:3]), steps=tuple(range(16)))
        with dask.config.set(client_settings(trusted)):
            measure(
                stored.repository,
                stored.path,
                metrics=["average_cosine", "svd_anisotropy"],
                scheduler=scheduler,
                progress=progress if scheduler == address else None,
            )
        measured[scheduler] = read_metrics(stored.repository, stored.path).load()
    assert victim.poll() is not None
    assert measured[address].average_cosine.notnull().all()
    xr.testing.assert_allclose(*measured.values(), rtol=1e-12)
