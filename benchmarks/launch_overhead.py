"""Launch overhead over bare torchrun with the same script: alternating pairs, medians.

The script writes the time at which it starts. Both sides start two nodes with one rank each on
loopback addresses with the same static rendezvous. A launch may add at most 1.0 s.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.loopback import ADDRESSES, two_agents, until
from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.model.records.job import JobSpec

LIMIT_S = 1.0
SCRIPT = """
import os, sys, time
with open(sys.argv[1] + "/" + os.environ["RANK"], "w") as file:
    file.write(repr(time.time()))
"""


def first_lines(folder: Path) -> float:
    """Unix time at which the slower rank ran its first line."""
    files = [folder / "0", folder / "1"]
    until(lambda: all(f.exists() and f.read_text() for f in files), "both ranks to run")
    return max(float(file.read_text()) for file in files)


def ours(cluster: Cluster, folder: Path) -> float:
    spec = JobSpec(
        entry=("script.py", str(folder)),
        files={"script.py": SCRIPT},
        participants=cluster.participants(),
    )
    begun = time.time()
    job = cluster.launch(spec)
    took = first_lines(folder) - begun
    job.wait()
    return took


def bare(folder: Path) -> float:
    script = folder / "script.py"
    script.write_text(SCRIPT)
    with socket.socket() as probe:
        probe.bind((ADDRESSES[0], 0))
        port = probe.getsockname()[1]
    begun = time.time()
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={rank}",
             "--nproc-per-node=1", f"--master-addr={ADDRESSES[0]}", f"--master-port={port}",
             "--max-restarts=0", str(script), str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]  # fmt: skip
    took = first_lines(folder) - begun
    for node in nodes:
        node.wait()
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    pairs = []
    with two_agents() as (cluster, _), tempfile.TemporaryDirectory() as root:
        # One warm-up pair: the first run fills the page cache.
        for number in range(-1, arguments.repeats):
            folders = [Path(root) / f"{way}{number}" for way in ("ours", "bare")]
            for folder in folders:
                folder.mkdir()
            if number % 2:
                mine, theirs = ours(cluster, folders[0]), bare(folders[1])
            else:
                theirs, mine = bare(folders[1]), ours(cluster, folders[0])
            if number >= 0:
                pairs.append((mine, theirs))
                print(f"ours {mine:.2f} s   bare {theirs:.2f} s   {mine - theirs:+.2f} s")
    added = median(mine - theirs for mine, theirs in pairs)
    print(f"median added: {added:.2f} s (limit {LIMIT_S:.1f} s)")
    if arguments.json:
        arguments.json.write_text(json.dumps({"pairs_s": pairs, "median_added_s": added}) + "\n")
    return 0 if added <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
