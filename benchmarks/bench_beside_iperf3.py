"""Collective benchmark next to iperf3 at 200 Mbit/s: within 3 % for messages of 64 MiB.

Needs root, for two simulated hosts, and iperf3. Both alternate, so that what else runs on this
machine disturbs both; compared are the medians of the messages from the first host to the second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from jupyter_mntrain.model.records.doctor.benchmark import BenchedPair, read_line
from tests.netlab import DATA, Host, own_lab
from tests.netlab.iperf import iperf_rate

SHAPE = "rate 200mbit burst 64kb latency 50ms"
MOST_APART = 0.03
IPERF_S = 5
PORT = 29511
PROGRAM = ("-m", "jupyter_mntrain.train.pipeline.benchmark")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    ours, theirs = [], []
    with own_lab(2) as lab:
        lab.reshape(DATA, SHAPE)
        for _ in range(arguments.repeats):
            ours.append(sent_rate(lab.hosts))
            theirs.append(iperf_rate(*lab.hosts, IPERF_S))
            mbit = [rates[-1] * 8 / 1e6 for rates in (ours, theirs)]
            print(f"bench {mbit[0]:.1f}, iperf3 {mbit[1]:.1f} Mbit/s", flush=True)
    share = median(ours) / median(theirs)
    print(f"of medians: {share:.3f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"ours": ours, "iperf3": theirs}) + "\n")
    return 0 if abs(share - 1) <= MOST_APART else 1


def sent_rate(hosts: Sequence[Host]) -> float:
    """Bytes per second of the largest messages from the first host to the second."""
    started = [
        host.popen(
            [
                sys.executable,
                *("-m", "torch.distributed.run", f"--nnodes={len(hosts)}", "--nproc-per-node=1"),
                *(f"--node-rank={rank}", f"--master-addr={hosts[0].data_address}"),
                *(f"--master-port={PORT}", *PROGRAM),
            ],
            environment={"GLOO_SOCKET_IFNAME": DATA, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, host in enumerate(hosts)
    ]
    said = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(hosts)
    pairs = [one for one in map(read_line, said[0].splitlines()) if isinstance(one, BenchedPair)]
    there = next(one for one in pairs if one.sender == 0)
    return there.size_bytes / there.seconds


if __name__ == "__main__":
    sys.exit(main())
