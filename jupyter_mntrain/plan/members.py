"""Participants: chooses them by ``--member HOST:N[:IFACE]`` or default, and checks their nodes.

``N`` is a number of processes, or GPUs by their ids: ``gpu0,2``. Who names GPUs gets them also
while somebody else computes there, with a warning (:func:`shared_notes`); a number takes idle
ones first, and those only where there are too few and the job does not wait. What is leased to
another job, or not offered, nobody gets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import RefusedError, SpecError, bad_argument
from jupyter_mntrain.model.failure.kinds import PASSING, Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.quantities import agreeing, listed, numbered, rough_size
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import Gpu, NodeInfo
from jupyter_mntrain.plan.lookup import find_node, reference
from jupyter_mntrain.plan.networks.rank_order import measured_order

FORM = "HOST:N[:IFACE]"
_MIG, _UUID = "MIG", "GPU-"
_WAIT = "wait, or stop what runs there"
_GPUS = re.compile(r"gpu(\d{1,3}(?:,\d{1,3})*)")


class Member(Record, frozen=True):
    """A requested participant.

    Args:
        nproc: processes; ``None`` = one per idle GPU, or one without GPUs.
        gpus: exactly these, by id; then ``nproc`` is their number.
    """

    node: str
    nproc: int | None = None
    interface: str | None = None
    gpus: tuple[int, ...] = ()


def parse_members(texts: Sequence[str]) -> list[Member]:
    """Parse several members, each as :func:`parse_member` does.

    Raises:
        SpecError: one has another form, or this is no list.
    """
    if isinstance(texts, str):
        raise bad_argument("members", texts, f"a list: [{texts!r}]")
    return [parse_member(text) for text in texts]


def parse_member(text: str) -> Member:
    """Parse ``HOST:N[:IFACE]``; ``HOST`` alone or an empty ``N`` takes all idle GPUs.

    Raises:
        SpecError: it has another form; the message shows the right one.
    """
    node, _, rest = text.strip().partition(":")
    count, has_interface, interface = rest.partition(":")
    if not node or (has_interface and not interface):
        raise SpecError(f"{text!r} is not a member", fix=f"write it as {FORM}, e.g. node1:2:eth0")
    if count.upper().startswith(_MIG):
        raise _instance(text, node)
    if count.upper().startswith(_UUID):
        raise SpecError(
            f"{count!r} in member {text!r} is a UUID, and GPUs are named by their ids",
            fix=f"look it up with nvidia-smi -L on {node}, and write {node}:gpu0",
            node=node,
        )
    if named := _GPUS.fullmatch(count):
        if interface.isdecimal():
            raise _instance(text, node, gpu=named[1])
        gpus = tuple(map(int, named[1].split(",")))
        return Member(node=node, nproc=len(gpus), interface=interface or None, gpus=gpus)
    if count and (not (count.isascii() and count.isdigit()) or int(count) < 1):
        raise SpecError(
            f"{count!r} in member {text!r} is not a number of processes",
            fix=f"write it as {FORM} with N at least 1, or with GPU ids: node1:2:eth0, "
            "node1:gpu0,2:eth0",
        )
    nproc = int(count) if count else None
    return Member(node=node, nproc=nproc, interface=interface or None)


def _instance(text: str, node: str, gpu: str = "0") -> SpecError:
    return SpecError(
        f"member {text!r} names a MIG instance, and only whole GPUs are used",
        fix=f"make the GPU whole with nvidia-smi -i {gpu} -mig 0 on {node}, then name it as "
        f"{node}:gpu{gpu}",
        kind=Kind.NO_GPU,
        node=node,
    )


def choose_participants(
    members: Sequence[Member], nodes: Sequence[NodeInfo], *, even_busy: bool = False
) -> tuple[Participant, ...]:
    """Choose participants, in the order of ``members``; the first is the head.

    Without members: if any node has GPUs, all idle GPUs of all nodes; otherwise one process on
    every node; in the best order by their links if those were measured, else by name. Agents that
    share a machine share its GPUs.

    Args:
        members: as requested; may be empty.
        nodes: all reachable nodes.
        even_busy: treat all GPUs as idle, for a job that waits in the queue; also nodes that take
            no job now, but later.

    Raises:
        SpecError: a node is unknown, named twice or has too few GPUs that may be used; the message
            names the node, what keeps the GPUs busy, and the fix.
        RefusedError: a node takes no jobs.
    """
    computing = {gpu.uuid for node in nodes for gpu in node.inventory.gpus if not gpu.is_idle}
    if even_busy:
        nodes = [_as_idle(node) for node in nodes]
    if not members:
        return _everything_idle(nodes)
    participants = []
    taken: set[str] = set()
    seen: dict[str, str] = {}
    for member in members:
        node = find_node(member.node, nodes)
        refuse_closed(node)
        if node.node_id in seen:
            earlier = seen[node.node_id]
            names = "" if earlier == member.node else f", as {earlier!r} and {member.node!r}"
            raise SpecError(
                f"is named twice{names}",
                fix=f"name it once with all its processes, {node.name}:N",
                node=node.name,
            )
        seen[node.node_id] = member.node
        gpus = (
            _these_gpus(node, member.gpus, taken)
            if member.gpus
            else _take_gpus(node, member.nproc, taken)
        )
        taken.update(gpu.uuid for gpu in gpus)
        participants.append(
            Participant(
                node=reference(node, nodes),
                nproc=len(gpus) or member.nproc or 1,
                gpus=tuple(gpu.index for gpu in gpus),
                interface=member.interface,
                shares_gpus=bool(member.gpus)
                or (not even_busy and any(gpu.uuid in computing for gpu in gpus)),
            )
        )
    return tuple(participants)


def _as_idle(node: NodeInfo) -> NodeInfo:
    gpus = tuple(
        msgspec.structs.replace(gpu, processes=(), memory_used_bytes=0)
        for gpu in node.inventory.gpus
    )
    inventory = msgspec.structs.replace(node.inventory, gpus=gpus)
    problem = None if will_take_jobs(node) else node.problem
    return msgspec.structs.replace(node, inventory=inventory, leases=(), problem=problem)


def will_take_jobs(node: NodeInfo) -> bool:
    """Whether a node takes jobs now, or may do so later without a repair."""
    return node.problem is None or node.problem.kind in PASSING


def refuse_closed(node: NodeInfo) -> None:
    """Refuse a node that takes no job now, as its owner withholds it or it cannot store jobs.

    Raises:
        RefusedError: it says why.
    """
    if node.problem is not None:
        raise RefusedError.of(msgspec.structs.replace(node.problem, node=node.name))


def _everything_idle(nodes: Sequence[NodeInfo]) -> tuple[Participant, ...]:
    if not nodes:
        raise SpecError(
            "no node is up",
            fix="start one with mntrain agent run, or invite a new one with mntrain invite",
        )
    ordered = sorted(nodes, key=lambda node: (node.name, node.node_id))
    if all(node.problem is not None for node in ordered):
        refuse_closed(ordered[0])
    ordered = [node for node in ordered if node.problem is None]
    if not any(node.inventory.gpus for node in ordered):
        return tuple(Participant(node=reference(node, nodes)) for node in _by_links(ordered))
    shares = _share_out(ordered)
    if not any(shares.values()):
        busy = "; ".join(f"{node.name}: {why}" for node in ordered if (why := _why_busy(node, ())))
        raise SpecError(f"no node has an idle GPU ({busy})", fix=_wait_or_share(ordered))
    return tuple(
        Participant(node=reference(node, nodes), nproc=len(gpus), gpus=tuple(sorted(gpus)))
        for node in _by_links([one for one in ordered if shares[one.node_id]])
        if (gpus := shares[node.node_id])
    )


def _by_links(nodes: Sequence[NodeInfo]) -> list[NodeInfo]:
    return [nodes[index] for index in measured_order(nodes)]


def _share_out(nodes: Sequence[NodeInfo]) -> dict[str, list[int]]:
    """Assign every idle GPU to one node; if several agents see it, to the one with fewest."""
    shares: dict[str, list[int]] = {node.node_id: [] for node in nodes}
    owners: dict[str, list[tuple[str, int]]] = {}
    for node in nodes:
        for gpu in idle_gpus(node):
            owners.setdefault(gpu.uuid, []).append((node.node_id, gpu.index))
    for candidates in owners.values():
        node_id, index = min(candidates, key=lambda one: len(shares[one[0]]))
        shares[node_id].append(index)
    return shares


def idle_gpus(node: NodeInfo, taken: Iterable[str] = ()) -> list[Gpu]:
    """Return a node's GPUs that are offered, idle, not leased, and not ``taken`` (by uuid)."""
    return [gpu for gpu in free_gpus(node, taken) if gpu.may_be_used()]


def free_gpus(node: NodeInfo, taken: Iterable[str] = ()) -> list[Gpu]:
    """Return the GPUs that may be named, even if programs other than our jobs use them."""
    leased = node.leased_gpus
    return [
        gpu
        for gpu in node.inventory.gpus
        if gpu.index not in leased
        and gpu.uuid not in taken
        and node.availability.offers_gpu(gpu.index)
    ]


def shared_notes(
    participants: Iterable[Participant],
    nodes: Iterable[NodeInfo],
    unheeded: Collection[JobId] = (),
) -> Iterator[Problem]:
    """Yield warnings of named GPUs that other programs use now, and of CPUs that another job uses.

    Args:
        nodes: of each participant, in the same order.
        unheeded: jobs of which nothing is said: those that are known to have ended, though a node
            has not told so of its leases, and the session that it is launched into.
    """
    for participant, node in zip(participants, nodes, strict=True):
        runs = (one for one in node.leases if one.expires_s is None and one.job_id not in unheeded)
        others = list(dict.fromkeys(lease.job_id for lease in runs if not lease.gpus))
        if others and not participant.gpus:
            yield Problem(
                kind=Kind.JOBS_RUNNING,
                cause=f"{listed(others)} also computes on its CPU cores: both will be slower",
                fix="nothing if that is acceptable; otherwise wait until it has ended, or choose "
                "another node",
                node=node.name,
            )
        shared = [
            gpu
            for gpu in node.inventory.gpus
            if participant.shares_gpus and gpu.index in participant.gpus and not gpu.is_idle
        ]
        held = [
            f"GPU {gpu.index} also computes for {gpu.owners}, and "
            f"{rough_size(gpu.memory_used_bytes)} of its {rough_size(gpu.memory_total_bytes)} are "
            "used"
            for gpu in shared
            if gpu.index not in node.leased_gpus  # the job waits for that one
        ]
        if held:
            yield Problem(
                kind=Kind.GPU_TAKEN,
                cause="; ".join(held),
                fix="nothing if both fit; otherwise end it, or choose another GPU",
                node=node.name,
            )


def _take_gpus(node: NodeInfo, nproc: int | None, taken: Iterable[str]) -> list[Gpu]:
    everything = node.inventory.gpus
    if not everything:
        return []
    idle = idle_gpus(node, taken)
    if nproc is not None and nproc > len(everything):
        raise SpecError(
            f"has {len(everything)} GPU{'s' * (len(everything) > 1)}, {nproc} requested",
            fix=f"ask for {node.name}:{len(everything)} at most",
            node=node.name,
        )
    free = (
        idle if nproc is None else sorted(free_gpus(node, taken), key=lambda gpu: not gpu.is_idle)
    )
    if len(free) < (nproc or 1):
        raise SpecError(
            f"{nproc or 1} idle GPU{'s' * ((nproc or 1) > 1)} requested, but only {len(free)} of "
            f"{len(everything)} are idle ({_why_busy(node, taken)})",
            fix=f"ask for {node.name}:{len(free)}" if free else _wait_or_share([node], taken),
            node=node.name,
        )
    return sorted(free[: nproc or len(free)], key=lambda gpu: gpu.index)


def _these_gpus(node: NodeInfo, wanted: Sequence[int], taken: Iterable[str]) -> list[Gpu]:
    twice = sorted({index for index in wanted if wanted.count(index) > 1})
    if twice:
        raise SpecError(f"GPU {twice[0]} is named twice", fix="name each once", node=node.name)
    check_gpus(node, wanted)
    free = {gpu.index for gpu in free_gpus(node, taken)}
    busy = [index for index in wanted if index not in free]
    if busy:
        raise SpecError(
            f"{numbered('GPU', busy)} {agreeing(busy, 'is', 'are')} not free "
            f"({_why_busy(node, taken)})",
            fix=f"choose from {numbered('GPU', sorted(free))}" if free else _WAIT,
            node=node.name,
        )
    by_index = {gpu.index: gpu for gpu in node.inventory.gpus}
    return [by_index[index] for index in wanted]


def check_gpus(node: NodeInfo, wanted: Sequence[int]) -> None:
    """Refuse GPUs that a node does not have."""
    indices = {gpu.index for gpu in node.inventory.gpus}
    missing = [index for index in wanted if index not in indices]
    why = f": {node.inventory.gpu_note}" if node.inventory.gpu_note else ""
    if missing and not indices:
        raise SpecError(
            f"has no GPU, but {numbered('GPU', missing)} {agreeing(missing, 'is', 'are')} "
            f"requested{why}",
            fix=f"ask for one process without a GPU: {node.name}:1",
            node=node.name,
        )
    if missing:
        raise SpecError(
            f"has {numbered('GPU', sorted(indices))}, not {numbered('GPU', missing)}{why}",
            fix="choose from the GPUs it has",
            node=node.name,
        )


def _wait_or_share(nodes: Iterable[NodeInfo], taken: Iterable[str] = ()) -> str:
    """Return the fix if no GPU is idle: to wait, or to share a busy one by naming it."""
    named = next(
        (f"{node.name}:gpu{g.index}" for node in nodes for g in free_gpus(node, taken)), ""
    )
    return f"{_WAIT}, or share it: --member {named}" if named else _WAIT


def _why_busy(node: NodeInfo, taken: Iterable[str]) -> str:
    jobs = {index: lease.job_id for lease in node.leases for index in lease.gpus}
    reasons = []
    for gpu in node.inventory.gpus:
        if not node.availability.offers_gpu(gpu.index):
            why = "not offered by its owner"
        elif gpu.index in jobs:
            why = f"leased to {jobs[gpu.index]}"
        elif gpu.processes:
            why = f"busy with {gpu.owners}"
        elif gpu.uuid in taken:
            why = "taken by an earlier member on the same machine"
        else:
            continue
        reasons.append(f"GPU {gpu.index} {why}")
    return "; ".join(reasons)
