"""Turn to measure: keeps all other drivers of a cluster from measuring at the same time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.model.errors import MntrainError, NodeError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.probes import MEASURE_LEASE_S, MeasureLease

LOOK_S = 0.5
"""How long a driver that measures keeps others from it after it last said so, and how long another
one waits for its turn."""
RENEW_AFTER_S = MEASURE_LEASE_S / 3


class MeasuringTurn:
    """A lock for measuring links, held on the nodes that measure and on all others that answer.

    Args:
        who: user and host, for people.
        interfaces: those that are measured, by node.
        is_beside_jobs: also while a job trains over one of them.
        patience_s: longest time to wait for others.
    """

    def __init__(
        self,
        live: ClusterView,
        who: str,
        interfaces: Mapping[NodeId, tuple[str, ...]],
        *,
        is_beside_jobs: bool,
        patience_s: float,
    ) -> None:
        self._live = live
        self._interfaces = interfaces
        self._lease = MeasureLease(key=secrets.token_hex(8), who=who, is_beside_jobs=is_beside_jobs)
        self._patience_s = patience_s
        self._renewed_s = 0.0

    @property
    def key(self) -> str:
        return self._lease.key

    @asynccontextmanager
    async def held(self, progress: Progress) -> AsyncIterator[None]:
        """Wait for the turn, and release it at the end.

        Raises:
            RefusedError: others measure for too long, or a job trains over one of the interfaces.
            NodeError: a node that is to measure does not answer.
        """
        try:
            await self._wait(progress)
            yield
        finally:
            with suppress(MntrainError):
                await self._ask_all(0.0)

    async def renew(self) -> None:
        """Renew the turn. Call before each link, whose measurement shows whether a node still
        answers.

        Raises:
            RefusedError: a job began, or the turn was lost.
        """
        if asyncio.get_running_loop().time() - self._renewed_s > RENEW_AFTER_S:
            await self._ask_all(MEASURE_LEASE_S, is_renewal=True)

    async def _wait(self, progress: Progress) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._patience_s
        while True:
            try:
                return await self._ask_all(MEASURE_LEASE_S)
            except RefusedError as error:
                if error.kind is not Kind.TOO_MANY or loop.time() >= end_s:
                    raise
                progress.report(f"waiting: {error.cause}", 0, None)
            # Others may have the nodes that this driver does not, and the other way around.
            await self._ask_all(0.0)
            await asyncio.sleep(LOOK_S)

    async def _ask_all(self, expires_in_s: float, *, is_renewal: bool = False) -> None:
        """Ask one node after another, in the same order for all drivers, so that one of them gets
        all.
        """
        self._renewed_s = asyncio.get_running_loop().time()
        others = {
            view.info.node_id
            for view in self._live.nodes
            if view.info and view.liveness == "up" and not view.is_conflict
        }
        for node_id in sorted(others | set(self._interfaces)):
            must_answer = expires_in_s > 0 and not is_renewal and node_id in self._interfaces
            await self._ask(node_id, expires_in_s, must_answer=must_answer)

    async def _ask(self, node_id: NodeId, expires_in_s: float, *, must_answer: bool) -> None:
        client = self._live.client_at(node_id)
        if client is None:
            return  # the measurement itself says so
        lease = MeasureLease(
            key=self._lease.key,
            who=self._lease.who,
            interfaces=self._interfaces.get(node_id, ()),
            is_beside_jobs=self._lease.is_beside_jobs,
            expires_in_s=expires_in_s,
        )
        try:
            await client.probe_lease(lease)
        except RefusedError as error:
            if error.kind is not Kind.NO_SUCH_ROUTE:  # an older agent
                raise
        except NodeError:
            if must_answer:
                raise
