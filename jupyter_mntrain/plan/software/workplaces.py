"""Workplaces: refuses nodes that lack a job's folder or interpreter, in one error. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import FoundWorkplace, NodeInfo


def working_in(info: NodeInfo, found: FoundWorkplace) -> NodeInfo:
    """Return the node with the versions of the job's own interpreter."""
    if found.python is None or found.versions is None:
        return info
    inventory = msgspec.structs.replace(info.inventory, versions=found.versions)
    return msgspec.structs.replace(info, inventory=inventory, python=found.python)


def refuse_lacking(found: Sequence[tuple[str, FoundWorkplace]]) -> None:
    """Refuse nodes that lack a folder, an interpreter, or a package.

    Args:
        found: each node's name, and what it has.

    Raises:
        RefusedError: naming every such node.
    """
    lacks = [(name, problem) for name, one in found for problem in one.lacks]
    if not lacks:
        return
    nodes = list(dict.fromkeys(name for name, _ in lacks))
    by_problem: dict[Problem, list[str]] = {}
    for name, problem in lacks:
        by_problem.setdefault(problem, []).append(name)
    if len(nodes) == 1:
        cause = "; ".join(problem.cause for problem in by_problem)
    else:
        said = (f"{', '.join(names)}: {problem.cause}" for problem, names in by_problem.items())
        cause = "; ".join(said)
    raise RefusedError(
        cause,
        kind=lacks[0][1].kind,
        fix="; ".join(dict.fromkeys(problem.fix for problem in by_problem)),
        node=nodes[0] if len(nodes) == 1 else None,
    )
