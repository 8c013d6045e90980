"""Link measurement: capacity and latency of every ordered pair, one link at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from jupyter_mntrain.cluster.launch.asking import ask_participants
from jupyter_mntrain.cluster.launch.launcher import AgentLauncher
from jupyter_mntrain.cluster.launch.link_probing import measure_links
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import LinkMeasurement
from jupyter_mntrain.plan.arrange import find_participants
from jupyter_mntrain.plan.networks.measuring import MEASURING, Measuring, due, links_between


async def measure_participants(
    launcher: AgentLauncher,
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
    nodes = find_participants(
        participants, [view.info for view in launcher.live.nodes if view.info]
    )
    infos = await ask_participants(launcher.live, nodes, progress)
    links = links_between(infos, [one.interface for one in participants])
    if how.is_only_due:
        links = due(links, infos, time.time())
    return await measure_links(
        launcher.prober, infos, links, how, progress, on_measured, on_skipped
    )
