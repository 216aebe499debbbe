"""A loopback server with the endpoints of Hugging Face's hub that uploads and downloads of models use."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

SHA = "0123456789abcdef0123456789abcdef01234567"


class HubServer(ThreadingHTTPServer):
    """files: of each repository, by name; requests: method and path of each; created: settings of repositories."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.files: dict[str, dict[str, bytes]] = {}
        self.large: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.created: list[dict[str, Any]] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: HubServer

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, content: Any, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _handle(self) -> None:
        path = self.path.partition("?")[0]
        self.server.requests.append((self.command, path))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = path.strip("/").split("/")
        match parts:
            case ["api", "repos", "create"]:
                repository = json.loads(body)
                name = f"{repository['organization']}/{repository['name']}"
                self.server.files.setdefault(name, {})
                self.server.created.append(repository)
                self._answer({"url": f"{self.server.url}/{name}"})
            case ["api", "validate-yaml"]:
                self._answer({"errors": [], "warnings": []})
            case ["lfs", oid]:
                self.server.large[oid] = body
                self._answer({})
            case ["api", "models", user, model, *_] if f"{user}/{model}" not in self.server.files:
                self._answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
            case ["api", "models", user, model, "preupload", _]:
                modes = {False: "regular", True: "lfs"}
                files = [
                    {
                        "path": file["path"],
                        "uploadMode": modes[file["path"].endswith(".safetensors")],
                        "shouldIgnore": False,
                    }
                    for file in json.loads(body)["files"]
                ]
                self._answer({"files": files})
            case [_, _, "info", "lfs", "objects", "batch"]:
                objects = [
                    {**entry, "actions": {"upload": {"href": f"{self.server.url}/lfs/{entry['oid']}"}}}
                    for entry in json.loads(body)["objects"]
                ]
                self._answer({"transfer": "basic", "objects": objects})
            case ["api", "models", user, model, "commit", _]:
                for line in map(json.loads, body.splitlines()):
                    value = line["value"]
                    if line["key"] == "file":
                        self.server.files[f"{user}/{model}"][value["path"]] = base64.b64decode(value["content"])
                    elif line["key"] == "lfsFile":
                        self.server.files[f"{user}/{model}"][value["path"]] = self.server.large[value["oid"]]
                self._answer({"commitOid": SHA, "commitUrl": f"{self.server.url}/{user}/{model}/commit/{SHA}"})
            case ["api", "models", user, model, "revision", _]:
                self._answer({"id": f"{user}/{model}", "sha": SHA, "siblings": [], "private": False, "tags": []})
            case ["api", "models", user, model, "tree", _]:
                files = self.server.files[f"{user}/{model}"]
                self._answer(
                    [{"type": "file", "path": name, "size": len(x), "oid": _etag(x)} for name, x in files.items()]
                )
            case [user, model, "resolve", _, file] if file in self.server.files.get(f"{user}/{model}", {}):
                content = self.server.files[f"{user}/{model}"][file]
                self._answer(content, X_Repo_Commit=SHA, ETag=f'"{_etag(content)}"')
            case _:
                self._answer({"error": "not found"}, 404)

    do_GET = do_HEAD = do_POST = do_PUT = _handle  # noqa: N815


def _etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The server, as the hub of this process, with an empty cache."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="needs the extra hub")
    server = HubServer()
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    yield server
    server.shutdown()
    server.server_close()
