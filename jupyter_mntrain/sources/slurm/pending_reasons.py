"""Pending reasons: translates SLURM's reasons why a job waits, and tells whether waiting helps.
Pure.

The words are those of ``squeue``'s manual, section JOB REASON CODES.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem


class _SlurmReason(NamedTuple):
    cause: str
    fix: str = ""


_WAITS: dict[str, _SlurmReason] = {
    "": _SlurmReason(cause="SLURM has not looked at it yet"),
    "None": _SlurmReason(cause="SLURM has not looked at it yet"),
    "Resources": _SlurmReason(cause="the nodes that it needs are in use"),
    "Priority": _SlurmReason(cause="jobs of higher priority wait for the same nodes"),
    "BeginTime": _SlurmReason(
        cause="its earliest start has not come; after a requeue that takes 2 min"
    ),
    "Dependency": _SlurmReason(cause="it waits for another job to end"),
    "Licenses": _SlurmReason(cause="the licenses that it needs are in use"),
    "Prolog": _SlurmReason(cause="its nodes are being prepared"),
    "Cleaning": _SlurmReason(cause="what ran on its nodes before is being cleaned up"),
    "Reservation": _SlurmReason(
        cause="its reservation has not begun, or is in use",
        fix="see when it begins: scontrol show reservation",
    ),
    "JobArrayTaskLimit": _SlurmReason(cause="its array already runs as many tasks as it may"),
    "ReqNodeNotAvail": _SlurmReason(
        cause="nodes that it needs are down, drained or reserved",
        fix="see until when: scontrol show reservation; sinfo --list-reasons says why nodes are "
        "drained",
    ),
    "NodeDown": _SlurmReason(
        cause="a node that it needs is down",
        fix="wait until it is repaired, or ask for other nodes",
    ),
}

_NEVER: dict[str, _SlurmReason] = {
    "PartitionNodeLimit": _SlurmReason(
        cause="it asks for more nodes than the partition has, or gives one job",
        fix="ask for fewer nodes, or use another --partition; sinfo --summarize shows their sizes",
    ),
    "PartitionTimeLimit": _SlurmReason(
        cause="it asks for more time than the partition gives",
        fix="use a shorter --time, or another --partition; sinfo shows their limits",
    ),
    "PartitionConfig": _SlurmReason(
        cause="the partition never gives so much: cores, memory or GPUs per node, or time",
        fix="ask for less per node or a shorter --time, or use another --partition; sinfo shows "
        "what each one gives",
    ),
    "PartitionDown": _SlurmReason(
        cause="the partition is closed",
        fix="ask the administrators when it opens, or use another --partition",
    ),
    "PartitionInactive": _SlurmReason(
        cause="the partition accepts jobs but starts none",
        fix="ask the administrators when it opens, or use another --partition",
    ),
    "BadConstraints": _SlurmReason(
        cause="no nodes meet what it asks for",
        fix="change --constraint, --gpus or --nodes",
    ),
    "AccountNotAllowed": _SlurmReason(
        cause="the account may not use this partition",
        fix="use another --account or --partition, or ask the administrators for access",
    ),
    "QOSNotAllowed": _SlurmReason(
        cause="the quality of service may not be used here",
        fix="use another --qos or --partition, or ask the administrators for access",
    ),
    "InvalidAccount": _SlurmReason(
        cause="there is no such account, or it is not yours",
        fix="use another --account; ask the administrators which ones are yours",
    ),
    "InvalidQOS": _SlurmReason(
        cause="there is no such quality of service, or it is not yours",
        fix="use another --qos; ask the administrators which ones are yours",
    ),
    "JobHeldUser": _SlurmReason(cause="you hold it back", fix="release it: scontrol release {job}"),
    "JobHeldAdmin": _SlurmReason(
        cause="an administrator holds it back", fix="ask the administrators to release it"
    ),
    "DependencyNeverSatisfied": _SlurmReason(
        cause="the job that it depends on did not end as required",
        fix="cancel it, and submit it without that dependency",
    ),
    "ReservationDeleted": _SlurmReason(
        cause="its reservation was deleted",
        fix="cancel it, and submit it without --reservation",
    ),
    "DeadLine": _SlurmReason(cause="it cannot end before its deadline", fix="use a later one"),
    "JobHoldMaxRequeue": _SlurmReason(
        cause="it was requeued as often as this site allows",
        fix="see its log for why it failed; then release it: scontrol release {job}",
    ),
    "JobLaunchFailure": _SlurmReason(
        cause="SLURM could not start it: a disk, a network file system or a node failed",
        fix="ask the administrators to look at the node's log; then: scontrol release {job}",
    ),
    "BurstBufferOperation": _SlurmReason(
        cause="its burst buffer failed", fix="ask the administrators to look at it"
    ),
}

_ALIASES = {
    "launch failed requeued held": "JobLaunchFailure",
    "launch_failed_requeued_held": "JobLaunchFailure",
    "job requeued in held state": "JobHeldUser",
    "job_requeued_in_held_state": "JobHeldUser",
    "nodes required for job are down": "ReqNodeNotAvail",
    "nodes_required_for_job_are_down": "ReqNodeNotAvail",
}
"""Whole sentences of SLURM, up to a comma, in small letters."""

_LIMIT = re.compile(r"(?P<whose>Assoc|QOS)(?P<how>Grp|Max|Min)(?P<rest>\w+)", re.ASCII)
_OWNERS = {"Assoc": "account", "QOS": "quality of service"}

_PER_JOB = re.compile(r"PerJob|PerNode|WallDuration", re.ASCII)
_BUDGET = re.compile(r"Minutes", re.ASCII)


def pending_reason(word: str, job: str) -> Problem:
    """Explain why a job waits. The kind says whether waiting can help.

    Args:
        word: SLURM's own.
        job: its number.
    """
    kind, told = _told(word)
    return Problem(kind, cause=told.cause, fix=told.fix.format(job=job), detail=word)


def _told(word: str) -> tuple[Kind, _SlurmReason]:
    first = word.strip(" ()").split(",", 1)[0]
    name = _ALIASES.get(first.lower(), first)
    if name in _WAITS:
        return Kind.WAITS_FOR_NODES, _WAITS[name]
    if name in _NEVER:
        return Kind.NEVER_GRANTED, _NEVER[name]
    if (match := _LIMIT.fullmatch(name)) is not None:
        return _limit(match)
    fix = "see JOB REASON CODES in man squeue, or ask the administrators"
    return Kind.WAITS_FOR_NODES, _SlurmReason(cause=f"SLURM says {first or word}", fix=fix)


def _limit(match: re.Match[str]) -> tuple[Kind, _SlurmReason]:
    """Explain a limit of an account or QOS: per job, for all jobs together, or a budget."""
    owner = _OWNERS[match["whose"]]
    ask = f"or ask the administrators for a higher limit ({match[0]})"
    if match["how"] == "Min" or _PER_JOB.search(match["rest"]):
        return Kind.NEVER_GRANTED, _SlurmReason(
            cause=f"it asks for more or less than the {owner} gives one job",
            fix=f"change --nodes, --gpus or --time, {ask}",
        )
    if _BUDGET.search(match["rest"]):
        return Kind.NEVER_GRANTED, _SlurmReason(
            cause=f"the time of the {owner} is used up, or this job would exceed it",
            fix=f"use a shorter --time or another --account, {ask}",
        )
    cause = f"other jobs use all that the {owner} gives at a time"
    return Kind.WAITS_FOR_NODES, _SlurmReason(cause=cause, fix=f"wait until they end, {ask}")
