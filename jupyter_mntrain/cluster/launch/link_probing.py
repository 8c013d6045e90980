"""Link probing: measures given links between nodes, one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.launch.measuring_turn import MeasuringTurn
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.model.errors import MntrainError, NodeError, RefusedError
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.quantities import duration_text
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import LinkMeasurement, NodeInfo
from jupyter_mntrain.model.records.probes import ProbeListen, ProbeSend
from jupyter_mntrain.plan.networks.measuring import (
    MEASURE_S,
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
    """Measure these links; raises as
    :func:`~jupyter_mntrain.cluster.launch.measure.measure_participants` does.
    """
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
    return known or driver.live.desk.client(node.addresses[0], node.node_id, node.name)


def _interfaces(
    infos: Sequence[NodeInfo], links: Sequence[LinkToMeasure]
) -> dict[NodeId, tuple[str, ...]]:
    """Return the interfaces to measure, by node."""
    found: dict[NodeId, dict[str, None]] = {}
    for link in links:
        for index, interface in zip(link.pair, link.interfaces, strict=True):
            found.setdefault(infos[index].node_id, {})[interface.name] = None
    return {node_id: tuple(names) for node_id, names in found.items()}
