"""Queue line: parses what ``squeue`` prints about a job into the state of an allocation. Pure.

Only explicit formats are asked for: they are the same from 22.05 to 24.11, while JSON, which one of
the two cannot filter, differs in nearly every field.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.sources.source import (
    Allocation,
    AllocationState,
    NodesRequest,
    Outcome,
    Slot,
    Waiting,
)
from jupyter_mntrain.sources.slurm.pending_reasons import pending_reason
from jupyter_mntrain.sources.slurm.slurm_options import NAME

QUEUE_FORMAT = "%i|%T|%V|%S|%e|%N|%r|%Z"
"""Number, state, submitted, start, end, nodes, reason, folder. No value but the last has a bar."""

TIME_FORMAT = "%s"
"""For ``$SLURM_TIME_FORMAT``: Unix times. Versions that do not know it write their usual form."""

NODES_FORMAT = "%N|%T"

_PREEMPTED = re.compile(r"\bPreemptTime=\d", re.ASCII)
_SIGNALED = re.compile(r"\bExitCode=\d+:(?:9|15)\b", re.ASCII)
_RESTARTS = re.compile(r"\bRestarts=(\d+)", re.ASCII)

_PENDING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
    | {"RESV_DEL_HOLD", "SUSPENDED", "STOPPED"}
)
_RUNNING = frozenset({"RUNNING", "RESIZING"})
_ENDING = frozenset({"COMPLETING", "STAGE_OUT", "SIGNALING"})

_UNUSABLE = ("down", "fail", "error", "unknown", "power")
"""Beginnings of node states; a drained node works on until its job has ended."""


class QueueLine(NamedTuple):
    """One job in the queue. Times are Unix times.

    Args:
        nodes: in SLURM's short form: ``node[1-3,7]``.
        reason: SLURM's word.
        folder: that it was submitted for.
    """

    job: str
    state: str
    submitted_s: float | None
    start_s: float | None
    end_s: float | None
    nodes: str
    reason: str
    folder: str

    @property
    def is_running(self) -> bool:
        return self.state in _RUNNING

    @property
    def is_pending(self) -> bool:
        return self.state in _PENDING

    @property
    def holds_nodes(self) -> bool:
        return self.state in _RUNNING | _ENDING


class HeldNodes(NamedTuple):
    """Details about the nodes that a job holds.

    Args:
        hosts: by slot, as the nodes have told; a slot that has not yet is missing.
        allocated: hosts that the job holds now, in SLURM's order.
        states: SLURM's, by host.
        restarts: how often the job was requeued.
        is_preempted: whether a job of higher priority takes them.
        is_signaled: whether SLURM ends the job itself.
    """

    hosts: Mapping[str, str] = {}
    allocated: Sequence[str] = ()
    states: Mapping[str, str] = {}
    restarts: int = 0
    is_preempted: bool = False
    is_signaled: bool = False


def queue_line(told: str) -> QueueLine | None:
    """Parse a line of :data:`QUEUE_FORMAT`; return ``None`` if it is not one."""
    fields = told.strip().split("|", QUEUE_FORMAT.count("|"))
    if len(fields) <= QUEUE_FORMAT.count("|") or not fields[0]:
        return None
    job, state, submitted, start, end, nodes, reason, folder = fields
    return QueueLine(
        job, state, unix_s(submitted), unix_s(start), unix_s(end), nodes, reason, folder
    )


def unix_s(text: str) -> float | None:
    """Parse a time that SLURM prints: a number, or local time. ``None`` for ``N/A`` and the like.

    A job without a limit ends in a year, as far as SLURM is concerned.
    """
    if text.isascii() and text.isdigit():
        return float(text) or None
    with suppress(ValueError):
        return dt.datetime.fromisoformat(text).astimezone().timestamp()
    return None


def history_of(told: str) -> HeldNodes:
    """Parse restarts, preemption and signals of a job from ``scontrol --oneliner show job``."""
    match = _RESTARTS.search(told)
    return HeldNodes(
        restarts=int(match[1]) if match else 0,
        is_preempted=_PREEMPTED.search(told) is not None,
        is_signaled=_SIGNALED.search(told) is not None,
    )


def node_states(told: str) -> dict[str, str]:
    """Parse the state of each node from ``sinfo -h -N -o`` :data:`NODES_FORMAT`."""
    pairs = (line.partition("|") for line in told.splitlines())
    return {name.strip(): state.strip() for name, _, state in pairs if name.strip()}


def allocation_of(line: QueueLine, request: NodesRequest, held: HeldNodes) -> Allocation:
    """Return the state of the allocation that a queue line describes."""
    state = _state(line)
    outcome, problem = _end(line) if state == "ended" else _beginning_end(line, held)
    is_granted = line.holds_nodes
    return Allocation(
        line.job,
        NAME,
        state,
        slots=_slots(line, request, held),
        waiting=_waiting(line) if state == "pending" else None,
        submitted_s=line.submitted_s,
        started_s=line.start_s if is_granted else None,
        ends_s=line.end_s if is_granted else None,
        grants=held.restarts + bool(line.nodes),
        outcome=outcome,
        problem=problem,
    )


def _state(line: QueueLine) -> AllocationState:
    if line.state in _RUNNING:
        return "running"
    if line.state in _ENDING:
        return "ending"
    return "pending" if line.state in _PENDING else "ended"


def _waiting(line: QueueLine) -> Waiting:
    return Waiting(line.reason, pending_reason(line.reason, line.job), line.start_s)


def _slots(line: QueueLine, request: NodesRequest, held: HeldNodes) -> tuple[Slot, ...]:
    if not line.holds_nodes:
        if _state(line) == "pending":
            return tuple(Slot(name) for name in request.slots)
        return tuple(Slot(name, "gone", held.hosts.get(name, "")) for name in request.slots)
    hosts = dict(held.hosts)
    # SLURM's order is the slots' own until a node is lost, which may be before they have told.
    if len(held.allocated) == request.nodes:
        hosts = dict(zip(request.slots, held.allocated, strict=True)) | hosts
    is_claimed = set(held.allocated) <= set(hosts.values())
    return tuple(_slot(name, hosts.get(name, ""), held, is_claimed) for name in request.slots)


def _slot(name: str, host: str, held: HeldNodes, is_claimed: bool) -> Slot:
    """Return the state of one slot of a job that holds nodes.

    Args:
        is_claimed: whether every node that the job holds is known to be a slot's.
    """
    if not host:
        is_gone = is_claimed and bool(held.allocated)
        return Slot(name, "gone", problem=_taken(name)) if is_gone else Slot(name)
    if host not in held.allocated:
        return Slot(name, "gone", host, _taken(host))
    state = held.states.get(host, "").lower()
    if state.endswith("*") or state.startswith(_UNUSABLE):
        return Slot(name, "down", host, _node_lost(cause=f"SLURM says that {host} is {state}"))
    return Slot(name, "up", host)


def _taken(node: str) -> Problem:
    return _node_lost(cause=f"SLURM says that {node} has failed, and took it from the allocation")


def _node_lost(cause: str) -> Problem:
    return Problem(Kind.NODE_LOST, cause=cause, fix=fix_of(Kind.NODE_LOST))


_ENDS: dict[str, Kind] = {
    "TIMEOUT": Kind.TIME_LIMIT,
    "DEADLINE": Kind.TIME_LIMIT,
    "PREEMPTED": Kind.PREEMPTED,
    "REVOKED": Kind.NODES_TAKEN,
    "NODE_FAIL": Kind.NODE_LOST,
    "BOOT_FAIL": Kind.NODE_LOST,
    "OUT_OF_MEMORY": Kind.OUT_OF_MEMORY,
}

_CAUSES: dict[str, str] = {
    "TIMEOUT": "the time limit of the allocation was reached",
    "DEADLINE": "the deadline of the allocation was reached",
    "PREEMPTED": "SLURM took the nodes for a job of higher priority",
    "REVOKED": "another cluster took the job over",
    "NODE_FAIL": "a node of the allocation failed",
    "BOOT_FAIL": "a node of the allocation did not boot",
    "OUT_OF_MEMORY": "a process used more memory than the allocation has",
}


def _beginning_end(line: QueueLine, held: HeldNodes) -> tuple[Outcome | None, Problem | None]:
    """Predict the outcome of a job that is ending, while SLURM only says COMPLETING."""
    if line.state not in _ENDING:
        return None, None
    if line.reason == "TimeLimit":
        return _end(line._replace(state="TIMEOUT"))
    if held.is_preempted:
        return _end(line._replace(state="PREEMPTED"))
    if line.reason.startswith("NodeDown"):
        return _end(line._replace(state="NODE_FAIL"))
    return ("canceled", None) if held.is_signaled else (None, None)


def _end(line: QueueLine) -> tuple[Outcome, Problem | None]:
    if line.state == "COMPLETED":
        return "done", None
    if line.state.startswith("CANCELLED"):
        return "canceled", None
    kind = _ENDS.get(line.state, Kind.NOT_STARTED)
    if kind is not Kind.NOT_STARTED:
        return "failed", Problem(kind, cause=_CAUSES[line.state], fix=fix_of(kind))
    reason = "" if line.reason in ("", "None") else f" ({line.reason})"
    cause = f"SLURM says that it has ended as {line.state}{reason}"
    fix = fix_of(kind, "allocation", folder=line.folder)
    return "failed", Problem(kind, cause=cause, fix=fix)
