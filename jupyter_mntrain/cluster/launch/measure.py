"""Link measurement: capacity and latency of every ordered pair, one link at a time."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.launch.asking import ask_participants
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.model.errors import MntrainError, NodeError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.quantities import duration_text
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import LinkMeasurement, NodeInfo
from jupyter_mntrain.model.records.probes import (
    MEASURE_LEASE_S,
    MeasureLease,
    ProbeListen,
    ProbeSend,
)
from jupyter_mntrain.plan.arrange import find_participants
from jupyter_mntrain.plan.networks.measuring import (
    MEASURE_S,
    MEASURING,
    RENEWED_AT_LAUNCH,
    LinkToMeasure,
    Measuring,
    due,
    expected_s,
    links_between,
)
from jupyter_mntrain.plan.networks.outdated import link_end, marked_at_receivers, with_measured


class Prober(NamedTuple):
    """The driver's side of a link measurement.

    Args:
        live: its nodes.
        who: user and host, for people.
    """

    live: ClusterView
    who: str


async def measure_participants(
    driver: Prober,
    participants: Sequence[Participant],
    how: Measuring = MEASURING,
    progress: Progress = SILENT,
    on_measured: Callable[[LinkMeasurement], object] = bool,
    on_skipped: Callable[[MntrainError], object] | None = None,
) -> tuple[LinkMeasurement, ...]:
    """Measure every ordered pair in turn, on every network that the two nodes share. Waits until no
    other driver measures.

    Two links at once would share a network card.

    Args:
        progress: receives each pair, with the time that is left.
        on_measured: receives each result as soon as it is there; its agent keeps it.
        on_skipped: receives why a link was not measured. Without it, a pair of which no network was
            measured raises that, once all others are measured.

    Raises:
        SpecError: a node or an interface cannot be used, or two nodes share no network.
        NodeError: an agent does not answer.
        RefusedError: an agent cannot reach another one, a job trains over one of the interfaces,
            or others measure for too long.
    """
    known = [view.info for view in driver.live.nodes if view.info]
    nodes = find_participants(participants, known)
    infos = await ask_participants(driver.live, nodes, progress)
    links = links_between(infos, [one.interface for one in participants])
    if how.is_only_due:
        links = due(links, infos, time.time())
    return await measure_links(driver, infos, links, how, progress, on_measured, on_skipped)


async def with_renewed_links(
    driver: Prober,
    infos: Sequence[NodeInfo],
    participants: Sequence[Participant],
    progress: Progress = SILENT,
) -> tuple[NodeInfo, ...]:
    """Measure a job's links again if they are old or have changed, and return its nodes with them.
    Links that cannot be measured now, or are too many, are left as they are.
    """
    marked = marked_at_receivers(infos)
    try:
        links = links_between(infos, [one.interface for one in participants])
        links = due(links, infos, time.time(), is_renewal=True)
        if len(links) > RENEWED_AT_LAUNCH:
            return marked
        how = Measuring(patience_s=0.0)
        measured = await measure_links(driver, infos, links, how, progress, on_skipped=bool)
    except MntrainError:  # a launch does not need them
        return marked
    return with_measured(marked, measured)


async def measure_links(
    driver: Prober,
    infos: Sequence[NodeInfo],
    links: Sequence[LinkToMeasure],
    how: Measuring,
    progress: Progress = SILENT,
    on_measured: Callable[[LinkMeasurement], object] = bool,
    on_skipped: Callable[[MntrainError], object] | None = None,
) -> tuple[LinkMeasurement, ...]:
    """Measure these links; raises as :func:`measure_participants` does."""
    if not links:
        return ()
    names = _interfaces(infos, links)
    turn = MeasuringTurn(
        driver.live,
        driver.who,
        names,
        is_beside_jobs=how.is_beside_jobs,
        patience_s=how.patience_s,
    )
    measured: list[LinkMeasurement] = []
    failed: list[tuple[LinkToMeasure, MntrainError]] = []
    silent: dict[str, NodeError] = {}
    pace = _Pace([expected_s(link, infos) for link in links])
    async with turn.held(progress):
        for done, link in enumerate(links):
            sender, receiver = (infos[index] for index in link.pair)
            what = f"measuring {sender.name} → {receiver.name}, about {pace.left(done)} left"
            progress.report(what, done, len(links))
            try:
                await turn.renew()
            except RefusedError as error:  # a job began, or the turn was lost
                failed += [(one, error) for one in links[done:]]
                break
            known = silent.get(sender.name) or silent.get(receiver.name)
            if known is not None:
                failed.append((link, known))
                continue
            try:
                found = await _measure(driver, sender, receiver, link, how, turn.key)
            except RefusedError as error:
                failed.append((link, error))
            except NodeError as error:
                failed.append((link, error))
                silent[error.problem.node or sender.name] = error
            else:
                measured.append(found)
                on_measured(found)
    _tell(infos, measured, failed, on_skipped)
    return tuple(measured)


class _Pace:
    """Estimates how long the remaining links will take from how long the first ones took."""

    def __init__(self, expected_s: Sequence[float]) -> None:
        self._expected_s = expected_s
        self._begun_s = time.monotonic()

    def left(self, done: int) -> str:
        """Return the time left, as text.

        Args:
            done: links that are measured.
        """
        before_s = sum(self._expected_s[:done])
        slower = max(1.0, (time.monotonic() - self._begun_s) / before_s) if done else 1.0
        return duration_text(max(1.0, slower * sum(self._expected_s[done:])))


def _tell(
    infos: Sequence[NodeInfo],
    measured: Sequence[LinkMeasurement],
    failed: Sequence[tuple[LinkToMeasure, MntrainError]],
    on_skipped: Callable[[MntrainError], object] | None,
) -> None:
    """Report why links were not measured.

    Raises:
        MntrainError: none was; or one was not, of a pair that has no other, and nobody is told.
    """
    reached = {(one.sender, one.receiver) for one in measured}
    for link, error in failed:
        sender, receiver = (infos[index].name for index in link.pair)
        if not measured or (on_skipped is None and (sender, receiver) not in reached):
            raise error
        if on_skipped is not None:
            cause = f"{sender} → {receiver} over {link.interfaces[0].name}: {error.cause}"
            on_skipped(type(error).of(msgspec.structs.replace(error.problem, cause=cause)))


async def _measure(
    driver: Prober,
    sender: NodeInfo,
    receiver: NodeInfo,
    link: LinkToMeasure,
    how: Measuring,
    key: str,
) -> LinkMeasurement:
    source_address, address = link.addresses
    listen = ProbeListen(address=address, streams=how.streams, lease=key)
    ticket = await _client(driver, receiver).probe_listen(listen)
    return await _client(driver, sender).probe_send(
        ProbeSend(
            interface=link.interfaces[0].name,
            source_address=source_address,
            address=address,
            port=ticket.port,
            token=ticket.token,
            peer=receiver.name,
            seconds=MEASURE_S,
            echoes=ticket.echoes,
            streams=how.streams,
            receiver_end=link_end(link.interfaces[1]),
            lease=key,
        )
    )


def _client(driver: Prober, node: NodeInfo) -> AgentClient:
    known = driver.live.client_at(node.node_id)
    return known or driver.live.client(node.addresses[0], node.node_id, node.name)


def _interfaces(
    infos: Sequence[NodeInfo], links: Sequence[LinkToMeasure]
) -> dict[NodeId, tuple[str, ...]]:
    """Return the interfaces to measure, by node."""
    found: dict[NodeId, dict[str, None]] = {}
    for link in links:
        for index, interface in zip(link.pair, link.interfaces, strict=True):
            found.setdefault(infos[index].node_id, {})[interface.name] = None
    return {node_id: tuple(names) for node_id, names in found.items()}


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
