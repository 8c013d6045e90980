"""Two agents as two nodes on this machine, and the quickstart notebook through a real kernel."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from jupyter_mntrain.cluster import Cluster, JobSummary
from jupyter_mntrain.model.job import TERMINAL

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "quickstart.ipynb"
NODES = {"node1": "127.0.0.2", "node2": "127.0.0.3"}
PORT = 8765
READY_TIMEOUT_S = 30.0
CELL_TIMEOUT_S = 300
STOP_TIMEOUT_S = 10.0
HISTORY_TIMEOUT_S = 15.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--lab", action="store_true", help="open JupyterLab on the notebook")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--output", type=Path, default=ROOT / "demo-output")
    parser.add_argument("--port", type=int, default=PORT, help="of both agents")
    arguments = parser.parse_args()
    # A terminated demo unwinds like an interrupted one: everything it started is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments.output.mkdir(parents=True, exist_ok=True)
    cluster_name = f"demo-{secrets.token_hex(3)}"
    state = Path(tempfile.mkdtemp(prefix="mntrain-demo-"))
    try:
        with _agents(cluster_name, state, arguments.port) as addresses:
            environment = {
                "MNTRAIN_CLUSTER": cluster_name,
                "MNTRAIN_AGENTS": ",".join(addresses),
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            }
            try:
                if arguments.lab:
                    return _lab(arguments.output, environment)
                return _execute(arguments, cluster_name, addresses, environment)
            finally:
                _end_jobs(cluster_name, addresses)
    except KeyboardInterrupt:
        print("\ninterrupted; everything the demo started was stopped")
        return 130
    finally:
        shutil.rmtree(state, ignore_errors=True)


@contextlib.contextmanager
def _agents(cluster: str, state: Path, port: int) -> Iterator[list[str]]:
    """Both nodes, each on a core of its own if there are two; ended on every way out."""
    processes: list[subprocess.Popen[bytes]] = []
    cores = sorted(os.sched_getaffinity(0))
    try:
        for index, (name, address) in enumerate(NODES.items()):
            processes.append(_agent(cluster, name, address, port, state, cores, index))
        _wait_until_ready(processes, [state / f"{name}.log" for name in NODES])
        print(f"two nodes are up: {', '.join(f'{n} on {a}' for n, a in NODES.items())}", flush=True)
        yield [f"{address}:{port}" for address in NODES.values()]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _agent(
    cluster: str, name: str, address: str, port: int, state: Path, cores: list[int], index: int
) -> subprocess.Popen[bytes]:
    core = cores[index % len(cores)]
    command = [sys.executable, "-m", "jupyter_mntrain.agent", "--cluster", cluster]
    command += ["--name", name, "--address", address, "--port", str(port)]
    command += ["--state-dir", str(state / name)]
    with (state / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            # Ctrl-C is for the demo, which then ends its agents in order.
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),  # noqa: PLW1509 - no threads yet
        )


def _wait_until_ready(processes: list[subprocess.Popen[bytes]], logs: list[Path]) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    for process, log in zip(processes, logs, strict=True):
        while b"listens on" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"an agent did not start:\n{log.read_text()}")
            time.sleep(0.05)


def _execute(
    arguments: argparse.Namespace,
    cluster_name: str,
    addresses: list[str],
    environment: dict[str, str],
) -> int:
    target = arguments.output / NOTEBOOK.name
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(
        notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3",
        resources={"metadata": {"path": str(arguments.output)}},
    )  # fmt: skip
    os.environ.update(environment)
    print(f"running {NOTEBOOK.relative_to(ROOT)}, about a minute and a half", flush=True)
    try:
        client.execute(env={**os.environ, **environment})
    except CellExecutionError as error:
        print(f"the notebook failed:\n{error}", file=sys.stderr)
        return 1
    finally:
        nbformat.write(notebook, target)
    with Cluster(cluster_name, addresses=addresses) as cluster:
        summary = _final_summary(cluster)
    _print_table(summary)
    print(f"\nexecuted notebook with its plots: {target}")
    if arguments.json:
        arguments.json.write_text(json.dumps(_figures(summary, target), indent=2) + "\n")
    return 0 if summary.state == "succeeded" else 1


def _final_summary(cluster: Cluster) -> JobSummary:
    """Of the job the notebook launched, read anew from the nodes like a later kernel would."""
    cluster.wait_for_nodes(len(NODES), timeout_s=READY_TIMEOUT_S)
    jobs = cluster.jobs()
    if not jobs:
        raise SystemExit("the notebook launched no job")
    job = cluster.job(jobs[0].job_id)
    deadline = time.monotonic() + HISTORY_TIMEOUT_S
    while not job.history().is_complete and time.monotonic() < deadline:
        time.sleep(0.05)
    return job.summary()


def _print_table(summary: JobSummary) -> None:
    from rich.console import Console

    from jupyter_mntrain.verbs.tables.job import status_view

    Console(soft_wrap=True).print(status_view(summary))


def _figures(summary: JobSummary, notebook: Path) -> dict[str, Any]:
    """The figures of the run, for machines."""
    return {
        "job_id": summary.job_id,
        "state": summary.state,
        "nodes": sorted({rank.node for rank in summary.ranks}),
        "ranks": len(summary.ranks),
        "first_loss": summary.first_loss,
        "last_loss": summary.last_loss,
        "tokens_per_s": summary.tokens_per_s,
        "mfu": summary.mfu,
        "mfu_per_rank": {str(rank.rank): rank.mfu for rank in summary.ranks},
        "link_utilisation": [
            {
                "link": f"{link.node} {link.interface}",
                "direction": link.direction,
                "utilisation": link.utilisation,
                "bytes_per_s": link.bytes_per_s,
                "capacity": msgspec.to_builtins(link.capacity),
                "basis": link.basis,
            }
            for link in summary.links
        ],
        "notebook": str(notebook),
    }


def _lab(output: Path, environment: dict[str, str]) -> int:
    target = output / NOTEBOOK.name
    shutil.copy(NOTEBOOK, target)
    print(f"JupyterLab on {target}; Ctrl-C ends it and both nodes", flush=True)
    lab = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", "--ServerApp.root_dir", str(output.resolve()),
         *(["--allow-root"] if os.geteuid() == 0 else []), str(target.resolve())],
        env={**os.environ, **environment},
        start_new_session=True,
    )  # fmt: skip
    try:
        return lab.wait()
    finally:
        # Twice: Jupyter asks back at the first one.
        for _ in range(2):
            if lab.poll() is None:
                lab.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    lab.wait(STOP_TIMEOUT_S)


def _end_jobs(cluster_name: str, addresses: list[str]) -> None:
    """Stop what still runs: jobs outlive agents by design."""
    with Cluster(cluster_name, addresses=addresses) as cluster:
        cluster.wait_for_nodes(len(NODES), timeout_s=STOP_TIMEOUT_S)
        for view in cluster.jobs():
            if view.state not in TERMINAL:
                job = cluster.job(view.job_id)
                job.stop(reason="the demo ended", grace_s=1.0)
                job.wait(STOP_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main())
