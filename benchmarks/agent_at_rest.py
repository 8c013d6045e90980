"""Agent at rest: its cost with no job and one driver watching. Memory ≤ 60 MB, CPU ≤ 1 %."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import psutil

from benchmarks.loopback import two_agents
from tests.agent.live import resident_mb

LIMIT_MB = 60.0
LIMIT_SHARE = 0.01
SETTLE_S = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with two_agents() as (_, agents):
        # Announcing and the first inventory belong to startup.
        time.sleep(SETTLE_S)
        processes = [psutil.Process(agent.pid) for agent in agents]
        before = [sum(process.cpu_times()[:2]) for process in processes]
        time.sleep(arguments.seconds)
        spent = [sum(p.cpu_times()[:2]) - b for p, b in zip(processes, before, strict=True)]
        memory = [resident_mb(process.pid) for process in processes]
    share, megabytes = max(spent) / arguments.seconds, max(memory)
    print(f"{megabytes:.1f} MB (limit {LIMIT_MB:.0f}), {100 * share:.2f} % of a core (limit 1)")
    if arguments.json:
        result = {"rss_mb": megabytes, "cpu_share": share, "seconds": arguments.seconds}
        arguments.json.write_text(json.dumps(result) + "\n")
    return 0 if megabytes <= LIMIT_MB and share <= LIMIT_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
