"""The SLURM files: as text everywhere, and for real where slurm-wlm and munge are installed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import xarray as xr
import yaml
from click.testing import CliRunner
from dask_jobqueue import SLURMCluster
from dask_jobqueue.slurm import SLURMJob
from distributed import Client

from flows.cli import actlas
from store.catalogue import catalogue
from store.metrics import read_metrics
from store.repository import Repository

sys.path.insert(0, str(Path(__file__).parents[1]))

from documents import pieces_of

PATH = os.environ["PATH"] + os.pathsep + "/usr/sbin"
needs_slurm = pytest.mark.skipif(
    shutil.which("slurmctld", path=PATH) is None or shutil.which("munged", path=PATH) is None,
    reason="no SLURM here: apt-get install --no-install-recommends slurm-wlm munge",
)

JOB_SCRIPT = """\
#!/usr/bin/env bash

#SBATCH -J dask-worker
#SBATCH -e slurm-logs/dask-worker-%J.err
#SBATCH -o slurm-logs/dask-worker-%J.out
#SBATCH -p cpu
#SBATCH -n 1
#SBATCH --cpus-per-task=1
#SBATCH --mem=4G
#SBATCH -t 02:00:00
umask 077
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1
export MALLOC_TRIM_THRESHOLD_=67108864 MALLOC_MMAP_THRESHOLD_=33554432
export DASK_DISTRIBUTED__WORKER__PROFILE__INTERVAL=100ms
export ICECHUNK_NO_LOGS=1
python -m distributed.cli.dask_worker tls://scheduler:8786 --name worker --nthreads 1 \
--memory-limit 3.73GiB --nanny --death-timeout 60 --local-directory /tmp \
--lifetime 110m --lifetime-stagger 4m --dashboard-address 127.0.0.1:0
"""

# Arguments of the cluster, which a single job does not take.
CLUSTER_ONLY = ("security", "shared_temp_directory", "scheduler_options")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working directory: job logs are written relative to it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def specification(deploy):
    return yaml.safe_load((deploy / "slurm" / "jobqueue.yaml").read_text())


@pytest.fixture(scope="module")
def array_script(deploy):
    return deploy / "slurm" / "ingest-array.sbatch"


def job(options):
    own = {name: value for name, value in options.items() if name not in CLUSTER_ONLY}
    return SLURMJob("tls://scheduler:8786", name="worker", python="python", **own)


def test_a_worker_is_submitted_as_this_script(folder, specification):
    assert job(specification["cluster"]).job_script() == JOB_SCRIPT


def test_an_unknown_key_is_refused(folder, specification):
    specification["cluster"]["wall_time"] = specification["cluster"].pop("walltime")
    with pytest.raises(TypeError, match="wall_time"):
        job(specification["cluster"])


def test_the_worker_leaves_before_its_time_is_up(specification):
    arguments = specification["cluster"]["worker_extra_args"]
    lifetime, stagger = (
        int(arguments[arguments.index(name) + 1].removesuffix("m"))
        for name in ("--lifetime", "--lifetime-stagger")
    )
    hours, minutes, _ = map(int, specification["cluster"]["walltime"].split(":"))
    assert lifetime + stagger < 60 * hours + minutes


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """An `actlas` that tells what it was asked, for scripts that call it by name."""
    program = tmp_path / "bin" / "actlas"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$OMP_NUM_THREADS:" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{PATH}")
    monkeypatch.setenv("MODEL", "/runs/my model")
    monkeypatch.setenv("CORPUS", "plays")
    monkeypatch.setenv("ACTLAS_STORE", "/stores/a")
    monkeypatch.setenv("STEPS", "0 64 1000")
    return program


def run_task(array_script, index, **environment):
    return subprocess.run(
        ["bash", array_script],
        env={**os.environ, "SLURM_ARRAY_TASK_ID": str(index), **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.mark.parametrize(("index", "step"), [(0, 0), (1, 64), (2, 1000)])
def test_each_task_of_the_array_ingests_its_step(stand_in, array_script, index, step):
    result = run_task(array_script, index, SLURM_CPUS_PER_TASK="3")
    assert result.stdout == f"3: ingest /runs/my model --corpus plays --steps {step}\n"
    assert result.returncode == 0


def test_a_task_without_a_step_says_what_to_submit(stand_in, array_script):
    result = run_task(array_script, 3)
    assert result.returncode == 2
    assert "index 3 is past the 3 steps of STEPS: submit with --array=0-2" in result.stderr


@pytest.mark.parametrize("name", ["MODEL", "CORPUS", "ACTLAS_STORE", "STEPS"])
def test_a_forgotten_variable_is_named(stand_in, array_script, monkeypatch, name):
    monkeypatch.delenv(name)
    result = run_task(array_script, 0)
    assert result.returncode != 0
    assert f"{name}: is not set" in result.stderr


@pytest.fixture(scope="module")
def slurm(deploy, tmp_path_factory):
    """A SLURM of one node; returns the path of its configuration."""
    script, folder = deploy / "slurm" / "single-node.sh", tmp_path_factory.mktemp("slurm")
    started = subprocess.run([script, "start", folder], capture_output=True, text=True, timeout=120)
    try:
        assert started.returncode == 0, started.stderr
        yield started.stdout.strip()
    finally:
        subprocess.run([script, "stop", folder], check=True, timeout=120)


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def queue():
    return output_of("squeue", "--noheader", "--format=%A").split()


def wait_until(condition, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.2)


@pytest.fixture
def training_run(tmp_path):
    """A folder of two checkpoints of a tiny model, and a store with a corpus of ids for it."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from flows.corpora import add_ids

    config = transformers.GPTNeoXConfig(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    for step in (0, 64):
        torch.manual_seed(step)
        model = transformers.GPTNeoXForCausalLM(config)
        model.save_pretrained(tmp_path / "run" / f"checkpoint-{step}")
    add_ids(str(tmp_path / "store"), "plays", np.arange(64).reshape(4, 16) % 32)
    return tmp_path / "run"


@needs_slurm
@pytest.mark.slow(minutes=2)
def test_an_array_job_ingests_every_step_once(
    slurm, training_run, array_script, folder, monkeypatch
):
    uri = str(folder / "store")
    monkeypatch.setenv("SLURM_CONF", slurm)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{PATH}")
    for name, value in (("MODEL", training_run), ("CORPUS", "plays"), ("STEPS", "0 64")):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("ACTLAS_STORE", uri)

    def submit():
        small = ["--mem=2G", "--cpus-per-task=1", "--array=0-1", "--parsable"]
        job = output_of("sbatch", *small, str(array_script))
        # `sbatch --wait` would look every half a minute.
        wait_until(lambda: not queue(), seconds=300)
        ended = output_of("scontrol", "show", "job", "--oneliner", job).splitlines()
        assert ["JobState=COMPLETED" in line for line in ended] == [True, True]
        return Repository.open(uri).snapshot_id()

    first = submit()
    [held] = catalogue(Repository.open(uri))
    assert [(step.step, step.complete) for step in held.steps] == [(0, True), (64, True)]
    # Submitted again as it is: nothing is left to do, and nothing is committed.
    assert submit() == first


def ports_open_to_others():
    sockets = psutil.Process().net_connections("tcp")
    listening = [socket.laddr for socket in sockets if socket.status == psutil.CONN_LISTEN]
    return {address.port for address in listening if address.ip != "127.0.0.1"}


def unit(number):
    time.sleep(0.2)
    names = ("SLURM_JOB_ID", "MALLOC_TRIM_THRESHOLD_", "OMP_NUM_THREADS")
    return number * number, tuple(os.environ[name] for name in names)


@needs_slurm
@pytest.mark.slow
def test_a_cancelled_job_costs_no_result(slurm, specification, folder, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", slurm)
    monkeypatch.setenv("PATH", PATH)
    with SLURMCluster(**specification["cluster"]) as cluster:
        scheme, _, port = cluster.scheduler_address.split(":")
        assert scheme == "tls"
        assert ports_open_to_others() == {int(port)}
        keys = [path for path in folder.iterdir() if path.name.startswith(".dask-jobqueue")]
        assert [path.stat().st_mode & 0o077 for path in keys] == [0, 0, 0]
        cluster.adapt(minimum_jobs=2, maximum_jobs=2)
        with Client(cluster) as client:
            client.wait_for_workers(2, timeout=90)
            futures = client.map(unit, range(40), pure=False)
            wait_until(lambda: any(future.done() for future in futures))
            subprocess.run(["scancel", queue()[0]], check=True)
            results = client.gather(futures)
    assert [square for square, _ in results] == [number * number for number in range(40)]
    assert {settings[1:] for _, settings in results} == {("67108864", "1")}
    wait_until(lambda: not queue())
    # dask-jobqueue leaves the files of its certificates to the garbage collector.
    for name in ("_job_ca_file", "_job_cert", "_job_key"):
        getattr(cluster, name).close()


SLOW = """\
import os, pathlib, time

def slow(statistics):
    \"\"\"Number of rows, slowly.\"\"\"
    marker = pathlib.Path(os.environ["MARKER"])
    if not marker.exists():
        marker.write_text(os.environ.get("SLURM_JOB_ID", ""))
    time.sleep(0.02)
    return float(statistics.n)
"""


@needs_slurm
@pytest.mark.slow
def test_compute_survives_a_cancelled_job(slurm, specification, training_run, folder, monkeypatch):
    marker, code = folder / "marker", folder / "code"
    code.mkdir()
    (code / "slow_metric.py").write_text(SLOW)
    monkeypatch.setenv("SLURM_CONF", slurm)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{PATH}")
    monkeypatch.setenv("MARKER", str(marker))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(code), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(code)
    specification["jobs"] = {"minimum": 2, "maximum": 2}
    (documented,) = pieces_of(__file__)
    _, *words = shlex.split(documented.text)
    assert words[:2] == ["compute", "--dask"]
    (folder / words[2].removeprefix("slurm:")).write_text(yaml.safe_dump(specification))

    def run(*arguments):
        done = CliRunner().invoke(actlas, [str(argument) for argument in arguments])
        assert done.exit_code == 0, done.output

    run("ingest", training_run, "--corpus", "plays", "--store", folder / "store")
    shutil.copytree(folder / "store", folder / "other")
    compute = ["compute", "average_cosine", "svd_anisotropy", "slow_metric:slow", "--store"]
    program = [sys.executable, "-c", "from flows.cli import main; main()"]
    started = [*program, *compute, folder / "store", *words[1:]]
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        # A worker compiles first, where nothing was compiled before.
        wait_until(lambda: marker.exists() and marker.read_text(), seconds=240)
        subprocess.run(["scancel", marker.read_text()], check=True)
        output, _ = running.communicate(timeout=300)
    assert running.returncode == 0, output.decode()
    wait_until(lambda: not queue())
    run(*compute, folder / "other")
    found, expected = (
        read_metrics(Repository.open(str(folder / name)), "plays/run").load()
        for name in ("store", "other")
    )
    assert found["slow"].notnull().all()
    xr.testing.assert_allclose(found, expected, rtol=1e-12)
