"""A session of 4 ranks on 2 nodes: its start over bare torchrun's, a job launched into it, an
empty cell, much output.

Both sides start two nodes with two ranks each on loopback addresses with real interpreters, in
turn, and are timed from the call until all ranks have made an all-reduce: of a script, and of a
session's first cell. Then cells run in one more session: empty ones, one that writes 10 MB on each
rank while the driver reads it, and one whose driver reads nothing until its ranks have ended.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.loopback import ADDRESSES, two_agents, until
from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.cluster.rank_session import RankSession, Waiting
from jupyter_mntrain.model.records.job import SESSION, JobSpec
from jupyter_mntrain.model.records.session import Done, Event, State, Text

START_RATIO = 1.2
EMPTY_S = 0.050
LAUNCH_S = 1.5
NPROC = 2
RANKS = NPROC * len(ADDRESSES)
LINE = 99
"""Characters of a line, without its end."""
ADD = "_x = torch.ones(1); dist.all_reduce(_x)"
SCRIPT = f"""
import os, sys, torch
import torch.distributed as dist
dist.init_process_group("gloo")
{ADD}
open(sys.argv[1] + "/" + os.environ["RANK"], "w").close()
dist.destroy_process_group()
"""


def bare_s(folder: Path) -> float:
    """Seconds until torchrun's ranks have made their first all-reduce."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    with socket.socket() as probe:
        probe.bind((ADDRESSES[0], 0))
        port = probe.getsockname()[1]
    begun = time.monotonic()
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(ADDRESSES)}",
             f"--node-rank={node}", f"--nproc-per-node={NPROC}",
             f"--master-addr={ADDRESSES[0]}", f"--master-port={port}",
             "--max-restarts=0", str(script), str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for node in range(len(ADDRESSES))
    ]  # fmt: skip
    until(lambda: all((folder / str(rank)).exists() for rank in range(RANKS)), "an all-reduce")
    took = time.monotonic() - begun
    for node in nodes:
        node.wait()
    return took


def started(cluster: Cluster) -> tuple[RankSession, float, float]:
    """A new session, the seconds until its ranks were ready, and until a cell has added."""
    begun = time.monotonic()
    participants = cluster.participants([f"node{n + 1}:{NPROC}" for n in range(len(ADDRESSES))])
    job = cluster.launch(JobSpec(entry=("-m", SESSION), participants=participants))
    session = job.session()
    session.wait()
    ready = time.monotonic() - begun
    refuse_failed(session.run(ADD))
    return session, ready, time.monotonic() - begun


def launched_s(cluster: Cluster, session: RankSession, folder: Path) -> float:
    """Seconds until a job that is launched into a session has made its first all-reduce."""
    begun = time.monotonic()
    participants = cluster.participants([f"node{n + 1}:{NPROC}" for n in range(len(ADDRESSES))])
    job = cluster.launch(
        JobSpec(
            entry=("script.py", str(folder)),
            files={"script.py": SCRIPT},
            participants=participants,
            session=session.job_id,
        )
    )
    until(lambda: all((folder / str(rank)).exists() for rank in range(RANKS)), "an all-reduce")
    took = time.monotonic() - begun
    job.wait()
    return took


def refuse_failed(events: Iterable[Event | Waiting]) -> list[Event | Waiting]:
    found = list(events)
    ends = [one.end for one in found if isinstance(one, Done)]
    if ends != ["ok"] * RANKS:
        raise SystemExit(f"a cell ended with {ends}")
    return found


def cell_s(session: RankSession, code: str = "pass") -> float:
    begun = time.monotonic()
    refuse_failed(session.run(code))
    return time.monotonic() - begun


def empty_s(session: RankSession, count: int) -> float:
    return median(cell_s(session) for _ in range(count))


def output(session: RankSession, megabytes: int) -> dict[str, float]:
    """Seconds of a cell that writes so much on each rank, for its ranks and for a driver that reads
    it; for ranks whose driver does not; and of the empty cell after each.
    """
    lines = megabytes * 10**6 // (LINE + 1)
    code = f"for _ in range({lines}):\n    print('x' * {LINE})"
    begun = time.monotonic()
    events = refuse_failed(session.run(code))
    read_s = time.monotonic() - begun
    written = sum(len(one.text) for one in events if isinstance(one, Text))
    if written != RANKS * lines * (LINE + 1):
        raise SystemExit(f"{written} bytes arrived of {RANKS * lines * (LINE + 1)}")
    after_s = cell_s(session)
    begun = time.monotonic()
    unread = session.run(code)
    next(unread)
    until(lambda: not any(_is_running(one) for one in session.states().values()), "ranks to end")
    unread_s = time.monotonic() - begun
    unread_after_s = cell_s(session)
    unread.close()
    ranks_s = max(one.took_s for one in events if isinstance(one, Done))
    return {
        "ranks_s": ranks_s,
        "read_s": read_s,
        "after_s": after_s,
        "unread_s": unread_s,
        "unread_after_s": unread_after_s,
    }


def _is_running(one: object) -> bool:
    return not isinstance(one, State) or one.is_running


def written_s(folder: Path, megabytes: int) -> float:
    """Seconds in which as many bare processes write as much in the same lines to files."""
    lines = megabytes * 10**6 // (LINE + 1)
    code = f"import time; begun = time.monotonic()\nfor _ in range({lines}): print('x' * {LINE})\n"
    code += "import sys; print(time.monotonic() - begun, file=sys.stderr)"
    processes = []
    for rank in range(RANKS):
        with (folder / f"output-{rank}").open("wb") as file:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", code], stdout=file, stderr=subprocess.PIPE, text=True
                )
            )
    return max(float(process.communicate()[1]) for process in processes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    starts: list[tuple[float, float, float]] = []
    outputs: list[dict[str, float]] = []
    with two_agents() as (cluster, _), tempfile.TemporaryDirectory() as root:
        # One warm-up pair: the first run fills the page cache.
        for number in range(-1, arguments.repeats):
            folder = Path(root) / str(number)
            folder.mkdir()
            ways: dict[str, Any] = {}
            for way in ("ours", "bare") if number % 2 else ("bare", "ours"):
                if way == "bare":
                    ways[way] = bare_s(folder)
                    continue
                session, *ways[way] = started(cluster)
                stop(cluster, session)
            if number >= 0:
                starts.append((ways["bare"], *ways["ours"]))
                bare, ready, added = starts[-1]
                print(f"start: ours {added:.2f} s ({ready:.2f} s until ready)   "
                      f"bare {bare:.2f} s   {added / bare:.2f} ×", flush=True)  # fmt: skip
        session, *_ = started(cluster)
        # While its forkservers import what jobs need, each takes a core.
        early_s = [cell_s(session) for _ in range(arguments.cells // 5)]
        launches_s = []
        for number in range(-1, arguments.repeats):
            folder = Path(root) / f"launch-{number}"
            folder.mkdir()
            launches_s.append(launched_s(cluster, session, folder))
            print(f"launch: {launches_s[-1]:.2f} s", flush=True)
        del launches_s[0]  # it may wait for what is imported ahead
        cells_s = [cell_s(session) for _ in range(arguments.cells)]
        for number in range(arguments.repeats):
            folder = Path(root) / f"output-{number}"
            folder.mkdir()
            outputs.append({"bare_s": written_s(folder, arguments.megabytes)})
            outputs[-1] |= output(session, arguments.megabytes)
        stop(cluster, session)
    ratio = median(added / bare for bare, _, added in starts)
    empty = median(cells_s)
    typical = {name: median(one[name] for one in outputs) for name in outputs[0]}
    print(f"start over bare torchrun's: {ratio:.2f} × (limit {START_RATIO})")
    launch, bare = median(launches_s), median(one for one, *_ in starts)
    print(f"a job launched into it: {launch:.2f} s (limit {LAUNCH_S} s), "
          f"{launch / bare:.2f} × bare torchrun")  # fmt: skip
    print(f"an empty cell: {1000 * empty:.1f} ms (limit {1000 * EMPTY_S:.0f} ms); "
          f"while forkservers import {1000 * median(early_s):.1f} ms")  # fmt: skip
    print(f"{arguments.megabytes} MB on each rank: read after {typical['read_s']:.2f} s, "
          f"ranks took {typical['ranks_s']:.2f} s, bare processes {typical['bare_s']:.2f} s; "
          f"unread, ranks had ended after {typical['unread_s']:.2f} s; an empty cell after it: "
          f"{1000 * typical['after_s']:.1f} ms, {1000 * typical['unread_after_s']:.1f} ms "
          f"(limit {1000 * EMPTY_S:.0f} ms)")  # fmt: skip
    if arguments.json:
        found = {"starts_s": starts, "start_ratio": ratio, "cells_s": cells_s, "outputs": outputs}
        found |= {"launches_s": launches_s, "early_cells_s": early_s}
        arguments.json.write_text(json.dumps(found) + "\n")
    slowest = max(empty, typical["after_s"], typical["unread_after_s"])
    is_fast = ratio <= START_RATIO and launch <= LAUNCH_S and slowest <= EMPTY_S
    return 0 if is_fast else 1


def stop(cluster: Cluster, session: RankSession) -> None:
    job = cluster.job(session.job_id)
    job.stop()
    job.wait()


if __name__ == "__main__":
    sys.exit(main())
