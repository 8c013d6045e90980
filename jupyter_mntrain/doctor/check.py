"""The base classes of checks, the case that they examine, and what they find."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final, Literal, TypeVar

import msgspec

from jupyter_mntrain.doctor.script.needs import ScriptNeeds
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.hardware import GpuSetup, Hardware
from jupyter_mntrain.model.records.doctor.machine import MachineFacts
from jupyter_mntrain.model.records.doctor.paths import PathsFound
from jupyter_mntrain.model.records.doctor.trial import JobTrial
from jupyter_mntrain.model.records.evidence import GpuHealth
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import NodeInfo

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


class CheckedNode(Record, frozen=True):
    """A node and what was found out about it.

    Args:
        facts: ``None`` if its agent did not report it, as an older one cannot.
        clock_ahead_s: its clock compared with the driver's.
        clock_error_s: by how much that may be wrong: half of the time that its answer took.
        participant: what a job would use of it.
        given: variables that the job gives its ranks, which win over the agent's.
    """

    info: NodeInfo
    facts: MachineFacts | None = None
    clock_ahead_s: float = 0.0
    clock_error_s: float = 0.0
    participant: Participant | None = None
    given: dict[str, str] = {}

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of its ranks, except for those that a launch sets."""
        return {**(self.facts.environment if self.facts else {}), **self.given}

    @property
    def uses_gpus(self) -> bool:
        """Whether a job would compute on its GPUs; without a job, whether it has any."""
        if self.participant is not None:
            return bool(self.participant.gpus)
        return bool(self.info.inventory.gpus)

    @property
    def name(self) -> str:
        return self.info.name


class Unsent(Record, frozen=True):
    """A file or folder that a script needs and a launch does not send.

    Args:
        how: the option that sends it; empty if it is not on this machine.
        part: what is missing of a folder, the rest of which is sent.
    """

    how: str = ""
    part: str = ""


class PendingJob(Record, frozen=True):
    """A job that is about to be launched on the nodes of a case.

    Args:
        head: name of the node with rank 0, which everybody connects to.
        is_gloo: whether Gloo alone connects the ranks.
        port: of the rendezvous; ``None`` = the head takes a free one.
        mixed_versions: it was acknowledged that versions differ.
        name: of its script.
        script: what its text tells; ``None`` if it is not known here, or there is none.
        unsent: files and folders that it reads by a relative path and modules of its own that are
            not sent with it, or not whole.
        hides: modules next to it that Python, or torch, imports by the same name.
        placed: where on the nodes those are that it reads by a relative path, if it runs in a
            folder of theirs.
        given: relative paths among its arguments, and where they are there.
        unsent_arguments: those that name something here which is not sent, and what sends it.
        has_project: a folder is sent with it.
        nodes: their number.
        set_here: variables that its script takes, which have a value here, and are not sent.
    """

    head: str
    is_gloo: bool = False
    port: int | None = None
    mixed_versions: bool = False
    name: str = ""
    script: ScriptNeeds | None = None
    unsent: dict[str, Unsent] = {}
    hides: tuple[str, ...] = ()
    placed: dict[str, str] = {}
    given: dict[str, str] = {}
    unsent_arguments: dict[str, str] = {}
    has_project: bool = False
    nodes: int = 0
    set_here: frozenset[str] = frozenset()


class Case(Record, frozen=True):
    """Everything that an examination has collected, before the checks judge it.

    Args:
        job: that is judged for; ``None`` = any that may run there.
        trial: what became of the job when it was started to see whether it works.
        refused: why it would be, whatever state the nodes are in.
        others: nodes of the cluster that are not examined.
    """

    nodes: tuple[CheckedNode, ...]
    paths: PathsFound = PathsFound()
    job: PendingJob | None = None
    trial: JobTrial | None = None
    refused: Problem | None = None
    others: tuple[NodeInfo, ...] = ()

    def named(self, name: str) -> CheckedNode | None:
        return next((node for node in self.nodes if node.name == name), None)


class Check(ABC):
    """The base class of checks, each of which looks at one thing on every node or network path.

    Attributes:
        id: stable, for ``--json`` and the documentation.
        title: its row in the table.
        looks_at: what it reads, for the documentation.
        is_for_launch: whether a launch says what it finds, even if that does not stop it.
        is_of_ways: whether it judges what nodes found of the ways to each other.
    """

    id: ClassVar[str]
    title: ClassVar[str]
    looks_at: ClassVar[str]
    is_for_launch: ClassVar[bool] = True
    is_of_ways: ClassVar[bool] = False

    @abstractmethod
    def findings(self, case: Case) -> Iterable[Finding]:
        """Yield what the check finds on the nodes that it concerns."""

    def passed(self, node: CheckedNode, said: str, *, peer: str = "") -> Finding:
        return Finding(check=self.id, node=node.name, level="passed", said=said, peer=peer)

    def slows(
        self, node: CheckedNode, said: str, kind: Kind, *, cause: str, fix: str, peer: str = ""
    ) -> Finding:
        """Return a finding that training may be slow, or fail later."""
        return self.found("slows", node, said, Problem(kind=kind, cause=cause, fix=fix), peer=peer)

    def stops(
        self, node: CheckedNode, said: str, kind: Kind, *, cause: str, fix: str, peer: str = ""
    ) -> Finding:
        """Return a finding that a launch would fail or hang."""
        return self.found("stops", node, said, Problem(kind=kind, cause=cause, fix=fix), peer=peer)

    def found(
        self, level: Level, node: CheckedNode, said: str, problem: Problem, *, peer: str = ""
    ) -> Finding:
        """Return a finding with a given problem, which may blame another node."""
        placed = msgspec.structs.replace(problem, node=problem.node or node.name)
        return Finding(self.id, node.name, level, said, peer, placed)

    def unknown(self, node: CheckedNode, why: str, *, peer: str = "") -> Finding:
        """Return a finding that something could not be found out."""
        return self.found("unknown", node, "unknown", Problem(kind=Kind.NODE, cause=why), peer=peer)


class NodeCheck(Check):
    """A check that judges each node separately, by the facts that its agent reports."""

    def findings(self, case: Case) -> Iterable[Finding]:
        for node in case.nodes:
            if node.facts is None:
                yield self.unknown(node, "its agent did not report it")
            elif (found := self.look(node, node.facts)) is not None:
                yield found

    @abstractmethod
    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding | None:
        """Return what there is to say about a node; ``None`` if the check does not concern it."""


Card = TypeVar("Card", GpuHealth, GpuSetup)


class HardwareCheck(NodeCheck):
    """A check that judges the hardware of each node separately."""

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding | None:
        if facts.hardware is None:
            return self.unknown(node, "its agent did not report it")
        return self.inspect(node, facts, facts.hardware)

    @abstractmethod
    def inspect(self, node: CheckedNode, facts: MachineFacts, hardware: Hardware) -> Finding | None:
        """Return what there is to say about a node; ``None`` if the check does not concern it."""


def chosen(node: CheckedNode, cards: Sequence[Card]) -> list[Card]:
    """Return the GPUs that a job would use; without a job, all GPUs of the node."""
    if node.participant is None:
        return list(cards)
    return [one for one in cards if one.index in node.participant.gpus]
