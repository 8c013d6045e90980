"""Pushing a large file to 1 to 4 nodes, next to what iperf3 reaches on one of their links.

    python -m benchmarks.push [--repeats 3] [--mib 128] [--most 4] [--mbit 200] [--json FILE]

Needs root, for a simulated cluster whose links carry 200 Mbit/s in each direction, and iperf3. All
nodes share this machine's cores: slower links tell what the protocol takes from what the cores do.
The file is of random bytes, and new at each repeat: nodes have what they have. Compared is the size
over the seconds until all have it, checked and under its name, with iperf3's payload from the
source to a node.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median

from tests.e2e.conftest import invite, join, ours, up
from tests.netlab import DATA, MANAGEMENT, Lab, own_lab
from tests.netlab.iperf import iperf_rate
from tests.waiting import until

SHAPE = "rate {}mbit burst 64kb latency 50ms"
REQUIRED = 0.9
IPERF_S = 5
TIMEOUT_S = 600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--most", type=int, default=4)
    parser.add_argument("--mbit", type=int, default=200)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    mntrain = str(Path(sys.executable).with_name("mntrain"))
    shares: dict[int, list[float]] = {count: [] for count in range(1, arguments.most + 1)}
    with own_lab(arguments.most + 1) as lab:
        _join(lab, mntrain, arguments.mbit)
        for _ in range(arguments.repeats):
            for count, found in shares.items():
                line = iperf_rate(lab.hosts[-1], lab.hosts[0], IPERF_S)
                rate = pushed_rate(lab, mntrain, count, arguments.mib << 20)
                found.append(rate / line)
                print(
                    f"{count} receivers: {rate * 8 / 1e6:.0f} of {line * 8 / 1e6:.0f} Mbit/s, "
                    f"{found[-1]:.3f}",
                    flush=True,
                )
    medians = {count: round(median(found), 3) for count, found in shares.items()}
    print(f"medians: {medians}")
    if arguments.json:
        arguments.json.write_text(json.dumps(shares) + "\n")
    return 0 if min(medians.values()) >= REQUIRED else 1


def _join(lab: Lab, mntrain: str, mbit: int) -> None:
    """The last host is the driver, and has the file; all others are nodes."""
    driver = lab.hosts[-1]
    token = invite(driver, mntrain, "--uses", str(len(lab.hosts)))
    for host in lab.hosts[:-1]:
        join(host, mntrain, token)
    for interface in (DATA, MANAGEMENT):
        lab.reshape(interface, SHAPE.format(mbit))
    until(lambda: len(up(driver, mntrain)) == len(lab.hosts) - 1, "all nodes to be up")


def pushed_rate(lab: Lab, mntrain: str, count: int, size: int) -> float:
    """Bytes per second at which each of so many nodes gets a new file."""
    driver, names = lab.hosts[-1], [host.name for host in lab.hosts[:count]]
    path = driver.home / "large.bin"
    path.write_bytes(os.urandom(size))
    name = f"models:large-{os.urandom(4).hex()}"
    words = ["push", str(path), *names, "--to", name]
    pushed = ours(driver, mntrain, *words, timeout_s=TIMEOUT_S)
    assert sorted(pushed["nodes"]) == names, pushed
    ours(driver, mntrain, "gc", name, "--yes")
    return size / float(pushed["took_s"])


if __name__ == "__main__":
    sys.exit(main())
