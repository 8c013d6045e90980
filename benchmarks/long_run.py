"""Long run: attaching to 1,000,000 steps of 8 ranks takes ≤ 3 s and ≤ 150 MB in the driver.

Two real agents, a real launch, and the real Recorder in every rank: only the loop is fast, one
step per call with a clock that advances by itself. The second figure is right after both agents
were killed and started again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import psutil

from benchmarks.loopback import ADDRESSES, PORT, READY_S, own_configuration, until
from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec, Participant

ATTACH_S = 3.0
MEMORY_MB = 150.0
LEAST_POINTS = 2000
POINTS = 4096
PEAK_STEP, PEAK_S = 4321, 7.5
PATIENCE_S = 3600.0

PROGRAM = f"""
import itertools, os, signal, sys, time
from jupyter_mntrain.telemetry import Recorder

steps, rank = int(sys.argv[1]), int(os.environ["RANK"])
clock = itertools.count(1_700_000_000.0)
with Recorder(clock=lambda: next(clock), stopwatch=time.perf_counter) as recorder:
    recorder.start(stages=(rank,), tokens_per_step=4096, total_steps=steps, microbatches=8)
    for step in range(1, steps + 1):
        recorder.step(
            step=step, step_s={PEAK_S} if step == {PEAK_STEP} else 0.9 + step % 7 / 100,
            tokens=4096, loss=9.0 - 8.0 * step / steps + step % 13 / 100, compute_s=0.7,
            flops=1e12, memory_bytes=1 << 30, grad_norm=1.0 + step % 5,
            sent_bytes={{(rank + 1) % 8: 1 << 20}}, received_bytes={{(rank - 1) % 8: 1 << 20}},
        )
    signal.pause()
"""


class Agents:
    """Agents, killed and started again at will."""

    def __init__(self, directory: Path, addresses: Sequence[str] = ADDRESSES) -> None:
        self._directory = directory
        self._addresses = addresses
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, token: str | None = None) -> None:
        for index, address in enumerate(self._addresses, start=1):
            words = ["run"]
            if token:
                words = ["join", "--name", f"node{index}", "--listen", address]
                words += ["--port", str(PORT)]
            words += ["--state-dir", str(self._directory / f"node{index}")]
            quiet = subprocess.DEVNULL
            agent = subprocess.Popen(
                [sys.executable, "-m", "jupyter_mntrain.agent", *words],
                stdin=subprocess.PIPE,
                stdout=quiet,
                stderr=quiet,
                # The ranks write faster than training does, and nothing may be lost meanwhile.
                env=os.environ | {"MNTRAIN_LOGS_TAIL_BYTES": "16 GiB"},
            )
            assert agent.stdin is not None
            with agent.stdin as tells:
                tells.write((token or "").encode())
            self._running.append(agent)

    def end(self, sign: signal.Signals) -> None:
        for agent in self._running:
            agent.send_signal(sign)
        for agent in self._running:
            agent.wait(READY_S)
        self._running.clear()

    def cpu_s(self) -> float:
        """Of all of them, since they were started."""
        return sum(sum(psutil.Process(one.pid).cpu_times()[:2]) for one in self._running)

    def memory_mb(self) -> float:
        """Of the largest."""
        return max(
            int(Path(f"/proc/{one.pid}/statm").read_text().split()[1]) * 4096 / 1e6
            for one in self._running
        )


def attach(name: str, job_id: str, steps: int) -> dict[str, float]:
    """Attach as a new driver does; in a process of its own, so that its memory is its own."""
    addresses = [f"{address}:{PORT}" for address in ADDRESSES]
    with Cluster(name, addresses=addresses) as cluster:
        until(lambda: [one.liveness for one in cluster.nodes()] == ["up", "up"], "the nodes")
        begun, job = time.monotonic(), cluster.job(job_id)
        until(lambda: job.summary().step == steps, "the whole range", 600.0)
        series = job.series(POINTS)
        took = time.monotonic() - begun
        drawn = series.job
        highest = max(float(one or 0) for one in (*drawn.step_s, *drawn.high.get("step_s", ())))
        return {
            "attach_s": took,
            "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
            "points": min(len(one.step) for one in (drawn, *series.ranks)),
            "first_step": float(drawn.step[0] or 0),
            "highest_step_s": highest,
            "zoomed": zoomed(job),
        }


def zoomed(job: Job) -> float:
    """Rows of a zoom to ten single steps around the longest one."""
    return len(job.zoom(PEAK_STEP - 4, PEAK_STEP + 5).job.step)


def measured(name: str, job_id: str, steps: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.long_run", "--attach", name, job_id]
    said = subprocess.run(
        [*command, "--steps", str(steps)], stdout=subprocess.PIPE, check=True
    ).stdout
    told: dict[str, float] = json.loads(said)
    print(json.dumps(told), flush=True)
    return told


def run(arguments: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    name = f"bench-{secrets.token_hex(3)}"
    found: dict[str, list[dict[str, float]]] = {"attach": [], "after_restart": []}
    with tempfile.TemporaryDirectory() as state, own_configuration(Path(state)):
        agents = Agents(Path(state))
        try:
            with Cluster(name, addresses=[f"{one}:{PORT}" for one in ADDRESSES]) as cluster:
                agents.start(cluster.membership.invite(uses=2))

                def both_up() -> bool:
                    return [one.liveness for one in cluster.nodes()] == ["up", "up"]

                until(both_up, "two nodes", READY_S)
                members = tuple(
                    Participant(node=f"node{n}", nproc=arguments.ranks // 2) for n in (1, 2)
                )
                job = cluster.launch(
                    JobSpec(
                        entry=("run.py", str(arguments.steps)),
                        files={"run.py": PROGRAM},
                        participants=members,
                    )
                )
                write_all(job, arguments.steps)
                print(f"agents: {agents.memory_mb():.0f} MB", flush=True)
                if arguments.wait:
                    input("Enter to measure: ")
                for _ in range(arguments.repeats):
                    found["attach"].append(measured(name, job.id, arguments.steps))
                for _ in range(arguments.repeats):
                    agents.end(signal.SIGKILL)
                    agents.start()
                    until(both_up, "the agents to be back", READY_S)
                    found["after_restart"].append(measured(name, job.id, arguments.steps))
                job.kill()
                until(lambda: job.state in TERMINAL, "its end")
        finally:
            agents.end(signal.SIGTERM)
    return found


def write_all(job: Job, steps: int) -> None:
    begun, told = time.monotonic(), 0.0

    def least() -> int:
        return min((one.step or 0 for part in job.view().parts for one in part.ranks), default=0)

    def is_written() -> bool:
        nonlocal told
        if time.monotonic() - told > 30:
            told = time.monotonic()
            print(f"{least():,} steps after {told - begun:.0f} s", file=sys.stderr, flush=True)
        time.sleep(0.5)
        return least() >= steps

    until(is_written, "all steps to be written", PATIENCE_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--wait", action="store_true", help="ask before measuring")
    parser.add_argument("--attach", nargs=2, metavar=("CLUSTER", "JOB"), help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.attach:
        print(json.dumps(attach(*arguments.attach, arguments.steps)))
        return 0
    found = run(arguments)
    is_good = True
    for what, runs in found.items():
        took, memory = (median(one[key] for one in runs) for key in ("attach_s", "memory_mb"))
        points = min(one["points"] for one in runs)
        kept = all(one["highest_step_s"] == PEAK_S for one in runs)
        print(f"{what}: {took:.2f} s, {memory:.0f} MB, ≥ {points} points, extremes kept: {kept}")
        is_good &= took <= ATTACH_S and memory <= MEMORY_MB and points >= LEAST_POINTS and kept
    if arguments.json:
        arguments.json.write_text(json.dumps(found) + "\n")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
