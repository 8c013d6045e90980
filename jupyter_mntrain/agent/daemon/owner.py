"""Owner: commands that drain, resume and offer the machine, and their effect on running jobs."""

from __future__ import annotations

import re
import secrets
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil

from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.membership.availability import (
    DAY_S,
    OWNER,
    Hours,
    NodeAvailability,
    availability_file,
    drained,
    read_availability,
)
from jupyter_mntrain.agent.membership.service import running_pid
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import SaveRequest
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.events import Warned, WarningOver
from jupyter_mntrain.model.quantities import numbered, parse_duration, parse_size, size_text
from jupyter_mntrain.model.records.node import Availability, Drain, Gpu
from jupyter_mntrain.model.sources.allocation_limits import GPUS
from jupyter_mntrain.telemetry.gpus import gpus_of
from jupyter_mntrain.trust.audit import FILE as AUDIT_FILE
from jupyter_mntrain.trust.audit import Audit
from jupyter_mntrain.trust.shared_file import SharedFile

# Keeping: what the owner's word means for jobs that run.


WARN_BEFORE_S = tunables.seconds("agent.hours_warning_s")
SAVE_BEFORE_S = tunables.seconds("agent.hours_save_s")


class Keeping:
    """Ends or warns running jobs when the node's owner withdraws the machine.

    Args:
        clock: Unix time.
    """

    def __init__(self, node: LocalNode, clock: Callable[[], float] = time.time) -> None:
        self._node = node
        self._word = node.owner
        self._clock = clock
        self._saved: set[tuple[JobId, int]] = set()
        """Attempts that were asked to save."""

    def keep(self) -> None:
        """Check the running jobs. Call at every heartbeat."""
        self._node.check_owner()
        drain, hours = self._word.availability.drain, self._word.hours
        for job in self._node.jobs.active():
            if job.record.is_queued or job.record.part.state == "stopping":
                continue
            if drain is not None and drain.ends_jobs:
                self._end(job, Kind.DRAINED, drained(drain, self._clock()))
            else:
                self._keep_hours(job, hours)

    def _keep_hours(self, job: LocalJob, hours: Hours | None) -> None:
        now_s, is_strict = self._clock(), self._word.availability.is_strict
        left_s = hours.closes_in_s(now_s) if hours is not None else None
        if hours is None or (hours.is_open(now_s) and not (is_strict and left_s is not None)):
            self._warn(job, None)
        elif left_s is not None:
            cause = f"its owner ends the jobs here at {hours.closes_at(now_s)}"
            self._warn(job, cause if left_s <= WARN_BEFORE_S else None)
            if left_s <= SAVE_BEFORE_S:
                self._save(job)
        elif is_strict:
            cause = f"its owner offers it until {hours.ended_at(now_s)}, and ends jobs then"
            self._end(job, Kind.OUT_OF_HOURS, cause)
        else:
            cause = f"runs past the hours it is offered, which ended at {hours.ended_at(now_s)}"
            self._warn(job, cause)

    def _end(self, job: LocalJob, kind: Kind, cause: str) -> None:
        fix = (
            "leave this node out, or launch it with --restarts: it then goes on from its newest "
            "checkpoint when the node takes jobs again"
        )
        node = job.record.part.node
        job.abort(Problem(kind=kind, cause=cause, fix=fix, node=node, time_s=job.now_s()))
        self._node.audit.note("stop", job=job.record.job_id, why=kind, who=OWNER)

    def _warn(self, job: LocalJob, cause: str | None) -> None:
        """Set, replace or clear the warning about the hours at which the node is offered."""
        kind = Kind.OUT_OF_HOURS
        told = [one.cause for one in job.record.part.warnings if one.kind is kind]
        if told == ([] if cause is None else [cause]):
            return
        job.change(WarningOver(kind=kind))
        if cause is not None:
            fix = f"save a checkpoint: mntrain save {job.record.job_id}; or ask the node's owner"
            job.change(Warned(problem=Problem(kind=kind, cause=cause, fix=fix, time_s=job.now_s())))

    def _save(self, job: LocalJob) -> None:
        """Ask for a checkpoint once, on the head only, so that all ranks save the same step."""
        key = (job.record.job_id, job.record.attempt.number)
        if job.placement.node_rank != 0 or key in self._saved:
            return
        self._saved.add(key)
        with suppress(RefusedError, OSError):  # a script that cannot save; a full disk
            job.save_checkpoint(SaveRequest(key=secrets.token_hex(8), attempt=key[1]))


# Owner's actions: ``mntrain agent drain``, ``resume`` and ``offer``, on the machine itself.


LONGEST_REASON = 200
LONGEST_DRAIN_S = 3650 * DAY_S

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})", re.ASCII)


class Asked(Record, frozen=True):
    """A change that the owner asked for.

    Args:
        drain: to set; ``None`` = none.
        is_resume: to take jobs again.
        is_reset: to offer everything.
        changes: fields of :class:`Availability`; without any, what is offered is shown.
    """

    drain: Drain | None = None
    is_resume: bool = False
    is_reset: bool = False
    changes: dict[str, Any] = {}

    @property
    def what(self) -> str:
        """The action's name in the audit log; empty if nothing changes."""
        if self.drain is not None:
            return "drain"
        return "resume" if self.is_resume else "offer" * bool(self.is_reset or self.changes)


def read_asked(action: str, args: Namespace) -> Asked | None:
    """Parse the command line of ``drain``, ``resume`` or ``offer``; ``None`` for other actions.

    Raises:
        SpecError: a time, a GPU or a size is malformed, or options exclude each other.
    """
    if action == "drain":
        if not args.off:
            return Asked(drain=_drain(args, time.time()))
        if args.now or args.until or args.reason:
            raise SpecError("--off cannot be combined with other options", fix="omit the others")
    if action in ("drain", "resume"):
        return Asked(is_resume=True)
    return _offer(args) if action == "offer" else None


def change_availability(asked: Asked, state: Path, node: str) -> tuple[str, dict[str, Any]]:
    """Store a change, and describe what is offered now, for people and for programs.

    The running agent notices within a second; one that starts later, when it starts.

    Raises:
        SpecError: this machine has no such GPU, or the file cannot be read or written.
    """
    file = availability_file(state)
    try:
        with file.locked():
            before = _before(file, asked)
            after = _after(before, asked, state) if asked.what else before
            if asked.what:
                file.write(after)
    except OSError as error:
        raise SpecError(
            f"{file.path} cannot be written: {error.strerror}",
            fix="run this as the agent's user, and check that the disk is not full",
        ) from error
    word = NodeAvailability(state)
    after = word.availability
    lines = [*_first_lines(word, node), *_terms(after)]
    if asked.what:
        about = {} if asked.drain is None else {"reason": asked.drain.reason}
        about |= {"now": "; ".join(lines)}
        Audit(state / AUDIT_FILE).note(asked.what, who=OWNER, **about)
    return "\n".join(lines), {"node": node, **msgspec.to_builtins(after)}


def _before(file: SharedFile[Availability], asked: Asked) -> Availability:
    """Read what was offered until now. If it cannot be read, only a full reset can replace it."""
    try:
        return read_availability(file)
    except SpecError:
        if asked.is_reset:
            return Availability()
        raise


def _after(before: Availability, asked: Asked, state: Path) -> Availability:
    if asked.is_reset:
        return Availability(drain=before.drain)
    if asked.is_resume or asked.drain is not None:
        return msgspec.structs.replace(before, drain=asked.drain)
    after = msgspec.structs.replace(before, **asked.changes)
    if after.is_strict and not after.hours:
        raise SpecError("--strict needs hours", fix='give them, like --hours "22:00-06:00"')
    if "gpus" in asked.changes or "memory_bytes" in asked.changes:
        _check_gpus(after, _environment_of_agent(state))
    return after


def _environment_of_agent(state: Path) -> Mapping[str, str]:
    """Return the running agent's environment: it says which GPUs the agent uses."""
    pid = running_pid(state)
    try:
        return {} if pid is None else psutil.Process(pid).environ()
    except psutil.Error:  # it has ended, or is another user's
        return {}


def _check_gpus(availability: Availability, environment: Mapping[str, str]) -> None:
    reader, visible = gpus_of(environment), environment.get(GPUS)
    gpus = reader.read()
    known = {gpu.index for gpu in gpus}
    unknown = [index for index in availability.gpus or () if index not in known]
    there = f"it has {numbered('GPU', sorted(known))}" if known else f"it has none: {reader.note}"
    if unknown and visible is not None:
        raise SpecError(
            f"the agent cannot use GPU {unknown[0]}: its {GPUS} is {visible!r}; {there}",
            fix=f"give the ids that nodes lists, or start the agent with another {GPUS}",
        )
    if unknown:
        raise SpecError(
            f"this machine has no GPU {unknown[0]}; {there}", fix="give the ids that nodes lists"
        )
    offered = [gpu for gpu in gpus if availability.offers_gpu(gpu.index)]
    if availability.memory_bytes is not None:
        _check_memory(availability.memory_bytes, offered)


def _check_memory(size: int, offered: Sequence[Gpu]) -> None:
    if not offered:
        raise SpecError("--memory is for GPUs, and no GPU is offered", fix="omit it")
    most = max(gpu.memory_total_bytes for gpu in offered)
    if size > most:
        raise SpecError(
            f"no GPU here has {size_text(size)}: the largest has {most / 2**30:.1f} GiB",
            fix="give less, or --memory all",
        )


def _drain(args: Namespace, now_s: float) -> Drain:
    reason = args.reason.strip()
    if len(reason) > LONGEST_REASON or not reason.isprintable():
        raise SpecError(
            "the reason is not one line of text", fix=f"use up to {LONGEST_REASON} characters"
        )
    until_s = _until(args.until, now_s) if args.until is not None else None
    return Drain(since_s=now_s, reason=reason, until_s=until_s, ends_jobs=args.now)


def _until(text: str, now_s: float) -> float:
    """Parse a time of day like 18:00, or a duration, into a Unix time in the future."""
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        try:
            left_s = parse_duration(text)
        except ValueError:
            left_s = 0.0
        if not 0 < left_s <= LONGEST_DRAIN_S:
            raise SpecError(
                f"--until {text} is neither a time of day nor a duration",
                fix="write it like 18:00, 30m, 2h or 3d",
            )
        return now_s + left_s
    hour, minute = int(found[1]), int(found[2])
    if hour > 23 or minute > 59:
        raise SpecError(f"--until {text} is not a time of day", fix="use 00:00 to 23:59")
    now = time.localtime(now_s)
    is_over = (hour, minute) <= (now.tm_hour, now.tm_min)
    # mktime normalizes the day, and knows when clocks change.
    return time.mktime((now.tm_year, now.tm_mon, now.tm_mday + is_over, hour, minute, 0, 0, 0, -1))


def _offer(args: Namespace) -> Asked:
    changes: dict[str, Any] = {}
    if args.hours is not None:
        hours = " ".join(args.hours.split())
        if hours == "always":
            hours = ""
        else:
            Hours(hours)
        changes |= {"hours": hours, "is_strict": args.strict}
    elif args.strict:
        changes["is_strict"] = True
    if args.gpus is not None:
        changes["gpus"] = _gpus(args.gpus)
    if args.memory is not None:
        changes["memory_bytes"] = None if args.memory == "all" else _memory(args.memory)
    if args.all and changes:
        raise SpecError("--all cannot be combined with other options", fix="omit it, or the others")
    return Asked(is_reset=args.all, changes=changes)


def _gpus(text: str) -> tuple[int, ...] | None:
    if text.strip() == "all":
        return None
    words = [] if text.strip() == "none" else [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) <= 3 for word in words):
        raise SpecError(
            f"--gpus {text} is not a list of GPUs", fix="write it like 0,1, all or none"
        )
    return tuple(sorted({int(word) for word in words}))


def _memory(text: str) -> int:
    try:
        size = parse_size(text)
    except ValueError:
        size = 0
    if not 0 < size < 1 << 50:
        raise SpecError(f"--memory {text} is not a size", fix="write it like 20GiB, or all")
    return size


def _first_lines(word: NodeAvailability, node: str) -> list[str]:
    """Say whether the node takes jobs now."""
    drain, refusal = word.availability.drain, word.refusal
    if refusal is None:
        return [f"{node} takes jobs."]
    if drain is None:
        return [f"{node}: {refusal.cause}"]
    running = "Running jobs are ended." if drain.ends_jobs else "Running jobs continue."
    return [
        f"{node}: {refusal.cause}",
        f"It takes no new jobs. {running} To take jobs again: mntrain agent resume",
    ]


def _terms(availability: Availability) -> list[str]:
    at_end = (
        "; jobs are ended then" if availability.is_strict else "; jobs that still run then continue"
    )
    gpus = "all" if availability.gpus is None else ", ".join(map(str, availability.gpus)) or "none"
    size = availability.memory_bytes
    return [
        f"Hours: {availability.hours + at_end if availability.hours else 'always'}",
        f"GPUs: {gpus}{'' if size is None else f', {size_text(size)} of each'}",
    ]
