"""Refusals: explains errors of SLURM's commands, and what to do about them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jupyter_mntrain.model.errors import RefusedError, shortened
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.sources.source import NodesRequest
from jupyter_mntrain.sources.slurm.slurm_options import said_gpus


class Partition(NamedTuple):
    """A partition as ``sinfo`` prints it.

    Args:
        nodes: of one kind; a partition of several kinds of nodes is told several times.
        gpus: of each of them, in SLURM's form.
        features: for ``--constraint``, separated by commas.
    """

    name: str
    is_default: bool
    nodes: int
    gpus: str
    limit: str
    features: str


PARTITION_FORMAT = "%P|%D|%G|%l|%f"


def partitions(told: str) -> tuple[Partition, ...]:
    """Parse the output of ``sinfo -h -o`` :data:`PARTITION_FORMAT`."""
    found = []
    for line in told.splitlines():
        fields = line.split("|")
        if len(fields) == len(PARTITION_FORMAT.split("|")) and fields[1].isdigit():
            name, count, gpus, limit, features = fields
            is_default = name.endswith("*")
            found.append(Partition(name.rstrip("*"), is_default, int(count), gpus, limit, features))
    return tuple(found)


class _SlurmRefusal(NamedTuple):
    cause: str
    fix: str


_REFUSALS: dict[str, _SlurmRefusal] = {
    "Invalid partition name specified": _SlurmRefusal(
        cause="SLURM has no partition {partition}", fix="{partitions}"
    ),
    "Requested node configuration is not available": _SlurmRefusal(
        cause="SLURM has no nodes with what was requested", fix="{gpus}"
    ),
    "Invalid generic resource (gres) specification": _SlurmRefusal(
        cause="SLURM does not know what --gpus {asked} asks for", fix="{gpus}"
    ),
    "Invalid feature specification": _SlurmRefusal(
        cause="no node has the features of --constraint {constraint}", fix="{features}"
    ),
    "Invalid account or account/partition combination specified": _SlurmRefusal(
        cause="you may not use the account {account}, or not in this partition",
        fix="use another --account; ask the administrators which ones are yours: sacctmgr show "
        "associations user=$USER",
    ),
    "Invalid qos specification": _SlurmRefusal(
        cause="you may not use the quality of service {qos}",
        fix="use another --qos; ask the administrators which ones are yours: sacctmgr show qos",
    ),
    "User's group not permitted to use this partition": _SlurmRefusal(
        cause="you may not use the partition {partition}",
        fix="use another --partition, or ask the administrators for access",
    ),
    "Access/permission denied": _SlurmRefusal(
        cause="SLURM does not let you do this",
        fix="ask the administrators for an account in SLURM, or for access to the partition",
    ),
    "Requested time limit is invalid (missing or exceeds some limit)": _SlurmRefusal(
        cause="the partition does not give that much time, or wants a limit",
        fix="use --time, no longer than the limit of the partition: {limits}",
    ),
    "Node count specification invalid": _SlurmRefusal(
        cause="the partition gives no {nodes} nodes to one job",
        fix="ask for fewer nodes, or use another --partition",
    ),
    "Job violates accounting/QOS policy": _SlurmRefusal(
        cause="a limit of your account or quality of service does not allow it",
        fix="ask for fewer nodes or less time, wait for other jobs of yours, or ask the "
        "administrators for a higher limit",
    ),
    "Requested reservation is invalid": _SlurmRefusal(
        cause="there is no reservation {reservation}",
        fix="list the existing ones: scontrol show reservation",
    ),
    "Requested partition configuration not available now": _SlurmRefusal(
        cause="the partition takes no jobs now",
        fix="use another --partition, or ask the administrators when it opens",
    ),
    "Unable to contact slurm controller": _SlurmRefusal(
        cause="SLURM's controller does not answer",
        fix="try again; if scontrol ping says DOWN, ask the administrators",
    ),
}
"""By what ``sbatch`` says, up to its end or a parenthesis."""

_SILENT = "Unable to contact slurm controller"


def refusal(said: str, request: NodesRequest, known: Sequence[Partition]) -> RefusedError:
    """Make the error for a refusal that ``sbatch`` printed.

    Args:
        known: SLURM's partitions, for the fix; empty if they could not be asked for.
    """
    last = _sentence(said)
    for sentence, told in _REFUSALS.items():
        if sentence in said:
            facts = _facts(request, known)
            kind = Kind.NO_SCHEDULER if sentence == _SILENT else Kind.SCHEDULER_REFUSED
            cause, fix = told.cause.format(**facts), told.fix.format(**facts)
            return RefusedError(cause, kind=kind, fix=fix)
    return RefusedError(
        f"SLURM refused the request: {last}",
        kind=Kind.SCHEDULER_REFUSED,
        fix="change what it names, or ask the administrators",
    )


def no_slurm(program: str) -> RefusedError:
    """Make the error for a machine without SLURM's commands."""
    return RefusedError(
        f"there is no SLURM here: no command {program}",
        kind=Kind.NO_SCHEDULER,
        fix="run this on a login node of the cluster; if SLURM is installed, add its commands to "
        "PATH, often by: module load slurm",
    )


def _sentence(said: str) -> str:
    """Return the last meaningful line of an error output, without the program's name."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("Try ")]
    return (
        shortened(told[-1].removeprefix("sbatch:").removeprefix(" error:").strip())
        if told
        else "no reason"
    )


def _facts(request: NodesRequest, known: Sequence[Partition]) -> dict[str, object]:
    chosen = request.option("partition")
    names = dict.fromkeys(one.name for one in known)
    ours = [one for one in known if (one.name == chosen if chosen else one.is_default)] or [*known]
    limits = dict.fromkeys(f"{one.name} {one.limit}" for one in ours)
    features = dict.fromkeys(
        feature for one in ours for feature in one.features.split(",") if feature != "(null)"
    )
    return {
        "partition": chosen or next((one.name for one in known if one.is_default), "by default"),
        "partitions": f"use --partition {' or '.join(names)}" if names else "see sinfo",
        "gpus": _offer(ours) if ours else "ask for less per node; sinfo -o '%P %G' shows it",
        "features": f"use one of {', '.join(features)}" if features else "leave --constraint out",
        "limits": ", ".join(limits) or "sinfo shows it",
        "asked": request.gpus,
        "nodes": request.nodes,
        **{name: request.option(name) for name in ("constraint", "account", "qos", "reservation")},
    }


def _offer(known: Sequence[Partition]) -> str:
    """Describe what can be requested: ``main has 3 nodes with 4 a100 GPUs``."""
    told = []
    for one in known:
        gpus = [f"{gpu.number} {gpu.kind}".rstrip() + " GPUs" for gpu in said_gpus(one.gpus)]
        told.append(f"{one.name} has {one.nodes} nodes with {', '.join(gpus) or 'no GPUs'}")
    return f"ask for no more than is available: {'; '.join(dict.fromkeys(told))}"
