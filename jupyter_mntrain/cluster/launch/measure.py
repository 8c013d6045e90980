"""Link measurement: bandwidth of every ordered pair of participants, one pair at a time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.launch.launcher import AgentLauncher
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import ProbeListen, ProbeSend
from jupyter_mntrain.model.records.job import Participant, Placement
from jupyter_mntrain.model.records.node import LinkMeasurement
from jupyter_mntrain.plan.arrange import arrange

PROBE_S = tunables.seconds("links.measure_s")


async def measure_participants(
    launcher: AgentLauncher, participants: Sequence[Participant], progress: Progress
) -> tuple[LinkMeasurement, ...]:
    """Place the participants, and measure every pair of them.

    Raises:
        SpecError, NodeError, RefusedError: as for a launch.
    """
    infos = await launcher.ask_participants(participants, progress)
    placements = arrange(participants, infos)
    clients = [launcher.live.client_of(placement) for placement in placements]
    return await measure_pairs(placements, clients, progress=progress)


async def measure_pairs(
    placements: Sequence[Placement],
    clients: Sequence[AgentClient],
    *,
    progress: Progress = SILENT,
) -> tuple[LinkMeasurement, ...]:
    """Measure every ordered pair in turn: two at once would share a link.

    Args:
        placements: the participants with their chosen interfaces.
        clients: their agents, in the same order.
        progress: receives each pair.

    Raises:
        NodeError: an agent does not answer.
        RefusedError: an agent cannot reach the other one on the chosen address.
    """
    pairs = list(itertools.permutations(zip(placements, clients, strict=True), 2))
    measured = []
    for done, ((source, sender), (sink, receiver)) in enumerate(pairs):
        progress.report(f"measuring {source.node} → {sink.node}", done, len(pairs))
        ticket = await receiver.probe_listen(ProbeListen(address=sink.address))
        request = ProbeSend(
            interface=source.interface,
            source_address=source.address,
            address=sink.address,
            port=ticket.port,
            token=ticket.token,
            peer=sink.node,
            seconds=PROBE_S,
        )
        measured.append(await sender.probe_send(request))
    return tuple(measured)
