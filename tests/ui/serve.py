"""Servers of the browser tests: real agents, played jobs, six Jupyter servers.

``python -m tests.ui.serve --port P --output DIR`` serves until it is told to end, and then ends all
it started. Servers listen on 127.0.0.1, one port after the other:

P      JupyterLab and Notebook 7 on the two agents
P + 1  the same below the prefix ``/user/x/``, where a launch waits in a scheduler's queue
P + 2  JupyterLab whose server lacks our part
P + 3  JupyterLab on a cluster of eight replayed nodes with 64 ranks
P + 4  JupyterLab on a cluster whose nodes tell the recorded jobs of tests/metrics/agreement
P + 5  JupyterLab on two agents of another cluster, for jobs next to those of the first
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from jupyter_mntrain.model.sources.source import NodesRequest
from jupyter_mntrain.sources.allocation_book import AllocationBook, AllocationNote
from jupyter_mntrain.trust.authority import Authority
from tests.agent.live import LiveAgent, free_port, free_range
from tests.trusted import PASSED_ON, authority, install_drivers, pass_on

ROOT = Path(__file__).resolve().parents[2]
NODES = {
    "ui": {"node1": "127.94.0.1", "node2": "127.94.0.2"},
    "second": {"node1": "127.95.0.1", "node2": "127.95.0.2"},
}
"""The first of eight; another where something else holds it."""
READY_S = 150.0
"""Six servers start at once: on a busy machine they took more than a minute."""
STOP_S = 10.0
NICENESS = 5

CONFIG = """
from jupyterlab.galata import configure_jupyter_server
configure_jupyter_server(c)
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.allow_root = True
c.ServerApp.root_dir = {root!r}
c.LabApp.expose_app_in_browser = True
c.JupyterNotebookApp.expose_app_in_browser = True
"""


@dataclass(frozen=True)
class Server:
    """One Jupyter server: how it differs from the plain one."""

    name: str
    cluster: str
    agents: str
    base_url: str = "/"
    options: tuple[str, ...] = ()
    authority: Authority | None = None
    """Of its cluster; ``None`` = of the two agents."""
    waits: bool = False
    """Whether a launch of its user's waits for nodes."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ui.serve", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--agents", choices=NODES, help="only those of this cluster")
    parser.add_argument("--nodes", type=int, default=8, help="of the replay")
    parser.add_argument("--ranks", type=int, default=64, help="of the replay")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    output: Path = arguments.output.resolve()
    if arguments.agents:
        serve_agents(arguments.agents, output)
        return 0
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    # Before anything is started: all of it believes the same, except for the replay.
    authority()
    elsewhere, apart = Authority.make("replay"), Authority.make("second")
    with ExitStack() as ending:
        try:
            agents = start_agents("ui", output, ending)
            story = (arguments.nodes, arguments.ranks)
            replayed = start_replay(*story, elsewhere, output, ending)
            none = ("--ServerApp.jpserver_extensions={'jupyter_mntrain': False}",)
            servers = [
                Server("lab", "ui", agents),
                Server("prefix", "ui", agents, base_url="/user/x/", waits=True),
                Server("bare", "ui", agents, options=none),
                Server("replay", "replay", replayed, authority=elsewhere),
                Server("recorded", "lab", start_recorded(output, ending)),
                Server("second", "second", start_second(apart, output, ending), authority=apart),
            ]
            urls = {
                server.name: start_server(server, arguments.port + number, output, ending)
                for number, server in enumerate(servers)
            }
            for url in urls.values():
                wait_for(url)
            (output / "servers.json").write_text(json.dumps(urls))
            print("ready", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            pass
    return 0


def serve_agents(cluster: str, output: Path) -> None:
    """Both agents of a cluster that shares nothing with that of the starting process."""
    with ExitStack() as ending:
        try:
            print(f"MNTRAIN_AGENTS={start_agents(cluster, output, ending)}", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            pass


def start_agents(cluster: str, output: Path, ending: ExitStack) -> str:
    """Both agents of a cluster, each on a core of its own if there are two; their addresses."""
    addresses = []
    cores = sorted(os.sched_getaffinity(0))
    for number, (name, address) in enumerate(NODES[cluster].items()):
        state = output / "state" / cluster / name
        agent = LiveAgent(name, address, free_port(address), state, cluster)
        ending.callback(agent.end)
        agent.start()
        assert agent.process is not None
        # Ranks inherit it: two ranks of two threads on two cores are ten times slower.
        os.sched_setaffinity(agent.process.pid, {cores[number % len(cores)]})
        # Training that goes on for ever leaves most of a core to the page that shows it.
        os.setpriority(os.PRIO_PROCESS, agent.process.pid, NICENESS)
        addresses.append(agent.where)
    return " ".join(addresses)


def start_replay(
    nodes: int, ranks: int, elsewhere: Authority, output: Path, ending: ExitStack
) -> str:
    """Nodes that replay one job; their addresses."""
    words = ["tests.standin.replay", "--nodes", str(nodes), "--ranks", str(ranks)]
    words += ["--steps-per-s", "1", "--base-port", str(free_range("127.0.0.1", nodes))]
    return start_played(words, {PASSED_ON: str(pass_on(elsewhere))}, output, ending)


def start_recorded(output: Path, ending: ExitStack) -> str:
    """Three nodes that tell recorded jobs; their addresses."""
    return start_played(["tests.metrics.agreement.serve"], {}, output, ending)


def start_second(apart: Authority, output: Path, ending: ExitStack) -> str:
    """Agents of another cluster; their addresses."""
    words = ["tests.ui.serve", "--agents", "second", "--output", str(output)]
    return start_played(words, {PASSED_ON: str(pass_on(apart))}, output, ending)


def start_played(
    words: list[str], environment: dict[str, str], output: Path, ending: ExitStack
) -> str:
    path = output / f"{words[0]}.log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    ending.callback(end, process)
    assert process.stdout is not None
    line = process.stdout.readline().decode().strip()
    if not line:
        raise SystemExit(f"{words[0]} did not start: {path.read_text()}")
    return line.removeprefix("MNTRAIN_AGENTS=")


def start_server(server: Server, port: int, output: Path, ending: ExitStack) -> str:
    home = output / server.name
    root = home / "notebooks"
    root.mkdir(parents=True)
    install_drivers(home / ".config", of=server.authority)
    for book in (ROOT / "notebooks").glob("*.ipynb"):
        shutil.copy(book, root)
    config = home / "config.py"
    config.write_text(CONFIG.format(root=str(root)))
    command = [sys.executable, "-m", "jupyterlab"]
    command += ["--no-browser", f"--config={config}", f"--ServerApp.port={port}"]
    command += ["--ServerApp.port_retries=0", f"--ServerApp.base_url={server.base_url}"]
    # Each server would ask npm where language servers are; no test has one.
    command += ["--LanguageServerManager.autodetect=False"]
    environment = {
        **os.environ,
        "HOME": str(home),
        "JUPYTER_CONFIG_DIR": str(home / "jupyter"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_STATE_HOME": str(home / "state"),
        "MNTRAIN_CLUSTER": server.cluster,
        "MNTRAIN_AGENTS": server.agents,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    if server.waits:
        environment["PATH"] = f"{have_wait(home)}:{environment['PATH']}"
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *server.options], cwd=root, env=environment, stdout=log, stderr=log
        )
    ending.callback(end, process)
    return f"http://127.0.0.1:{port}{server.base_url}"


def have_wait(home: Path) -> Path:
    """Have a launch wait there; the folder with the commands of a SLURM that knows its job only."""
    request = NodesRequest(source="slurm", nodes=2, name="finetune")
    book = AllocationBook(home / ".config" / "mntrain")
    book.add(AllocationNote("slurm-3f9a2c", "7", request))
    folder = home / "state" / "mntrain" / "slurm" / "finetune-1"
    start_s = round(time.time()) + 3600
    line = f"7|PENDING|{start_s - 7200}|{start_s}|N/A||Resources|{folder}"
    tools = home / "tools"
    tools.mkdir()
    for name, text in {"squeue": f"echo '{line}'", "scancel": "exit 0"}.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    return tools


def wait_for(url: str) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}api", timeout=2):
                return
        except (urllib.error.URLError, OSError) as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"{url} does not answer: {error}") from error
            time.sleep(0.1)


def end(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is not None:
        process.stdout.close()
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _interrupt(number: int, frame: FrameType | None) -> None:
    # Once: what follows is the ending, and a second signal must not leave half of it running.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    raise SystemExit(main())
