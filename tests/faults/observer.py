"""Observer: a driver that prints each change of jobs and nodes as a line of JSON, with its time.

``python -m tests.faults.observer CLUSTER``
"""

from __future__ import annotations

import json
import sys
import time

from jupyter_mntrain import Cluster
from jupyter_mntrain.model.failure.headline import headline_of
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import JobView

LOOK_EVERY_S = 0.2


def told(problem: Problem | None, name: str) -> dict[str, object]:
    """What people read of it, what tests decide by, and when it was."""
    if problem is None:
        return {name: None, f"{name}_kind": None, f"{name}_fix": ""}
    return {
        name: problem.headline,
        f"{name}_kind": problem.kind,
        f"{name}_fix": problem.fix,
        f"{name}_node": problem.node,
        f"{name}_rank": problem.rank,
        f"{name}_time_s": problem.time_s,
    }


def first(view: JobView) -> dict[str, object] | None:
    """What every view of the job shows first."""
    if (found := headline_of(view)) is None:
        return None
    problem = found.problem
    where = {"node": problem.node, "rank": problem.rank}
    return {"hurt": found.hurt, "kind": problem.kind, **where} | {
        "cause": problem.cause,
        "fix": problem.fix,
    }


def others(
    record: object, known: frozenset[str], node: str | None = None
) -> list[dict[str, object]]:
    """Every problem that a record has in any other field: a warning, a slow link.

    Args:
        known: fields that are told elsewhere.
        node: the record's, for problems that name none.
    """
    fields = {name: getattr(record, name) for name in getattr(record, "__struct_fields__", ())}
    return [
        {"field": name, "kind": one.kind, "node": one.node or node, "rank": one.rank}
        | {"cause": one.cause, "fix": one.fix}
        for name, value in fields.items()
        for one in (value if isinstance(value, (tuple, list)) else (value,))
        if isinstance(one, Problem) and name not in known
    ]


def about(view: JobView) -> list[dict[str, object]]:
    """Every other problem of a job or of one of its parts."""
    found = others(view, frozenset({"problem", "stall"}))
    for part in view.parts:
        found += others(part, frozenset({"problem"}), part.node)
    return found


def of_ranks(view: JobView) -> dict[str, dict[str, object]]:
    """What each rank's own record says of its end."""
    return {
        str(rank.rank): {
            "exit_code": rank.exit_code,
            "kind": rank.problem.kind if rank.problem else None,
            "fix": rank.problem.fix if rank.problem else "",
            "detail": rank.problem.detail if rank.problem else "",
        }
        for part in view.parts
        for rank in part.ranks
        if rank.exit_code is not None or rank.problem
    }


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
                    **told(view.problem, "cause"),
                    **told(view.stall, "stall"),
                    "first": first(view),
                    "others": about(view),
                    "ranks": of_ranks(view),
                    "parts": {part.node: part.state for part in view.parts},
                    "leftovers": sum(len(part.leftovers) for part in view.parts),
                }
            for node in made.nodes():
                now[node.name] = {
                    "name": node.name,
                    "liveness": node.liveness,
                    **told(node.problem, "reason"),
                    "others": others(node, frozenset({"problem"}), node.name)
                    + others(node.info, frozenset(), node.name),
                    "instance": node.info.instance if node.info else "",
                    "leases": len(node.info.leases) if node.info else 0,
                    "addresses": {
                        one.name: list(one.addresses)
                        for one in (node.info.inventory.interfaces if node.info else ())
                    },
                }
            for key, value in now.items():
                if known.get(key) != value:
                    print(json.dumps({"time_s": time.time(), **value}), flush=True)
            known = dict(now)
            time.sleep(LOOK_EVERY_S)


if __name__ == "__main__":
    main(sys.argv[1])
