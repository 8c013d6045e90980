"""Hardware notes: warnings about the networks and GPUs that a launch will use, or leave unused."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from jupyter_mntrain.model.environment import RDMA_CHOICES
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import TERMINAL, Placement
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.arrange import arrange
from jupyter_mntrain.plan.members import shared_notes
from jupyter_mntrain.plan.networks.rdma import unused_rdma, uses_rdma
from jupyter_mntrain.plan.software.gpu_builds import unused_amd_note
from jupyter_mntrain.workload.built import Built
from jupyter_mntrain.workload.slow_links import due_links_note, slow_link_note


def hardware_notes(built: Built, now_s: float) -> Iterator[Problem]:
    """Yield warnings to show before a job starts.

    Args:
        now_s: Unix time.
    """
    participants = built.spec.participants
    try:
        nodes = built.resolved().nodes
        placements = arrange(participants, nodes)
    except SpecError:
        return  # the launch says so itself
    known = built.cluster.known_jobs()
    unheeded = {one.job_id for one in known if one.state in TERMINAL}
    if built.spec.session is not None:
        unheeded.add(built.spec.session)
    yield from shared_notes(participants, nodes, unheeded)
    gpus = (participant.gpus for participant in participants)
    if amd := unused_amd_note(zip(nodes, gpus, strict=True)):
        yield amd
    everyone = [info for view in built.cluster.nodes() if (info := view.newest)]
    if slow := slow_link_note(everyone, placements):
        yield slow
    if due := due_links_note(nodes, participants, now_s):
        yield due
    if rdma := rdma_note(nodes, placements, built.spec.environment):
        yield rdma


def rdma_note(
    nodes: Sequence[NodeInfo], placements: Sequence[Placement], environment: Collection[str]
) -> Problem | None:
    """Return a warning if NCCL does not use InfiniBand or RoCE well.

    It may use TCP although there is one of them, or some nodes' adapters cannot access GPU memory
    directly.

    Args:
        nodes: the participants' nodes, in node-rank order.
        environment: names of the job's variables; nothing is said if it decides itself.
    """
    if RDMA_CHOICES.intersection(environment):
        return None
    found = unused_rdma(placements, nodes)
    if found is None:
        return _no_gpu_direct(nodes) if uses_rdma(placements, nodes) else None
    where = f"{found.node}: " if found.node else ""
    return Problem(
        kind=Kind.SLOW_LINK,
        cause=f"the ranks use TCP and not {found.link}: {where}{found.reason}",
        fix=f"set up {found.link} {f'on {found.node}' if found.node else 'on one subnet'} (ibstat "
        "shows its ports), or add --env NCCL_IB_DISABLE=1 if TCP is right",
    )


def _no_gpu_direct(nodes: Sequence[NodeInfo]) -> Problem | None:
    names = [node.name for node in nodes if node.inventory.gpu_direct is None]
    if not names:
        return None
    return Problem(
        kind=Kind.SLOW_LINK,
        cause=f"{', '.join(names)}: neither nvidia-peermem nor dma-buf: what ranks send over "
        "InfiniBand or RoCE is copied through the host's memory",
        fix="sudo modprobe nvidia-peermem there, or install NVIDIA's open kernel modules on Linux "
        "5.12 or newer",
    )
