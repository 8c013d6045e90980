"""Run a notebook through a real kernel, with two agents on this machine as two nodes."""

from __future__ import annotations

import argparse
import asyncio
import atexit
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, DeadKernelError
from rich.console import Console

from jupyter_mntrain.agent.attempt.processes import kill_all, marked
from jupyter_mntrain.cluster import Cluster, Job, JobSummary
from jupyter_mntrain.show.tables.job import status_view

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
FIRST = "quickstart"
NODES = {"node1": "127.0.0.2", "node2": "127.0.0.3"}
READY_S = 120.0
"""On a busy machine an agent takes half a minute; one that ends is noticed at once."""
CELL_S = 1200
"""Far more than any cell takes on two cores: a slow machine is no reason to give up."""
STOP_S = 10.0
KERNEL_STOP_S = 60.0
"""A kernel ends within a second, and on a busy machine is killed after five; whoever exits while
nbclient's thread still runs is aborted."""
HISTORY_S = 15.0
INTERRUPTED = 130


class DemoError(Exception):
    """The demo cannot continue; the message says why."""


@dataclass
class Node:
    """An agent's process and its state directory."""

    name: str
    address: str
    state: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> Path:
        return self.state.with_suffix(".log")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument(
        "--notebook", choices=NOTEBOOKS, default=FIRST, metavar="NAME", help=", ".join(NOTEBOOKS)
    )
    parser.add_argument("--lab", action="store_true", help="open JupyterLab with the notebook")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--output", type=Path, default=ROOT / "demo-output", metavar="FOLDER")
    arguments = parser.parse_args()
    # SIGTERM unwinds like Ctrl-C, so everything that the demo started is ended.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    arguments.output.mkdir(parents=True, exist_ok=True)
    cluster = f"demo-{secrets.token_hex(3)}"
    state = Path(tempfile.mkdtemp(prefix="mntrain-demo-"))
    nodes: list[Node] = []
    os.environ |= {
        "MNTRAIN_CLUSTER": cluster,
        # The cluster exists only as long as the demo: its keys must not stay behind.
        "XDG_CONFIG_HOME": str(state / "config"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    try:
        addresses = start_nodes(nodes, cluster, state)
        os.environ["MNTRAIN_AGENTS"] = ",".join(addresses)
        if arguments.lab:
            return open_lab(NOTEBOOKS[arguments.notebook], arguments.output)
        return execute(arguments, cluster, addresses)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except DemoError as error:
        print(f"scripts/demo: {error}", file=sys.stderr)
        for node in nodes:
            print(f"── last lines of {node.name}'s log\n{tail(node.log)}", file=sys.stderr)
        return 1
    finally:
        # A second Ctrl-C must not leave half of it running.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stop_nodes(nodes)
        shutil.rmtree(state, ignore_errors=True)


def start_nodes(nodes: list[Node], cluster: str, state: Path) -> list[str]:
    """Start both agents, each on its own core if possible, and let them join; their addresses."""
    cores = sorted(os.sched_getaffinity(0))
    port = free_port(list(NODES.values()))
    addresses = [f"{address}:{port}" for address in NODES.values()]
    with Cluster(cluster, addresses=addresses) as made:
        token = made.membership.invite(uses=len(NODES))
        for index, (name, address) in enumerate(NODES.items()):
            command = [sys.executable, "-m", "jupyter_mntrain.agent", "join"]
            command += ["--name", name, "--listen", address, "--port", str(port)]
            command += ["--state-dir", str(state / name)]
            if shutil.which("taskset"):
                command = ["taskset", "-c", str(cores[index % len(cores)]), *command]
            with (state / f"{name}.log").open("wb") as log:
                # In its own session: Ctrl-C reaches only the demo, which ends its nodes in order.
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            assert process.stdin is not None
            with process.stdin as tells:
                tells.write(token.encode())
            nodes.append(Node(name, address, state / name, process))
        deadline = time.monotonic() + READY_S
        while not are_up(made):
            time.sleep(0.1)
            dead = next((node for node in nodes if node.process.poll() is not None), None)
            if dead is not None or time.monotonic() > deadline:
                name = dead.name if dead else " or ".join(NODES)
                raise DemoError(f"the agent of {name} did not start")
    joined = ", ".join(f"{node.name} on {node.address}" for node in nodes)
    print(f"two nodes have joined cluster {cluster}: {joined}", flush=True)
    return addresses


def are_up(cluster: Cluster) -> bool:
    """Whether all nodes are up."""
    return [node.liveness for node in cluster.nodes()] == ["up"] * len(NODES)


def stop_nodes(nodes: list[Node]) -> None:
    """End the agents and all processes of all jobs: jobs outlive agents by design."""
    for node in nodes:
        node.process.terminate()
    for node in nodes:
        try:
            node.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            node.process.kill()
            node.process.wait()
        for attempt in node.state.glob("jobs/*/attempt-*"):
            kill_all(partial(marked, attempt))


def execute(arguments: argparse.Namespace, cluster: str, addresses: list[str]) -> int:
    """Run the notebook, keep it executed, print its last job and write the figures."""
    notebook = NOTEBOOKS[arguments.notebook]
    target = arguments.output.resolve() / notebook.name
    print(f"running {notebook.relative_to(ROOT)}, which takes minutes; each cell:", flush=True)
    run_notebook(notebook, target)
    with Cluster(cluster, addresses=addresses) as watched:
        watched.nodes_when_ready(tuple(NODES))
        job = last_job(watched)
        history = job.wait_for_history(HISTORY_S)
        summary = job.summary()
        # A pipe has no width: rows must not wrap there.
        width = None if sys.stdout.isatty() else 140
        Console(width=width).print(status_view(summary, history.view))
    print(f"\nthe executed notebook with its plots: {target}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures(summary, target), indent=2) + "\n")
    # Other notebooks end with a job that is meant to fail. A cell that must not fail has raised.
    return 0 if summary.state == "succeeded" or arguments.notebook != FIRST else 1


def last_job(cluster: Cluster) -> Job:
    """The job that the notebook launched last, found from outside like any later driver does."""
    jobs = cluster.jobs()
    if not jobs:
        raise DemoError("the notebook launched no job")
    return cluster.job(jobs[0].job_id)


def run_notebook(source: Path, target: Path) -> None:
    """Execute a notebook and write it to ``target``, also when a cell fails.

    nbclient replaces the signal handlers of its event loop, so it runs in a thread of its own and
    Ctrl-C stays with the demo.
    """
    notebook = nbformat.read(source, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=CELL_S,
        resources={"metadata": {"path": str(target.parent)}},
        km=_kernel(),
        on_cell_start=_say,
    )
    loop = asyncio.new_event_loop()
    failures: list[BaseException] = []

    def work() -> None:
        asyncio.set_event_loop(loop)
        try:
            # Else the kernel outlives the notebook, and reports the end of its parent.
            loop.run_until_complete(client.async_execute(cleanup_kc=True))
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.2)
    except KeyboardInterrupt:
        _cancel(client, loop, thread)
        raise
    finally:
        nbformat.write(notebook, target)
    if failures and isinstance(failures[0], (CellControlSignal, DeadKernelError)):
        raise DemoError(f"the notebook stopped: {failures[0]}")
    if failures:
        raise failures[0]


def _kernel() -> AsyncKernelManager:
    """A kernel of this environment, independent of the user's kernel specs."""
    kernel = AsyncKernelManager()
    kernel.kernel_cmd = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    return kernel


def _cancel(
    client: NotebookClient, loop: asyncio.AbstractEventLoop, thread: threading.Thread
) -> None:
    """Cancel nbclient, which ends its kernel, and wait for its thread."""
    with contextlib.suppress(RuntimeError):
        for task in asyncio.all_tasks(loop):
            loop.call_soon_threadsafe(task.cancel)
    thread.join(KERNEL_STOP_S)
    # It would end the kernel again when Python exits, which fails, or waits forever for sockets.
    atexit.unregister(client._cleanup_kernel)  # noqa: SLF001


def _say(cell: Any, **_: Any) -> None:
    if cell.cell_type == "code":
        print(f"  {cell.source.splitlines()[0]}", flush=True)


def figures(summary: JobSummary, notebook: Path) -> dict[str, Any]:
    """The figures that ``--json`` writes."""
    return {
        "job_id": summary.job_id,
        "state": summary.state,
        "nodes": sorted({rank.node for rank in summary.ranks}),
        "world_size": len(summary.ranks),
        "first_loss": summary.first_loss,
        "loss": summary.loss,
        "tokens_per_s": summary.tokens_per_s,
        "mfu": summary.mfu,
        "mfu_per_rank": {str(rank.rank): rank.mfu for rank in summary.ranks},
        "link_utilization": [
            {
                "link": f"{link.node} {link.interface}",
                "direction": link.direction,
                "utilization": link.utilization,
                "bytes_per_s": link.bytes_per_s,
                "capacity": msgspec.to_builtins(link.capacity),
                "basis": link.basis,
            }
            for link in summary.links
        ],
        "notebook": str(notebook),
    }


def open_lab(notebook: Path, output: Path) -> int:
    """Run JupyterLab with a copy of the notebook until it or the demo is ended.

    The copy has a folder of its own, next to notebooks that were executed, and keeps what was
    changed in it last time.
    """
    target = output.resolve() / "lab" / notebook.name
    if target.exists():
        print(f"opening your copy of last time; delete {target} to start afresh", flush=True)
    else:
        target.parent.mkdir(exist_ok=True)
        shutil.copy(notebook, target)
    print(f"JupyterLab with {target}; Ctrl-C ends it and both nodes", flush=True)
    # As the default URL, not as an argument: the printed URL then leads to the notebook, too.
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={target.parent}"]
    command.append(f"--LabApp.default_url=/lab/tree/{target.name}")
    if os.geteuid() == 0:
        command.append("--allow-root")
    lab = subprocess.Popen(command, start_new_session=True)
    try:
        return lab.wait()
    finally:
        lab.terminate()
        try:
            lab.wait(STOP_S)
        except subprocess.TimeoutExpired:
            lab.kill()
            lab.wait()


def free_port(addresses: list[str]) -> int:
    """A port that is free on all addresses and outside the ephemeral range."""
    for _ in range(100):
        port = 10_000 + secrets.randbelow(20_000)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for address in addresses:
                stack.enter_context(socket.create_server((address, port)))
            return port
    raise DemoError("no free port on the loopback addresses")


def tail(path: Path, lines: int = 15) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


if __name__ == "__main__":
    sys.exit(main())
