from __future__ import annotations

import io
import json
import logging
import shutil
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from flows.capture.digests import DigestCache
from flows.logs import JsonFormatter, fields
from flows.monitoring import Gauge, exposition, gather, serve_metrics
from flows.survey import Watched


def test_the_format_of_prometheus() -> None:
    labels = (("name", 'a "b"\\\nc'), ("kind", "x"))
    gauges = [Gauge("one", "First.", {(): 1.5}), Gauge("two", "Second.", {labels: 2}, "counter")]
    assert exposition(gauges) == (
        "# HELP actlas_one First.\n# TYPE actlas_one gauge\nactlas_one 1.5\n"
        "# HELP actlas_two Second.\n# TYPE actlas_two counter\n"
        'actlas_two{name="a \\"b\\"\\\\\\nc",kind="x"} 2\n'
    )


def test_lag_is_the_age_of_what_waits_longest(
    store: str, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "tiny"
    shutil.copytree(run_folder, runs)
    weights = runs / "checkpoint-5" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    watched = Watched(store=store, sources=(str(runs),), corpus="cats")
    later = time.time() + 1000
    monkeypatch.setattr("time.time", lambda: later)
    found = {g.name: dict(g.values) for g in gather(store, watched, DigestCache(tmp_path / "c"))}
    assert found["missing"] == {(): 2}
    assert found["unfinished"] == {(): 0}
    assert found["broken"] == {(("name", "tiny step 5"),): 1}
    assert found["lag_seconds"][()] == pytest.approx(1000, abs=60)


def test_figures_are_served_on_loopback(store: str, tmp_path: Path) -> None:
    away = tmp_path / "away"

    def ask(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}{path}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    with serve_metrics(0, lambda: gather(store, None, DigestCache(tmp_path / "c"))) as server:
        assert server.server_address[0] == "127.0.0.1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        assert ask("/metrics")[0] == 200
        assert "actlas_steps" in ask("/metrics")[1]
        assert ask("/")[0] == 404
        Path(store).rename(away)
        assert ask("/metrics")[0] == 503
        away.rename(store)
        assert ask("/metrics")[0] == 200
        server.shutdown()
        thread.join()


def test_records_as_json() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("actlas.test_records")
    logger.addHandler(handler)
    logger.propagate = False
    logger.error("%s broke", "it", extra=fields("failed", name="x", path=Path("a")))
    try:
        raise ValueError("no")
    except ValueError:
        logger.exception("unexpected")
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert (first["message"], first["event"], first["path"]) == ("it broke", "failed", "a")
    assert (first["level"], first["logger"]) == ("error", "actlas.test_records")
    assert second["traceback"].endswith("ValueError: no")
