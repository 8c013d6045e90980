"""Link probe next to iperf3 above 1 Gbit/s: at least 95 % of what iperf3 reaches itself.

Needs root, for two simulated hosts, and iperf3. Both alternate, so that what else runs on this
machine disturbs both; compared are the medians.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median

from tests.netlab import DATA, own_lab
from tests.netlab.iperf import iperf_rate, probed

RATES_MBIT_PER_S = (1000, 2500, 5000, 10000)
LEAST_SHARE = 0.95


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    shares: dict[int, float] = {}
    print("shaped to  the probe   iperf3  share, of medians, payload in Mbit/s")
    with own_lab(2) as lab:
        one, two = lab.hosts
        for mbit_per_s in RATES_MBIT_PER_S:
            lab.reshape(DATA, f"rate {mbit_per_s}mbit burst {mbit_per_s // 4}kb latency 50ms")
            ours, theirs = [], []
            for _ in range(arguments.repeats):
                ours.append(probed(one, two, 1.0).payload)
                theirs.append(iperf_rate(one, two, 2))
            shares[mbit_per_s] = median(ours) / median(theirs)
            mbit = [median(rates) * 8 / 1e6 for rates in (ours, theirs)]
            print(f"{mbit_per_s:9}  {mbit[0]:9.0f}  {mbit[1]:7.0f}  {shares[mbit_per_s]:.3f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(shares) + "\n")
    return 0 if min(shares.values()) >= LEAST_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
