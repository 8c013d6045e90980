"""Launch resource: cancels a launch that waits for nodes."""

from __future__ import annotations

from jupyter_mntrain.http.json_handler import refusal
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.server.allocations.watched_clusters import WatchedClusters
from jupyter_mntrain.server.handlers.base import MntrainHandler, allowed
from jupyter_mntrain.sources.awaited_launch import AwaitedLaunch, silence_of


class LaunchResource(MntrainHandler):
    @allowed
    async def delete(self, cluster: str) -> None:
        updates = await self.updates()
        await self.work(cancel_launch, updates.clusters, cluster, f"canceled by {self.person}")
        updates.forget_launch(cluster)
        self.set_status(204)


def cancel_launch(clusters: WatchedClusters, name: str, reason: str) -> None:
    """Give back the nodes that a launch waits for; a job that waited for them is stopped.

    Args:
        reason: why, stored with the job.

    Raises:
        RequestRefusedError: there is no such launch, or it waits no more.
        RefusedError: the scheduler does not say how it is; or it was canceled meanwhile.
    """
    launch = AwaitedLaunch.named(name)
    if launch is None:
        raise refusal(
            404, Kind.NODES_TAKEN, f"launch {name} no longer waits for nodes: it was canceled"
        )
    now = launch.look()
    if (silence := silence_of(now)) is not None:
        raise silence
    launch.job()  # one may have started while the scheduler was asked
    is_in_use = launch.note.has_begun and now.state != "pending"
    if is_in_use or launch.give_back_seen(now) is None:
        cause = f"{name} does not wait for nodes any more"
        fix = "see its job, and stop that"
        if not launch.note.jobs:
            fix = f"end what uses its nodes, or give them back: mntrain stop {name}"
        raise refusal(409, Kind.NODES_TAKEN, cause, fix)
    if launch.note.jobs:  # its record says why it does not go on
        job = clusters.find(launch.note.jobs[-1])
        if job.view().state not in TERMINAL:
            job.stop(reason=reason)
