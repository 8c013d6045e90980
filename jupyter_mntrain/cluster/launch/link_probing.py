"""Link probing: measures some links of some nodes, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.launch.measuring_turn import MeasuringTurn
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import MntrainError, RefusedError
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import LinkMeasurement, NodeInfo
from jupyter_mntrain.model.records.probes import ProbeListen, ProbeSend
from jupyter_mntrain.plan.networks.measuring import (
    RENEWED_AT_LAUNCH,
    LinkToMeasure,
    Measuring,
    Pair,
    due,
    links_between,
)
from jupyter_mntrain.plan.networks.outdated import link_end, marked_at_receivers, with_measured

PROBE_S = tunables.seconds("links.measure_s")


class Prober(NamedTuple):
    """A driver that measures.

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
    """The nodes of a job, with new measurements of the links that have changed since they were
    measured, or are old. If they cannot be measured now, or are many, they stay as they are.
    """
    marked = marked_at_receivers(infos)
    try:
        links = links_between(infos, [one.interface for one in participants])
        links = due(links, infos, time.time(), is_renewal=True)
        if len(links) > RENEWED_AT_LAUNCH:
            return marked
        measured = await measure_links(driver, infos, links, Measuring(patience_s=0.0), progress)
    except MntrainError:  # a launch does not need them
        return marked
    return with_measured(marked, measured)


async def measure_links(
    driver: Prober,
    infos: Sequence[NodeInfo],
    links: Sequence[LinkToMeasure],
    how: Measuring,
    progress: Progress = SILENT,
    on_skipped: Callable[[RefusedError], object] = bool,
) -> tuple[LinkMeasurement, ...]:
    """Measure these links of some nodes; raises as
    :func:`~jupyter_mntrain.cluster.launch.measure.measure_participants`.
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
    failed: dict[Pair, RefusedError] = {}
    async with turn.held(progress):
        for done, link in enumerate(links):
            sender, receiver = (infos[index] for index in link.pair)
            progress.report(f"measuring {sender.name} → {receiver.name}", done, len(links))
            await turn.renew()
            try:
                measured.append(await _measure(driver, sender, receiver, link, how, turn.key))
            except RefusedError as error:
                failed[link.pair] = error
    reached = {(one.sender, one.receiver) for one in measured}
    for pair, refusal in failed.items():
        if (infos[pair[0]].name, infos[pair[1]].name) not in reached:
            raise refusal
        on_skipped(refusal)
    return tuple(measured)


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
            seconds=PROBE_S,
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
    """The interfaces that are measured, by node."""
    found: dict[NodeId, dict[str, None]] = {}
    for link in links:
        for index, interface in zip(link.pair, link.interfaces, strict=True):
            found.setdefault(infos[index].node_id, {})[interface.name] = None
    return {node_id: tuple(names) for node_id, names in found.items()}
