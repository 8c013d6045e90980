"""Statements: what the program says, read from its data."""

from __future__ import annotations

import json
from typing import Any

from tests.faults.search.case import Statement

DETAIL = 2000
"""Most characters of evidence that are kept with a result."""


def statement(channel: str, problem: dict[str, Any], node: str | None = None) -> Statement:
    """From a problem as ``--json`` shows it."""
    return Statement(
        channel,  # type: ignore[arg-type]
        problem.get("kind") or "error",
        problem.get("node") or node,
        problem.get("rank"),
        bool(problem.get("fix")),
        text=f"{problem.get('cause', '')} | {problem.get('fix', '')}",
    )


def unfinished(channel: str, data: dict[str, Any]) -> list[Statement]:
    """What a stop says that did not end its job: who is said not to answer, and what is left."""
    silent = [("no-answer", name) for name in data.get("unknown_nodes", ())]
    left = [("leftover", one.get("node")) for one in data.get("leftovers", ())]
    text = json.dumps(data)[:400]
    return [
        Statement(channel, kind, node, text=text)  # type: ignore[arg-type]
        for kind, node in (*silent, *left)
    ]


def told(seen: dict[str, Any], channel: str, name: str, node: str | None = None) -> Statement:
    rank = seen.get(f"{name}_rank")
    of_rank = seen.get("ranks", {}).get(str(rank), {})
    fixes = {seen.get(f"{name}_fix")} | ({of_rank["fix"]} if of_rank.get("fix") else set())
    is_same = of_rank.get("kind") != seen[f"{name}_kind"] or len(fixes) == 1
    return Statement(
        channel,  # type: ignore[arg-type]
        seen[f"{name}_kind"],
        seen.get(f"{name}_node") or node,
        rank,
        bool(seen.get(f"{name}_fix")) and is_same,
        of_rank.get("exit_code"),
        f"{seen.get(name)} | {seen.get(f'{name}_fix')}",
        str(of_rank.get("detail") or "")[-DETAIL:],
    )


def of_job(job: dict[str, Any]) -> list[Statement]:
    """What stands about a job now."""
    found = [told(job, name, name) for name in ("cause", "stall") if job.get(f"{name}_kind")]
    return found + [statement("other", one) for one in job.get("others", ())]


def of_node(node: dict[str, Any]) -> list[Statement]:
    """What stands about a node now."""
    found = [statement("node", one, node["name"]) for one in node.get("others", ())]
    if node.get("reason_kind"):
        return [told(node, "node", "reason", node["name"]), *found]
    if node.get("liveness") == "lost":
        return [Statement("node", "silent", node["name"]), *found]
    return found
