"""Path trials: has every node try the ways to all others at once, while those listen."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.doctor.paths import (
    LEAST_PORT,
    PathEnd,
    PathHeard,
    PathListen,
    PathsAsked,
    PathsFound,
    PathTarget,
    PathTicket,
    PathTrial,
)
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.networks.trial_ends import TrialEnds, trial_ends

USUAL_PORTS = (29400, 29500)
"""That torchrun and scripts use for the rendezvous if no other is given."""


def ports_of(spec: JobSpec | None) -> tuple[int, ...]:
    """Those that a job uses for the rendezvous, and were not chosen free; without a job, the usual
    ones.
    """
    if spec is None:
        return USUAL_PORTS
    return () if spec.port is None else (spec.port,)


class _Listening(Record, frozen=True):
    node: int
    address: str
    ticket: PathTicket


class PathTrials:
    """Tries the ways between some nodes.

    Args:
        clients: of their agents, by node id.
        ports: that a job may use for the rendezvous.
    """

    def __init__(
        self,
        nodes: Sequence[NodeInfo],
        clients: Mapping[NodeId, AgentClient],
        ports: Sequence[int] = USUAL_PORTS,
    ) -> None:
        self._nodes = nodes
        self._clients = [clients[node.node_id] for node in nodes]
        self._ports = tuple(one for one in ports if one >= LEAST_PORT)
        self._failed: dict[str, str] = {}

    async def run(self, wanted: Sequence[str | None], *, is_loaded: bool = True) -> PathsFound:
        """Try them all. Takes about three seconds; what fails is said in the result.

        Args:
            wanted: the named interface of each node, or ``None``.
            is_loaded: also send as much as goes for a moment, where no job trains.
        """
        ends = trial_ends(self._nodes, wanted)
        places = dict.fromkeys((one.receiver, one.address) for one in ends)
        opened = await asyncio.gather(*(self._listen(*place) for place in places))
        listening = {(one.node, one.address): one for one in opened if one is not None}
        try:
            found = await asyncio.gather(
                *(self._try(at, ends, listening, is_loaded) for at in range(len(self._nodes)))
            )
        finally:
            heard = await asyncio.gather(*(self._end(one) for one in listening.values()))
        return PathsFound(
            trials=tuple(trial for trials in found for trial in trials),
            heard={name: one for name, one in heard if one is not None},
            failed=self._failed,
            ranges={
                self._nodes[one.node].name: one.ticket.range
                for one in listening.values()
                if one.ticket.range
            },
        )

    async def _listen(self, at: int, address: str) -> _Listening | None:
        try:
            asked = PathListen(address=address, ports=self._ports)
            ticket = await self._clients[at].paths_listen(asked)
        except MntrainError as error:
            self._note(at, error)
            return None
        return _Listening(node=at, address=address, ticket=ticket)

    async def _try(
        self,
        at: int,
        ends: Sequence[TrialEnds],
        listening: Mapping[tuple[int, str], _Listening],
        is_loaded: bool,
    ) -> list[PathTrial]:
        targets = tuple(
            PathTarget(
                peer=self._nodes[one.receiver].name,
                interface=one.interface,
                source=one.source,
                address=one.address,
                ticket=listening[one.receiver, one.address].ticket,
            )
            for one in ends
            if one.sender == at and (one.receiver, one.address) in listening
        )
        if not targets:
            return []
        try:
            asked = PathsAsked(targets=targets, is_loaded=is_loaded)
            found = await self._clients[at].paths_try(asked)
        except MntrainError as error:
            self._note(at, error)
            return []
        # It is the driver who knows by which name the node is examined.
        return [msgspec.structs.replace(one, node=self._nodes[at].name) for one in found]

    async def _end(self, listening: _Listening) -> tuple[str, PathHeard | None]:
        name = self._nodes[listening.node].name
        try:
            asked = PathEnd(token=listening.ticket.token)
            return name, await self._clients[listening.node].paths_end(asked)
        except MntrainError:
            return name, None  # it ends by itself; who drops packets stays unknown

    def _note(self, at: int, error: MntrainError) -> None:
        is_old = error.problem.kind is Kind.NO_SUCH_ROUTE
        self._failed[self._nodes[at].name] = (
            "its agent is older, and cannot try the network" if is_old else error.problem.cause
        )
