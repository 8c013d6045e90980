"""Tried ways: those between nodes that were found well a short while ago, for the next launch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from jupyter_mntrain.cluster.examination.examiner import AskedNode
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.doctor.every import OF_WAYS
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.doctor.paths import PathsFound, PathTrial
from jupyter_mntrain.model.records.job import JobView
from jupyter_mntrain.model.records.node import Interface, NodeInfo
from jupyter_mntrain.plan.networks.trial_ends import trial_ends

KEPT_S = tunables.seconds("doctor.kept_s")


class NodeAsTried(NamedTuple):
    """A node as it was tried: a later start of its agent is another one, as are other cards."""

    node_id: str
    name: str
    instance: str
    started_s: float
    interfaces: tuple[Interface, ...]

    @classmethod
    def of(cls, info: NodeInfo) -> NodeAsTried:
        interfaces = (
            msgspec.structs.replace(one, given=None, links=(), benched=())
            for one in info.inventory.interfaces
        )
        return cls(info.node_id, info.name, info.instance, info.started_s, tuple(interfaces))


class _Way(NamedTuple):
    sender: NodeAsTried
    receiver: NodeAsTried
    ends: tuple[str, str, str]
    """The sender's interface and address, and the receiver's address."""


class _Tried(NamedTuple):
    trial: PathTrial
    range: tuple[int, int] | None
    """Of the receiver."""
    at_s: float
    troubles: frozenset[tuple[JobId, int]]
    """That jobs had had."""


class KnownWays(NamedTuple):
    """Ways that need not be tried again.

    Args:
        age_s: of the one that was tried first.
    """

    paths: PathsFound
    age_s: float


class TriedWays:
    """What a driver knows of them. Safe from any thread.

    What is kept is only that a way was well: what is not is tried each time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tried: dict[_Way, _Tried] = {}

    def keep(
        self,
        nodes: Sequence[AskedNode],
        paths: PathsFound,
        findings: Iterable[Finding],
        jobs: Mapping[JobId, JobView],
    ) -> None:
        """Keep what was just found of the ways between some nodes, if all of them are well.

        Args:
            findings: of all checks.
            jobs: that are known now.
        """
        now_s, troubles = self._clock.monotonic(), _troubles(jobs)
        is_well = all(one.level == "passed" for one in findings if one.check in OF_WAYS)
        found = {(one.node, one.peer, _ends_of(one)): one for one in paths.trials}
        kept = {way: one for way, one in self._tried.items() if now_s - one.at_s < KEPT_S}
        for way in _ways(nodes):
            trial = found.get((way.sender.name, way.receiver.name, way.ends))
            kept.pop(way, None)
            if is_well and trial is not None and _works(trial):
                ports = paths.ranges.get(way.receiver.name)
                kept[way] = _Tried(trial, ports, now_s, troubles)
        self._tried = kept

    def look(
        self,
        nodes: Sequence[AskedNode],
        ports: Iterable[int],
        jobs: Mapping[JobId, JobView],
    ) -> KnownWays | None:
        """What is known of all ways between some nodes; ``None`` if one has to be tried, or a job
        has failed since: that may have been the network.

        Args:
            ports: that have to be open besides.
            jobs: that are known now.
        """
        ways, kept = _ways(nodes), self._tried
        tried = [kept[way] for way in ways if way in kept]
        if not ways or len(tried) < len(ways):
            return None
        age_s = self._clock.monotonic() - min(one.at_s for one in tried)
        wanted_ports, troubles = frozenset(ports), _troubles(jobs)
        if age_s >= KEPT_S or any(
            troubles - one.troubles or wanted_ports - {each.port for each in one.trial.tries}
            for one in tried
        ):
            return None
        ranges = {one.trial.peer: one.range for one in tried if one.range is not None}
        return KnownWays(PathsFound(tuple(one.trial for one in tried), ranges=ranges), age_s)


def as_tried(nodes: Iterable[AskedNode]) -> frozenset[NodeAsTried]:
    """What the nodes are, as far as a way between them depends on it."""
    return frozenset(NodeAsTried.of(one.info) for one in nodes)


def _ways(nodes: Sequence[AskedNode]) -> list[_Way]:
    infos = [one.info for one in nodes]
    known = [NodeAsTried.of(one) for one in infos]
    return [
        _Way(known[one.sender], known[one.receiver], (one.interface, one.source, one.address))
        for one in trial_ends(infos, [one.interface for one in nodes])
    ]


def _ends_of(trial: PathTrial) -> tuple[str, str, str]:
    return trial.interface, trial.source, trial.address


def _works(trial: PathTrial) -> bool:
    return trial.flow == "works" and all(one.trouble is None for one in trial.tries)


def _troubles(jobs: Mapping[JobId, JobView]) -> frozenset[tuple[JobId, int]]:
    """Jobs that have failed, and attempts after the first one."""
    return frozenset(
        (job_id, view.attempt.number)
        for job_id, view in jobs.items()
        if view.state == "failed" or view.attempt.number > 1
    )
