"""Findings: what checks report about a node, or about the path from one node to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import Kind
from jupyter_mntrain.model.failure.problem import Problem

Level = Literal["stops", "slows", "unknown", "passed"]
"""``stops``: a launch would fail, or hang. ``slows``: it may be slow, or fail later."""

ORDER: Final[tuple[Level, ...]] = ("stops", "slows", "unknown", "passed")
"""Worst first."""


class Remedy(Record, frozen=True):
    """A command that fixes a problem at once, without root and without changing what others use.

    Args:
        push: name of a model or data set that the node lacks, like ``models:llama``.
        source: name of a node that has it.
        node: name of the one that lacks it.
    """

    push: str
    source: str
    node: str

    @property
    def command(self) -> str:
        """The arguments of ``mntrain`` that apply it."""
        return f"push {self.push} {self.node} --from {self.source}"


class Finding(Record, frozen=True):
    """The result of one check for a node or a pair of nodes.

    Args:
        check: its id.
        node: name of the node.
        said: what was found, in a few words, like ``16.1 GB free``.
        peer: name of the other node, where a check is about a pair.
        problem: of all levels but ``passed``; if it is ``unknown``, with a fix only where somebody
            can do something about that.
        remedy: ``None`` if a person has to do it.
    """

    check: str
    node: str
    level: Level
    said: str
    peer: str = ""
    problem: Problem | None = None
    remedy: Remedy | None = None


class DoctorReport(Record, frozen=True):
    """The result of an examination.

    Args:
        nodes: names of those examined, in order.
        findings: worst first, then in the order of the checks.
        silent: why nodes could not be asked, by name. What only they know is ``unknown``.
        time_s: Unix time of its begin.
        took_s: seconds.
    """

    nodes: tuple[str, ...]
    findings: tuple[Finding, ...]
    silent: dict[str, Problem]
    time_s: float
    took_s: float

    def at(self, *levels: Level) -> tuple[Finding, ...]:
        """Return the findings of these levels."""
        return tuple(one for one in self.findings if one.level in levels)

    @property
    def can_launch(self) -> bool:
        """Whether no finding stops a launch."""
        return not self.at("stops")


def not_checked(node: str, why: Problem) -> Problem:
    """Return the problem of a node that a launch uses and that did not answer the doctor."""
    return msgspec.structs.replace(
        why,
        node=node,
        cause=f"was not checked: {why.cause}",
        fix=f"mntrain nodes shows its load; examine it with: mntrain doctor {node}",
    )


def untried(nodes: Sequence[str], patience_s: float) -> Problem:
    """Return the problem of a launch that did not wait for the tests of its nodes' network."""
    return Problem(
        kind=Kind.SLOW_TO_ANSWER,
        cause=f"the network between the nodes was not tested within {patience_s:g} s",
        fix=f"test it with: mntrain doctor {' '.join(nodes)}",
    )
