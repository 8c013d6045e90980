"""A hub of models on loopback: the part of the Hugging Face hub's API that a download speaks."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit


class HubServer(ThreadingHTTPServer):
    """Serves folders as repositories, each with one commit on its branch ``main``.

    Args:
        folders: of ``org/name``.
        gated: repositories that no token opens.
    """

    daemon_threads = True

    def __init__(self, folders: dict[str, Path], gated: frozenset[str] = frozenset()) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folders, self.gated = folders, gated
        self.sent: Counter[str] = Counter()
        """How often the content of each file was sent."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commit(self, repo: str) -> str:
        words = "".join(f"{one.name}{_sha(one)}" for one in self.files(repo))
        return hashlib.sha1(words.encode()).hexdigest()

    def files(self, repo: str) -> list[Path]:
        return sorted(one for one in self.folders[repo].rglob("*") if one.is_file())

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _answer(self) -> None:
        words = unquote(urlsplit(self.path).path).strip("/").split("/")
        is_api = words[:2] == ["api", "models"]
        words = words[2:] if is_api else words
        repo = "/".join(words[:2])
        if repo not in self.server.folders:
            self._refuse(404, "RepoNotFound")
            return
        commit = self.server.commit(repo)
        what, revision, name = words[2], words[3], "/".join(words[4:])
        if revision not in ("main", commit):
            self._refuse(404, "RevisionNotFound")
        elif is_api:
            self._tell(self._listed(repo) if what == "tree" else self._info(repo, commit))
        elif repo in self.server.gated:
            self._refuse(403, "GatedRepo")
        else:
            self._give(repo, name, commit)

    def _give(self, repo: str, name: str, commit: str) -> None:
        path = self.server.folders[repo] / name
        if not path.is_file():
            self._refuse(404, "EntryNotFound")
            return
        if self.command == "GET":
            self.server.sent[f"{repo}/{name}"] += 1
        about = {"ETag": f'"{_sha(path)}"', "X-Repo-Commit": commit}
        self._send(200, path.read_bytes(), about)

    def _info(self, repo: str, commit: str) -> dict[str, Any]:
        folder = self.server.folders[repo]
        siblings = [
            {"rfilename": str(one.relative_to(folder)), "size": one.stat().st_size}
            for one in self.server.files(repo)
        ]
        return {"id": repo, "sha": commit, "siblings": siblings}

    def _listed(self, repo: str) -> list[dict[str, Any]]:
        folder = self.server.folders[repo]
        return [
            {
                "type": "file",
                "path": str(one.relative_to(folder)),
                "size": one.stat().st_size,
                "oid": _sha(one)[:40],
            }
            for one in self.server.files(repo)
        ]

    def _tell(self, answer: object) -> None:
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"", {"X-Error-Code": code, "X-Error-Message": code})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
