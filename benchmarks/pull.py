"""Pulling what a job wrote on two nodes, next to what their links carry, and cut off twice.

    python -m benchmarks.pull [--repeats 3] [--mb 100] [--files 40] [--mbit 100] [--json FILE]

Needs root, for a simulated cluster whose links carry 100 Mbit/s in each direction, and iperf3. A
job writes random files, half of them on each node; ``mntrain pull`` brings them into one folder of
a third host. Its own link is the limit: compared is their size over the seconds that the command
says, with iperf3's payload from a node to that host. Then the command is killed twice and run once
more: the bytes that its link has carried tell what came twice.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.e2e.conftest import CLUSTER, invite, join, ours, up
from tests.netlab import DATA, MANAGEMENT, Lab, own_lab
from tests.netlab.host import Host
from tests.netlab.iperf import iperf_rate
from tests.waiting import until

SHAPE = "rate {}mbit burst 64kb latency 50ms"
REQUIRED = 0.9
MOST_CARRIED = 1.15
"""Of the files' size, in all three tries: TCP and TLS take 5 %, a cut loses what is on its way."""
IPERF_S = 5
TIMEOUT_S = 600
SCRIPT = """
import os, sys
rank, out, files, size = int(os.environ["RANK"]), sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(rank, files, 2):
    with open(f"{out}/shard-{number:03}.bin", "wb") as file:
        file.write(os.urandom(size // files))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--mbit", type=int, default=100)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    mntrain = str(Path(sys.executable).with_name("mntrain"))
    size = arguments.mb * 1_000_000
    shares: list[float] = []
    with tempfile.TemporaryDirectory() as cache, own_lab(3) as lab:
        os.environ.setdefault("XDG_CACHE_HOME", cache)
        driver = lab.hosts[-1]
        job = _launched(lab, mntrain, arguments.files, size, arguments.mbit)
        for number in range(arguments.repeats):
            line = iperf_rate(lab.hosts[0], driver, IPERF_S)
            to = str(driver.home / f"home-{number}")
            pulled = ours(driver, mntrain, "pull", job, to, timeout_s=TIMEOUT_S)
            assert pulled["count"] == arguments.files, pulled
            rate = pulled["size_bytes"] / float(pulled["took_s"])
            shares.append(rate / line)
            print(
                f"{rate * 8 / 1e6:.0f} of {line * 8 / 1e6:.0f} Mbit/s, {shares[-1]:.3f}", flush=True
            )
        carried = _cut_twice(driver, mntrain, job, size, arguments.mbit) / size
    print(f"median: {median(shares):.3f}; cut twice, the link carried {carried:.3f} of the size")
    if arguments.json:
        arguments.json.write_text(json.dumps({"shares": shares, "carried": carried}) + "\n")
    return 0 if median(shares) >= REQUIRED and carried <= MOST_CARRIED else 1


def _launched(lab: Lab, mntrain: str, files: int, size: int, mbit: int) -> str:
    """The last host is the driver; the job runs on the two others, and has ended."""
    driver = lab.hosts[-1]
    token = invite(driver, mntrain, "--uses", str(len(lab.hosts)))
    for host in lab.hosts[:-1]:
        join(host, mntrain, token)
    until(lambda: len(up(driver, mntrain)) == len(lab.hosts) - 1, "all nodes to be up")
    script = driver.home / "write.py"
    script.write_text(SCRIPT)
    words = ["launch", str(script), "--wait", "--skip-doctor", "--", "{out}", str(files), str(size)]
    launched = ours(driver, mntrain, *words, timeout_s=TIMEOUT_S)
    for interface in (DATA, MANAGEMENT):
        lab.reshape(interface, SHAPE.format(mbit))
    return str(launched["job_id"])


def _cut_twice(driver: Host, mntrain: str, job: str, size: int, mbit: int) -> int:
    """Bytes that came to the driver until all was there, after it was killed twice."""
    to, before = driver.home / "cut", _received(driver)
    for _ in range(2):
        begun = _received(driver)
        words = [mntrain, "--cluster", CLUSTER, "pull", job, str(to)]
        process = driver.popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda begun=begun: _received(driver) - begun > size / 3, "a third to come")  # type: ignore[misc]
        process.send_signal(signal.SIGKILL)
        process.wait()
        time.sleep(1 + 8e6 * 8 / (mbit * 1e6))  # what was on its way
        assert not to.exists()
    ours(driver, mntrain, "pull", job, str(to), timeout_s=TIMEOUT_S)
    return _received(driver) - before


def _received(driver: Host) -> int:
    """Bytes that have come to a host."""
    return sum(driver.counters(interface)[1] for interface in (DATA, MANAGEMENT))


if __name__ == "__main__":
    sys.exit(main())
