"""Resolved job: a job with its program and its participants' nodes, looked up once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jupyter_mntrain.model.program import Program, program_of
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.arrange import find_participants


class ResolvedJob(NamedTuple):
    """A job with its program and nodes, as launches, plans, the panel and the doctor use it.

    Args:
        nodes: of the participants, in node-rank order.
    """

    spec: JobSpec
    program: Program
    nodes: tuple[NodeInfo, ...]

    def with_spec(self, spec: JobSpec) -> ResolvedJob:
        """The same nodes and participants, with other settings of the same program."""
        return (
            self
            if spec is self.spec
            else self._replace(spec=spec, program=type(self.program)(spec))
        )

    def in_order(self, spec: JobSpec, order: Sequence[int]) -> ResolvedJob:
        """The same with its participants in another order: ``spec`` has them in it."""
        return self.with_spec(spec)._replace(nodes=tuple(self.nodes[index] for index in order))

    @property
    def names(self) -> set[str]:
        """The names of the nodes."""
        return {node.name for node in self.nodes}


def resolve(spec: JobSpec, nodes: Iterable[NodeInfo | None]) -> ResolvedJob:
    """Find a job's nodes among the known ones.

    Args:
        nodes: ``None`` of a node that has not been heard yet.

    Raises:
        SpecError: a node is unknown or takes part twice.
    """
    known = [node for node in nodes if node is not None]
    return ResolvedJob(spec, program_of(spec), find_participants(spec.participants, known))
