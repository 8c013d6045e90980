"""A JupyterHub with its own proxy, and what people do there by their browsers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.agent.live import free_range
from tests.server.live_server import Page
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "hub"
PACKAGES = ("jupyterhub>=5", "jupyterhub-idle-culler>=1.4")
PROXY = "configurable-http-proxy@5"

CONFIG = """
c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.command = {proxy!r}
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r} + "/{{username}}"
c.Spawner.cmd = [{python!r}, "-m", "jupyterhub.singleuser"]
c.Spawner.args = ["--allow-root", "--ServerApp.ip=127.0.0.1"]
c.Spawner.default_url = "/lab"
c.Spawner.environment = {environment!r}
c.JupyterHub.last_activity_interval = 2
c.JupyterHub.activity_resolution = 1
c.JupyterHub.services = [{{"name": "tests", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [{{"name": "tests", "services": ["tests"], "scopes": {scopes!r}}}]
"""
SCOPES = ("admin:users", "admin:servers", "list:users", "read:users:activity", "servers")
LAST_ACTIVITY_S = "2"
"""How often a server tells the Hub when it was last used; by default every 5 minutes."""
OURS = ("MNTRAIN", "JUPYTER", "XDG")


def install() -> Path:
    """Install the Hub and its proxy; the folder of its packages.

    They are those that this environment lacks: a server's own has JupyterLab and mntrain, too.
    """
    made = FOLDER / "python"
    lib = made / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = lib / "site-packages"
    if not (packages / "jupyterhub_idle_culler").exists():
        venv.create(made, with_pip=True, clear=True)
        ours = next(one for one in map(Path, sys.path) if one.name == "site-packages")
        (packages / "ours.pth").write_text(f"import site; site.addsitedir({str(ours)!r})\n")
        run(str(made / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES)
    if not (FOLDER / "node_modules" / ".bin" / "configurable-http-proxy").exists():
        run("npm", "install", "--silent", "--no-audit", "--prefix", str(FOLDER), PROXY)
    return packages


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


class Hub:
    """One Hub, whose people have the folders of their names below ``homes``.

    Args:
        homes: an empty folder.
        packages: of :func:`install`.
    """

    def __init__(self, homes: Path, packages: Path) -> None:
        self.homes = homes
        self._packages = packages
        self._token = secrets.token_hex(16)
        self._port = free_range("127.0.0.1", 3)
        self.url = f"http://127.0.0.1:{self._port}"

    @contextmanager
    def running(self) -> Iterator[Hub]:
        config = self.homes / "jupyterhub_config.py"
        config.write_text(
            CONFIG.format(
                port=self._port,
                hub_port=self._port + 1,
                proxy_port=self._port + 2,
                proxy=[str(FOLDER / "node_modules" / ".bin" / "configurable-http-proxy")],
                homes=str(self.homes),
                python=sys.executable,
                environment=self._environment(),
                token=self._token,
                scopes=list(SCOPES),
            )
        )
        command = [sys.executable, "-m", "jupyterhub", "--config", str(config)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        with (self.homes / "hub.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=self.homes,
                env=environment | self._environment(),
                stdout=log,
                stderr=log,
            )
        try:
            until(lambda: self._answers(process), f"the Hub to answer; {self.homes}/hub.log")
            yield self
        finally:
            process.terminate()  # and with it the proxy and everybody's server
            process.wait(PATIENCE_S)

    def _environment(self) -> dict[str, str]:
        paths = [str(self._packages), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            "PYTHONPATH": os.pathsep.join(paths),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "JUPYTERHUB_ACTIVITY_INTERVAL": LAST_ACTIVITY_S,
        }

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, (self.homes / "hub.log").read_text()[-3000:]
        try:
            return httpx.get(f"{self.url}/hub/api").status_code == 200
        except httpx.TransportError:
            return False

    def ask(self, method: str, path: str) -> httpx.Response:
        """As the Hub's own services do."""
        headers = {"Authorization": f"token {self._token}"}
        answer = httpx.request(method, f"{self.url}/hub/api{path}", headers=headers, timeout=60)
        answer.raise_for_status()
        return answer

    def server_of(self, name: str) -> dict[str, Any]:
        """What the Hub knows of somebody's server; empty if it does not run."""
        servers = self.ask("GET", f"/users/{name}?include_stopped_servers=0").json()["servers"]
        return dict(servers.get("", {}))

    @contextmanager
    def culling(self, after_s: int) -> Iterator[None]:
        """With the Hub's own culler of servers that nobody uses."""
        command = [sys.executable, "-m", "jupyterhub_idle_culler", f"--url={self.url}/hub/api"]
        command += [f"--timeout={after_s}", "--cull-every=1"]
        environment = os.environ | self._environment() | {"JUPYTERHUB_API_TOKEN": self._token}
        with (self.homes / "culler.log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE_S)

    def log_in(self, name: str) -> Person:
        """Somebody who has logged in, with a home of their own, and whose server runs."""
        home = self.homes / name
        home.mkdir(exist_ok=True)
        person = Person(self, name, home)
        person.log_in()
        person.spawn()
        return person


class Person:
    """Somebody with a browser: it has cookies, and no token."""

    def __init__(self, hub: Hub, name: str, home: Path) -> None:
        self.hub, self.name, self.home = hub, name, home
        self.base = f"/user/{name}/"
        self.browser = httpx.Client(
            base_url=hub.url, follow_redirects=True, timeout=PATIENCE_S, trust_env=False
        )

    def log_in(self) -> None:
        page = self.browser.get("/hub/login").text
        found = re.search(r'name="_xsrf"\s+value="([^"]+)"', page)
        assert found, page
        form = {"username": self.name, "password": "x", "_xsrf": found[1]}
        assert self.browser.post("/hub/login", data=form).status_code == 200

    def spawn(self) -> None:
        """Start the server, and open JupyterLab, which brings its cookies."""
        self.hub.ask("POST", f"/users/{self.name}/server")
        until(lambda: self.hub.server_of(self.name).get("ready"), f"the server of {self.name}")
        page = self.browser.get(f"{self.base}lab")
        assert page.status_code == 200, page.text
        settings = re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page.text, re.DOTALL)
        assert settings, page.text[:2000]
        self.config: dict[str, Any] = json.loads(settings[1])

    @property
    def _xsrf(self) -> str:
        """As JupyterLab reads it: of the cookies that the page's path has."""
        return next(
            cookie.value or ""
            for cookie in self.browser.cookies.jar
            if cookie.name == "_xsrf" and cookie.path == self.base
        )

    def ask(
        self, method: str, path: str, body: Any = None, *, below: str = "mntrain/v1/"
    ) -> httpx.Response:
        """As the page asks its server."""
        content = None if body is None else msgspec.json.encode(body)
        headers = {"X-XSRFToken": self._xsrf, "Sec-Fetch-Mode": "cors"}
        return self.browser.request(
            method, f"{self.base}{below}{path}", content=content, headers=headers
        )

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def _connect(self, path: str) -> WebSocketClientConnection:
        request = self.browser.build_request("GET", self.base)
        headers = {"Cookie": request.headers["Cookie"], "Origin": self.hub.url}
        url = f"{self.hub.url}{self.base}{path}".replace("http", "ws", 1)
        asked = HTTPRequest(url, headers=headers)
        return await websocket_connect(asked, max_message_size=64 << 20)

    async def page(self) -> Page:
        return Page(await self._connect("mntrain/v1/events?stream=&since=0"))

    @contextmanager
    def kernel(self) -> Iterator[Kernel]:
        answer = self.ask("POST", "kernels", {"name": "python3"}, below="api/")
        assert answer.status_code == 201, answer.text
        kernel = Kernel(self, answer.json()["id"])
        try:
            yield kernel
        finally:
            self.ask("DELETE", f"kernels/{kernel.id}", below="api/")


class Kernel:
    """A kernel of somebody's server, as a notebook talks to it."""

    def __init__(self, person: Person, kernel_id: str) -> None:
        self._person, self.id = person, kernel_id

    def run(self, code: str) -> str:
        """All text that a cell shows; of what is shown again, the last."""
        return asyncio.run(asyncio.wait_for(self._run(code), PATIENCE_S))

    async def _run(self, code: str) -> str:
        connection = await self._person._connect(f"api/kernels/{self.id}/channels")
        number = secrets.token_hex(8)
        header = {"msg_id": number, "msg_type": "execute_request", "session": number}
        header |= {"username": self._person.name, "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        await connection.write_message(json.dumps(message | {"channel": "shell"}))
        shown: dict[str, str] = {}
        while True:
            answer = await connection.read_message()
            assert answer is not None, "the connection to the kernel has ended"
            said = json.loads(answer)
            if said.get("parent_header", {}).get("msg_id") != number:
                continue
            kind, content = said["msg_type"], said["content"]
            if kind in ("display_data", "update_display_data", "execute_result"):
                place = content.get("transient", {}).get("display_id") or said["header"]["msg_id"]
                shown[place] = content["data"].get("text/plain", "")
            elif kind == "stream":
                shown[said["header"]["msg_id"]] = content["text"]
            elif kind == "error":
                shown[said["header"]["msg_id"]] = "\n".join(content["traceback"])
            elif kind == "status" and content["execution_state"] == "idle":
                connection.close()
                return "\n".join(shown.values())


def begin(homes: Path) -> Hub:
    """A Hub in a folder that is emptied."""
    shutil.rmtree(homes, ignore_errors=True)
    homes.mkdir(parents=True)
    return Hub(homes, install())
