"""A real Jupyter server with our extension, below a prefix, and pages that listen to it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.scrambling.scrambled_words import SEEN, VARIABLE
from tests.trusted import install_drivers
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "t"
BASE = "/user/x/"


def server_command(port: int) -> list[str]:
    """A Jupyter server with our part and without JupyterLab's."""
    return [
        *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
        *("--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"),
        *(f"--IdentityProvider.token={TOKEN}", f"--ServerApp.base_url={BASE}"),
        "--ServerApp.jpserver_extensions={'jupyter_mntrain': True, 'jupyterlab': False}",
    ]


@dataclass
class LiveServer:
    """One server process with a home of its own."""

    home: Path
    port: int
    cluster: str
    agents: str
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> LiveServer:
        self.home.mkdir(parents=True, exist_ok=True)
        if not (self.home / ".config" / "mntrain").exists():
            install_drivers(self.home / ".config")
        command = server_command(self.port)
        ours = ("MNTRAIN", "JUPYTER", "XDG")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        environment |= {one: os.environ[one] for one in (VARIABLE, SEEN) if one in os.environ}
        paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
        environment |= {"HOME": str(self.home), "PYTHONPATH": paths}
        environment |= {"MNTRAIN_CLUSTER": self.cluster, "MNTRAIN_AGENTS": self.agents}
        with (self.home / "server.log").open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=self.home, env=environment, stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)
        return self

    @property
    def log(self) -> str:
        return (self.home / "server.log").read_text()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def end(self) -> int:
        """End it in order; its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{BASE}mntrain/v1{path}"

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> httpx.Response:
        content = body if isinstance(body, bytes) else None
        if body is not None and content is None:
            content = msgspec.json.encode(body)
        basis = {"headers": {"Authorization": f"token {TOKEN}"}, "timeout": PATIENCE_S}
        return httpx.request(method, self.url(path), content=content, **(basis | more))

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def page(self, stream: str = "", since: int = 0) -> Page:
        url = self.url(f"/events?stream={stream}&since={since}").replace("http", "ws", 1)
        request = HTTPRequest(url, headers={"Authorization": f"token {TOKEN}"})
        return Page(await websocket_connect(request, max_message_size=64 << 20))

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}{BASE}api").status_code == 200
        except httpx.TransportError:
            return False


class Page:
    """One open page."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self._connection = connection
        self._is_closed = False

    async def next(self, *kinds: str) -> dict[str, Any]:
        """The next message, or the next of these kinds."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            left = deadline - time.monotonic()
            message = await _within(left, self._connection.read_message())
            assert message is not None, "the server has closed the connection"
            decoded: dict[str, Any] = msgspec.json.decode(message)
            if not kinds or decoded["kind"] in kinds:
                return decoded

    async def say(self, message: Any) -> None:
        text = (
            message if isinstance(message, str | bytes) else msgspec.json.encode(message).decode()
        )
        await self._connection.write_message(text, binary=isinstance(text, bytes))

    async def watch(self, job_id: str, stream: str = "", since: int = 0) -> None:
        await self.say({"kind": "watch", "job_id": job_id, "stream": stream, "since": since})

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._connection.close()
        while await _within(PATIENCE_S, self._connection.read_message()) is not None:
            pass


async def _within(seconds: float, waiting: Any) -> Any:
    return await asyncio.wait_for(asyncio.ensure_future(waiting), max(0.0, seconds))
