"""Checklists that people go through by hand before they trust several nodes, and what does it here.

They are those of a guide for NCCL on rented machines, of Forgather's guides for several machines,
and of what a vendor lets itself be accepted by: every item of each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jupyter_mntrain.doctor.every import examine
from tests.doctor.faults import FAULTS
from tests.doctor.faults.fault import Fault
from tests.doctor.healthy import healthy


class Item(NamedTuple):
    """One point of a checklist.

    Args:
        checks: ids of checks of the doctor.
        besides: what else does it, why no doctor can know it, or why it is not offered.
        made: of the faults that tests make, the one that shows it; empty = the first of the first
            check.
    """

    point: str
    checks: tuple[str, ...] = ()
    besides: str = ""
    made: str = ""


_LATER = "only while it runs: "

PLACES = "the ranks' stacks name the place and the rank ([faults](faults.md))"

CHECKLISTS: dict[str, tuple[Item, ...]] = {
    "Gotchas of NCCL on several machines": (
        Item("MN1: fabric manager runs on every node, of the driver's version", ("gpu-fabric",)),
        Item(
            "MN2: NCCL uses the right network card, not docker0, loopback or a slow one",
            ("interface-names", "shared-network", "fast-network", "adapter-names", "route"),
            "a launch names the interface itself, and counters show afterward which one is used",
        ),
        Item(
            "MN3: a dead rank is not hidden for 30 minutes",
            (),
            f"{_LATER}a stall is named after seconds, with the rank ([faults](faults.md))",
        ),
        Item("MN4: one MTU end to end (ping -M do -s 8972)", ("path-mtu",)),
        Item(
            "MN5: a restart goes on from a checkpoint",
            (),
            f"{_LATER}the built-in trainer always does; a script that begins at step 1 again is "
            "named ([own scripts](own_scripts.md))",
        ),
        Item("MN6: elastic Horovod pauses below its minimum", (), "Horovod is not offered"),
    ),
    "First moves of the same guide": (
        Item(
            "Every node: nvidia-fabricmanager is active, of the driver's version", ("gpu-fabric",)
        ),
        Item(
            "Identical NCCL variables on all ranks",
            ("variables", "debug-variables"),
            "a launch sets NCCL_SOCKET_IFNAME, NCCL_IB_HCA or NCCL_IB_DISABLE itself",
        ),
        Item("Path MTU between nodes", ("path-mtu",), made="a tunnel on the way to another node"),
        Item(
            "First launch with NCCL_DEBUG=INFO: each rank's NET line names the fast card",
            ("rdma-ports",),
            "`mntrain bench` reads the line and names a silent fall-back to TCP",
        ),
        Item(
            "The script loads the latest checkpoint on a restart",
            (),
            f"{_LATER}as MN5",
        ),
        Item(
            "Checkpoints often enough for the number of nodes",
            ("disk-space", "writable-paths"),
            "`checkpoint.interval_steps` says how often ([recipe](recipe.md))",
            made="2 GB are free",
        ),
    ),
    "Prerequisites of Forgather's guide": (
        Item(
            "The same absolute paths on every node: project, data, output",
            ("job-paths", "same-files", "writable-paths"),
        ),
        Item(
            "No link that is here and is missing there",
            ("job-paths",),
            made="a job's data is a link",
        ),
        Item("The same user and UID", ("user-id",)),
        Item(
            "torch and NCCL match exactly",
            ("versions", "nccl-loaded", "torch-version", "torch-import"),
            "a launch with mixed versions is refused, until it is acknowledged",
        ),
        Item(
            "Python, transformers and the architecture match",
            ("versions",),
            made="a node has another Python",
        ),
        Item(
            "A trusted network",
            (),
            "agents and drivers show each other certificates; what ranks send is not encrypted "
            "([security](security.md))",
        ),
        Item("Containers: an init as process 1", ("first-process",)),
        Item(
            "Containers: the host's network, or an address that others reach",
            ("reachable", "shared-network"),
            made="a firewall between",
        ),
    ),
    "If a node is missing": (
        Item(
            "Does its server run?",
            (),
            'a node that does not answer is "unknown" to the doctor, and `mntrain nodes` says why',
        ),
        Item(
            "Does multicast reach it? Is it of the same cluster?",
            (),
            "`mntrain nodes` says so of every silent peer; `--agent HOST:PORT` needs no multicast",
        ),
        Item(
            "Are latency and bandwidth those of the link? Cable, duplex, wrong interface",
            ("measured-link", "network-duplex", "network-speed", "network-errors", "route"),
            "`mntrain measure`",
        ),
        Item("Is the rendezvous port open?", ("rendezvous-port", "reachable")),
    ),
    "Where ranks hang": tuple(
        Item(point, checks, f"{_LATER}{PLACES}")
        for point, checks in (
            ("dist.new_group: other ranks are not there", ()),
            ("dist.all_gather: one rank has not reached the call", ()),
            ("dist.barrier: one rank failed earlier", ()),
            ("_PipelineStage._receive: the stage before has not sent", ()),
            (
                "ncclSendRecv: NCCL_SOCKET_IFNAME is wrong on one side, or a firewall",
                ("reachable", "interface-names"),
            ),
        )
    ),
    "Troubleshooting of Forgather's guide": (
        Item(
            '"Mismatched NCCL version detected"',
            ("nccl-loaded", "versions", "torch-version"),
            "a launch with mixed versions is refused",
        ),
        Item(
            "Hangs: all nodes reach each other on the required ports; a firewall",
            ("reachable", "port-range", "rendezvous-port", "address-twice", "subnet-mask"),
        ),
        Item(
            "Hangs: the rendezvous host's name leads to it",
            ("host-name", "reverse-dns"),
            "a launch uses addresses",
        ),
        Item("Hangs: NCCL uses the wrong interface", ("interface-names", "route")),
        Item(
            "Hangs: debug logging, CUDA_LAUNCH_BLOCKING=1",
            ("debug-variables",),
            "left on by mistake it is named; `--env CUDA_LAUNCH_BLOCKING=1` sets it for one job",
        ),
        Item(
            "Loading a model over the network takes minutes",
            ("job-paths", "hub-files"),
            "`mntrain push` brings it to every node once ([files](files.md))",
        ),
        Item("FileNotFoundError: model.safetensors, the index without weights", ("whole-model",)),
    ),
    "Where training on several machines breaks, by the vendor": (
        Item(
            "The silent fall-back to TCP",
            ("rdma-ports", "gpu-direct", "locked-memory"),
            "`mntrain bench` names it",
            made="a container without the adapter's device node",
        ),
        Item(
            "NCCL hangs at its start: RDMA not visible, topology, a network policy",
            ("reachable", "rdma-ports", "topology", "gpu-fabric"),
            made="a firewall between",
        ),
        Item(
            "Half of a gang is scheduled",
            (),
            "leases are all or nothing ([architecture](architecture.md))",
        ),
        Item(
            "Brittle launch scripts: MASTER_ADDR, WORLD_SIZE, RANK, LOCAL_RANK",
            (),
            "the agents give every rank its own ([own scripts](own_scripts.md))",
        ),
    ),
    "What the vendor is accepted by": (
        Item(
            "RDMA is in use, at or near line rate",
            ("rdma-ports", "measured-link", "resent-packets"),
            "`mntrain bench` shows bus bandwidth compared with the line rate",
        ),
        Item(
            "Scaling is close to linear",
            (),
            "no node is to blame before a launch; `mntrain plan` predicts it, `compare` shows it",
        ),
        Item(
            "A gang starts whole or stays pending",
            (),
            "leases are all or nothing ([architecture](architecture.md))",
        ),
        Item(
            "A user launches without help",
            ("launch", "script"),
            "`%mntrain launch`, the panel, and this check before each launch",
        ),
        Item("A killed run resumes from its checkpoint", (), f"{_LATER}as MN5"),
    ),
    "What hurts on any machine": (
        Item(
            "GPUs are free, cool, without memory errors, in the right mode",
            (
                *("gpu-driver", "gpu-answers", "gpu-xid", "gpu-memory-errors", "gpu-users"),
                *("gpu-clocks", "gpu-power-limit", "gpu-pcie", "gpu-compute-mode", "cuda-start"),
            ),
        ),
        Item(
            "Disks, memory, shared memory, limits",
            (
                *("disk-space", "writable-paths", "host-memory", "shared-memory", "open-files"),
                *("core-files",),
            ),
        ),
    ),
}


def shown(item: Item) -> Fault | None:
    """The fault of an item's check that shows it."""
    if not item.checks:
        return None
    return next(
        one
        for one in FAULTS
        if one.made.startswith(item.made)
        and (one.check in item.checks if item.made else one.check == item.checks[0])
    )


def named(item: Item) -> str:
    """A mark, the checks, and what else does it."""
    checks = ", ".join(f"`{check}`" for check in item.checks)
    here = "; ".join(filter(None, (checks, item.besides)))
    mark = "–" if here.endswith("not offered") else "✓"
    return f"{mark} {here}"


def checklist_table(items: Iterable[Item], title: str) -> str:
    """A line per item, with the checks."""
    lines = [f"| {title} | here |", "| --- | --- |"]
    return "\n".join(lines + [f"| {item.point} | {named(item)} |" for item in items]) + "\n"


def fault_table(items: Iterable[Item], title: str) -> str:
    """A line per item, with the checks, one fault that was made, what was said of it, and its
    fix."""
    lines = [f"| {title} | here | fault made | said | fix |", "| --- | --- | --- | --- | --- |"]
    for item in items:
        cells = [item.point, named(item), *_outcome(shown(item))]
        lines.append(f"| {' | '.join(one.replace('|', chr(92) + '|') for one in cells)} |")
    return "\n".join(lines) + "\n"


def _outcome(fault: Fault | None) -> tuple[str, str, str]:
    if fault is None:
        return ("–", "–", "–")
    problem = next(one.problem for one in examine(fault.make(healthy())) if one.problem)
    assert problem is not None
    return fault.made, problem.cause, problem.fix
