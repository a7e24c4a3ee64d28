"""Speaks as much of the Hub's protocol on loopback as a client needs to list and to download.

A repository is {revision: folder}; each folder is one immutable commit. Endpoints: GET
/api/models/ID/refs, /api/models/ID[/revision/REV], /api/models/ID/tree/REV, and HEAD and GET
/ID/resolve/REV/FILE with ranges. Faults can be asked for: an error status, or a cut connection.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import torch
from huggingface_hub import constants
from transformers import PreTrainedTokenizerFast

from flows.capture import hub, hub_client
from flows.capture.weights import LoadedModel

REPO = "lab/tiny-neox"

LARGE = {".safetensors", ".bin"}


@dataclass
class Fault:
    path: str
    times: int
    status: int | None = None
    cut_after: int | None = None


@dataclass
class Commit:
    folder: Path
    files: dict[str, Path] = field(init=False)
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        self.files = {file.name: file for file in sorted(self.folder.iterdir())}
        content = [self.digest(name) for name in self.files]
        self.sha = hashlib.sha1(json.dumps([*self.files, *content]).encode()).hexdigest()

    def digest(self, name: str) -> str:
        return hashlib.sha256(self.files[name].read_bytes()).hexdigest()

    def entry(self, name: str) -> dict[str, object]:
        size = self.files[name].stat().st_size
        entry = {"type": "file", "path": name, "size": size, "oid": self.digest(name)[:40]}
        if self.files[name].suffix in LARGE:
            entry["lfs"] = {"oid": self.digest(name), "size": size, "pointerSize": 134}
        return entry


class Hub:
    """A server of repositories, for the time of a `with` block."""

    def __init__(self, repositories: dict[str, dict[str, Path]]) -> None:
        self.refs = {
            repo: {name: Commit(folder) for name, folder in revisions.items()}
            for repo, revisions in repositories.items()
        }
        self.requests: list[str] = []
        self.faults: list[Fault] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                hub.answer(self)

            do_HEAD = do_GET  # noqa: N815 - named by http.server

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Hub:
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *args: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def commit(self, repo: str, revision: str) -> Commit | None:
        commits = self.refs[repo]
        by_sha = {commit.sha: commit for commit in commits.values()}
        return commits.get(revision) or by_sha.get(revision)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(request.path).path)
        self.requests.append(f"{request.command} {path}")
        fault = next((f for f in self.faults if f.times > 0 and f.path in path), None)
        if fault is not None and (fault.status or request.command == "GET"):
            fault.times -= 1
            if fault.status:
                return send(request, fault.status, b"", {"Retry-After": "7"})
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(refs|revision|tree)(?:/(.+))?)?", path)
        if found:
            return self.describe(request, found[1], found[2] or "revision", found[3] or "main")
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if found and found[1] in self.refs:
            cut = fault.cut_after if fault else None
            return self.resolve(request, found[1], found[2], found[3], cut)
        return refuse(request, "EntryNotFound")

    def describe(self, request: BaseHTTPRequestHandler, repo: str, what: str, rev: str) -> None:
        if repo not in self.refs:
            return refuse(request, "RepoNotFound")
        if what == "refs":
            branches = [
                {"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit.sha}
                for name, commit in self.refs[repo].items()
            ]
            return send_json(request, {"branches": branches, "tags": [], "converts": []})
        commit = self.commit(repo, rev)
        if commit is None:
            return refuse(request, "RevisionNotFound")
        if what == "tree":
            return send_json(request, [commit.entry(name) for name in commit.files])
        siblings = [{"rfilename": name} for name in commit.files]
        return send_json(request, {"id": repo, "sha": commit.sha, "siblings": siblings})

    def resolve(
        self, request: BaseHTTPRequestHandler, repo: str, rev: str, name: str, cut: int | None
    ) -> None:
        commit = self.commit(repo, rev)
        if commit is None or name not in commit.files:
            return refuse(request, "EntryNotFound" if commit else "RevisionNotFound")
        content, status = commit.files[name].read_bytes(), 200
        headers = {"X-Repo-Commit": commit.sha, "ETag": f'"{commit.digest(name)}"'}
        headers["Accept-Ranges"] = "bytes"
        if wanted := re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", "")):
            start, status = int(wanted[1]), 206
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            content = content[start:]
        return send(request, status, content, headers, cut)


def refuse(request: BaseHTTPRequestHandler, code: str) -> None:
    send(request, 404, b"{}", {"X-Error-Code": code})


def send_json(request: BaseHTTPRequestHandler, content: object) -> None:
    send(request, 200, json.dumps(content).encode(), {"Content-Type": "application/json"})


def send(
    request: BaseHTTPRequestHandler,
    status: int,
    content: bytes,
    headers: dict[str, str],
    cut: int | None = None,
) -> None:
    request.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(content))}.items():
        request.send_header(name, value)
    request.end_headers()
    if request.command == "HEAD":
        return
    request.wfile.write(content[:cut])
    if cut is not None:
        request.wfile.flush()
        request.close_connection = True


@pytest.fixture(scope="module")
def folders(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Callable[..., LoadedModel],
    tiny_tokenizer: PreTrainedTokenizerFast,
) -> dict[str, Path]:
    """Return three checkpoints of one model by name; the last two have the same weights."""
    base = tmp_path_factory.mktemp("hub")
    model = tiny_model("gpt_neox", head=True).model
    found = {name: base / name for name in ("zero", "one", "same")}
    bias = model.gpt_neox.final_layer_norm.bias
    for name, folder in found.items():
        with torch.no_grad():
            bias.fill_(0.0 if name == "zero" else 1.0)
        model.save_pretrained(folder)
        tiny_tokenizer.save_pretrained(folder)
    (found["same"] / "README.md").write_text("other words, the same weights")
    with torch.no_grad():
        bias.zero_()
    return found


@pytest.fixture
def served(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hub]:
    """Serve them as step0, step1000-tokens4B and main, to a client with an empty cache."""
    revisions = {
        "main": folders["same"],
        "step0": folders["zero"],
        "step1000-tokens4B": folders["one"],
        "notes": folders["zero"],
    }
    repositories = {
        REPO: revisions,
        "lab/multi-seed_0-step_20k": {"main": folders["zero"]},
        "lab/multi-seed_0-step_40k": {"main": folders["one"]},
        "lab/plain": {"main": folders["zero"]},
    }
    hub._digests.cache_clear()
    waited: list[float] = []
    monkeypatch.setattr(hub_client.time, "sleep", waited.append)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Hub(repositories) as server:
        server.waited = waited
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield server


def gets(server: Hub, part: str) -> list[str]:
    return [r for r in server.requests if r.startswith("GET") and part in r]
