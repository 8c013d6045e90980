"""Ended jobs: with 1,000 on a node, ``jobs`` takes ≤ 1 s and an agent at rest needs ≤ 60 MB; with
2,000 (``--jobs``) its start takes ≤ 0.5 s more of a processor than with none.

A real agent, started again with the records of so many jobs of its own on its disk; a new driver,
timed from the moment at which it knows the node.
"""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median

import msgspec

from benchmarks.agent_at_rest import LIMIT_MB
from benchmarks.long_run import Agents
from benchmarks.loopback import ADDRESSES, PORT, own_configuration, until
from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.lifecycle.loss_line import Losses, LossLine
from tests.standin.jobs import place, record

LIMIT_S = 1.0
START_S = 0.5
PATIENCE_S = 120.0


def write_records(state: Path, node_id: NodeId, jobs: int) -> None:
    places = (place("node1", 0, 0, nproc=8, node_id=node_id, address=ADDRESSES[0]),)
    for number in range(jobs):
        job_id = JobId(f"j-{number:08x}")
        begun_s = time.time() - 60.0 * (jobs - number)
        made = record(
            0,
            "succeeded",
            places=places,
            job_id=job_id,
            submitted_s=begun_s,
            spec={"name": f"run {number}", "files": {"train.py": "print(1)\n" * 200}},
            started_s=begun_s,
            ended_s=begun_s + 50.0,
        )
        directory = state / "node1" / "jobs" / job_id
        directory.mkdir(parents=True)
        made = msgspec.structs.replace(made, is_over=True, loss_line=losses(number))
        (directory / "record.json").write_bytes(msgspec.json.encode(made))


def losses(seed: int) -> LossLine | None:
    """Noisy, so that a record does not pack better than a real one."""
    noise, made = Random(seed), Losses()
    for step in range(1, 1001):
        made.take(0, step, 10.0 / step**0.2 + noise.random())
    return made.line


def seconds(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def run(jobs: int, repeats: int) -> dict[str, list[float]]:
    name, where = f"bench-{secrets.token_hex(3)}", [f"{ADDRESSES[0]}:{PORT}"]
    names = ("empty_start_s", "start_s", "newest_s", "all_s", "rest_mb", "after_mb")
    found: dict[str, list[float]] = {one: [] for one in names}
    with tempfile.TemporaryDirectory() as state, own_configuration(Path(state)):
        agents = Agents(Path(state), ADDRESSES[:1])

        def is_up(cluster: Cluster) -> bool:
            return [one.liveness for one in cluster.nodes()] == ["up"]

        def start_s() -> float:
            """CPU time until it has answered. The agent goes on."""
            agents.start()
            with Cluster(name, addresses=where) as cluster:
                until(lambda: is_up(cluster), "the node", PATIENCE_S)
                return agents.cpu_s()

        try:
            with Cluster(name, addresses=where) as cluster:
                agents.start(cluster.membership.invite())
                until(lambda: is_up(cluster), "the node", PATIENCE_S)
                info = cluster.nodes()[0].info
            assert info is not None
            agents.end(signal.SIGTERM)
            for what in ("empty_start_s", "start_s"):
                if what == "start_s":
                    write_records(Path(state), info.node_id, jobs)
                for _ in range(repeats):
                    found[what].append(start_s())
                    agents.end(signal.SIGTERM)
            agents.start()
            for _ in range(repeats):
                with Cluster(name, addresses=where) as cluster:
                    until(lambda: is_up(cluster), "the node", PATIENCE_S)
                    found["rest_mb"].append(agents.memory_mb())
                    found["newest_s"].append(seconds(cluster.jobs))
                    begun = time.monotonic()
                    assert len(cluster.jobs(everything=True)) == jobs
                    found["all_s"].append(time.monotonic() - begun)
                    found["after_mb"].append(agents.memory_mb())
        finally:
            agents.end(signal.SIGTERM)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = run(arguments.jobs, arguments.repeats)
    newest, everything = median(found["newest_s"]), median(found["all_s"])
    rest, after = median(found["rest_mb"]), max(found["after_mb"])
    empty_s, start_s = median(found["empty_start_s"]), median(found["start_s"])
    print(
        f"start: {start_s:.2f} s of a processor, {empty_s:.2f} s without jobs "
        f"(limit {START_S} more)"
    )
    print(
        f"{arguments.jobs} ended jobs: the newest after {newest:.2f} s, all after "
        f"{everything:.2f} s; agent {rest:.1f} MB at rest, {after:.1f} MB after listing all"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(found) + "\n")
    is_fast = newest <= LIMIT_S and everything <= LIMIT_S and start_s - empty_s <= START_S
    return 0 if is_fast and after <= LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())
