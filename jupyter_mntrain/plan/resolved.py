"""Resolved job: a job with its program and its participants' nodes, found once. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jupyter_mntrain.model.program import Program, program_of
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.arrange import find_participants


class ResolvedJob(NamedTuple):
    """What a launch, a dry run, a plan, the panel, the doctor and a resume look at.

    Args:
        nodes: of the participants, in node-rank order.
    """

    spec: JobSpec
    program: Program
    nodes: tuple[NodeInfo, ...]

    @property
    def names(self) -> set[str]:
        """Of the nodes."""
        return {node.name for node in self.nodes}


def resolve(spec: JobSpec, nodes: Iterable[NodeInfo | None]) -> ResolvedJob:
    """Find a job's nodes among those that are known.

    Args:
        nodes: ``None`` of a node that has not been heard yet.

    Raises:
        SpecError: a node is unknown or takes part twice.
    """
    known = [node for node in nodes if node is not None]
    return ResolvedJob(spec, program_of(spec), find_participants(spec.participants, known))
