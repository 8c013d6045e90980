"""A driver that says, a line of JSON each, whatever it comes to know of jobs and nodes, and when.

``python -m tests.faults.observer CLUSTER``
"""

from __future__ import annotations

import json
import sys
import time

from jupyter_mntrain import Cluster

LOOK_EVERY_S = 0.05


def main(cluster: str) -> None:
    known: dict[str, object] = {}
    with Cluster(cluster) as made:
        while True:
            now: dict[str, dict[str, object]] = {}
            for view in made.jobs():
                now[view.job_id] = {
                    "job": view.job_id,
                    "state": view.state,
                    "attempt": view.attempt.number,
                    "cause": view.cause.summary if view.cause else None,
                    "node": view.cause_node,
                    "stall": view.stall.summary if view.stall else None,
                    "fix": view.stall.fix if view.stall else None,
                    "cause_time_s": view.cause.time_s if view.cause else None,
                    "cause_fix": view.cause.fix if view.cause else "",
                    "parts": {part.node: part.state for part in view.parts},
                    "leftovers": sum(len(part.leftovers) for part in view.parts),
                }
            for node in made.nodes():
                now[node.name] = {
                    "name": node.name,
                    "liveness": node.liveness,
                    "reason": node.reason,
                    "instance": node.info.instance if node.info else "",
                    "leases": len(node.info.leases) if node.info else 0,
                }
            for key, value in now.items():
                if known.get(key) != value:
                    print(json.dumps({"time_s": time.time(), **value}), flush=True)
            known = dict(now)
            time.sleep(LOOK_EVERY_S)


if __name__ == "__main__":
    main(sys.argv[1])
