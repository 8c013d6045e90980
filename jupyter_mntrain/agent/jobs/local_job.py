"""Local job: a job's record, journal and attempt on this node."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from jupyter_mntrain.agent.attempt.directory import AttemptDirectory
from jupyter_mntrain.agent.attempt.metrics_tail import MetricsTail
from jupyter_mntrain.agent.attempt.processes import metrics_of
from jupyter_mntrain.agent.failure.gathering import Gathering
from jupyter_mntrain.agent.failure.own_errors import OwnErrors
from jupyter_mntrain.agent.failure.stacks import StackRequest
from jupyter_mntrain.agent.failure.stall import Watchdog
from jupyter_mntrain.agent.jobs.attempt_end import AttemptEnd, Stopping
from jupyter_mntrain.agent.jobs.rank_processes import RankProcesses
from jupyter_mntrain.agent.jobs.rank_requests import ask_to_save, refuse_save
from jupyter_mntrain.agent.jobs.record_file import DiskTrouble, RecordFile
from jupyter_mntrain.agent.jobs.samples.samples import Samples, event_of
from jupyter_mntrain.agent.warnings.slowness.counters import CountersReader
from jupyter_mntrain.agent.warnings.slowness.observer import SlownessObserver
from jupyter_mntrain.agent.warnings.watch import JobWarning, WarningWatch
from jupyter_mntrain.launch.checkpoints.places import checkpoints_of_run
from jupyter_mntrain.model.api import FAILURE_GRACE_S, KillRequest, SaveRequest
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.events import (
    EndWished,
    EvidenceGathered,
    Exited,
    PartEvent,
    RankKilled,
    RankStepped,
    RankUp,
    Stalled,
    StopAsked,
    Warned,
    WarningOver,
)
from jupyter_mntrain.model.lifecycle.state import apply
from jupyter_mntrain.model.records.hidden import hidden_values
from jupyter_mntrain.model.records.job import JobRecord, Placement, Restart
from jupyter_mntrain.model.records.metrics import (
    LinkSample,
    PartChange,
    RankEnd,
    RankProgress,
    RankSample,
    RankStep,
    Sample,
)
from jupyter_mntrain.model.text.label import JobLabel
from jupyter_mntrain.telemetry.gpus import GpuReader


class LocalJob:
    """A job's part on this node, stored so that any driver and any later agent can read it.

    Args:
        directory: the job's own.
        record: as it was last stored.
        gpus: tells, at the end, whether their memory is free again.
        samples: those of the job's earlier attempt, if there was one: their numbers continue.
        errors: the agent's own.
    """

    def __init__(
        self,
        directory: Path,
        record: JobRecord,
        gpus: GpuReader,
        *,
        samples: Samples | None = None,
        errors: OwnErrors | None = None,
    ) -> None:
        self.directory = directory
        self.file = RecordFile(directory, record)
        self.job_id, self._number = record.job_id, record.attempt.number
        if samples is not None:
            self.samples = samples
        self._gpus, self._errors, self._is_broken = gpus, errors or OwnErrors(), False
        self._is_read, self._is_told = True, True
        """Whether the journal has all lines of ranks, and the part as it is now: a disk may have
        refused them."""

    # Made on first use: a node keeps a thousand ended jobs, and needs nothing more of theirs.
    @cached_property
    def attempt(self) -> AttemptDirectory:
        path = self.directory / f"attempt-{self._number}"
        return AttemptDirectory(path, self.job_id, self._number)

    @cached_property
    def samples(self) -> Samples:
        return Samples(self.directory)

    @cached_property
    def gathering(self) -> Gathering:
        return Gathering(self.attempt, lambda: self.record, self._gpus, self._errors)

    @cached_property
    def _end(self) -> AttemptEnd:
        return AttemptEnd(self.attempt, self._gpus)

    @cached_property
    def _disk(self) -> DiskTrouble:
        return DiskTrouble(self.job_id)

    @cached_property
    def _processes(self) -> RankProcesses:
        return RankProcesses(self.attempt)

    @cached_property
    def _stopping(self) -> Stopping:
        return Stopping(self.attempt, self._end)

    @cached_property
    def _tail(self) -> MetricsTail:
        offsets = self.samples.journal.offsets(self.attempt.number)
        return MetricsTail(self.attempt.path / "metrics", offsets)

    @cached_property
    def _watchdog(self) -> Watchdog:
        return Watchdog(self.ask_ranks, self.now_s)

    @cached_property
    def _watch(self) -> WarningWatch:
        record = self.record
        checkpoints = checkpoints_of_run(self.directory.parent, record.run)
        log = self.attempt.path / "log"
        return WarningWatch(record.spec, record.attempt, self.placement, log, checkpoints)

    @cached_property
    def _slowness(self) -> SlownessObserver:
        reader = CountersReader(self.record.attempt, self.placement, self._gpus)
        return SlownessObserver(reader, self.ask_ranks, self.now_s)

    @cached_property
    def secrets(self) -> tuple[str, ...]:
        """Values that read-only drivers must not see. They are cached, as a spec never changes."""
        return hidden_values(self.record.spec)

    @property
    def record(self) -> JobRecord:
        return self.file.record

    @property
    def is_active(self) -> bool:
        return self.file.is_active

    @property
    def is_final(self) -> bool:
        """Whether the job has ended and everything is written to disk."""
        is_stored = self.file.is_written and self._is_read and self._is_told
        return is_stored and not self.is_active

    @property
    def placement(self) -> Placement:
        node_id = self.record.part.node_id
        return next(p for p in self.record.attempt.placements if p.node_id == node_id)

    def now_s(self) -> float:
        """Return Unix time, by the clock that all parts of the attempt share."""
        return self.attempt.clock()

    def change(self, event: PartEvent) -> None:
        """Apply an event. State changes are written and journaled; steps only update the record."""
        match event:
            case Warned(problem=problem) if problem.time_s is None:
                dated = msgspec.structs.replace(problem, time_s=self.now_s())
                event = msgspec.structs.replace(event, problem=dated)
            case WarningOver(time_s=None):
                event = msgspec.structs.replace(event, time_s=self.now_s())
        old, new = self.record.part, apply(self.record.part, event)
        if new is old:
            return
        is_progress = isinstance(event, RankStepped) and new.state == old.state
        self.file.update(is_progress=is_progress, part=new)
        if is_progress:
            return
        self._is_told = False
        self._store()

    def stop(self, reason: str, grace_s: float, *, after_failure: bool = False) -> None:
        """End this part. A part that has ended meanwhile keeps its own outcome.

        Args:
            after_failure: another part has failed; otherwise a person wants it.
        """
        while self.attempt.status() is not None and self.poll(time.monotonic()):
            pass  # it may have ended by itself
        if not self.is_active:
            return
        self.change(StopAsked(reason=reason, time_s=self.now_s(), after_failure=after_failure))
        self._stop(grace_s)

    def abort(self, problem: Problem, grace_s: float = FAILURE_GRACE_S) -> None:
        """End this part as failed."""
        if self.is_active:
            self.change(StopAsked(reason=str(problem), problem=problem, time_s=self.now_s()))
            self._stop(grace_s)

    def fail(self, problem: Problem) -> None:
        """End this part as failed at once, without reading any more of its files."""
        if self._is_broken:  # its end cannot be followed either
            self.change(Exited(time_s=self.now_s(), exit_code=None))
        elif self.is_active:
            self._is_broken = True
            self.change(StopAsked(reason=str(problem), problem=problem, time_s=self.now_s()))
            self._stop(0.0)

    def save_checkpoint(self, request: SaveRequest) -> None:
        """Ask the ranks to save a checkpoint. Idempotent.

        Raises:
            RefusedError: the attempt has ended, another one is running, or the ranks do not
                take requests.
        """
        refuse_save(request, self.record)
        ask_to_save(request, metrics_of(self.attempt.path))
        if request.is_last:
            self.change(EndWished(reason=request.reason or "stopped after saving"))
            self.give_up()

    def kill_rank(self, rank: Rank, request: KillRequest) -> None:
        """Kill one rank's process. Idempotent.

        Raises:
            RefusedError: the attempt has ended, another one is running, or the rank is not here.
        """
        is_ours = self.is_active and request.attempt == self.record.attempt.number
        if is_ours and any(one.rank == rank and one.kill_reason for one in self.record.part.ranks):
            return
        pid = self.attempt.kill_rank(rank) if is_ours else None
        if pid is None:
            raise RefusedError(
                f"rank {rank} of job {self.record.job_id} is not running here",
                fix=f"see where its ranks run: mntrain status {self.record.job_id}",
                node=self.record.part.node,
            )
        self.change(RankUp(rank=rank, pid=pid))
        self.change(RankKilled(rank=rank, reason=request.reason))

    def put_label(self, label: JobLabel) -> None:
        """Name the job. A label that is not newer than the current one changes nothing."""
        if label.time_s > self.record.label.time_s:
            self.update(label=label)

    def plan(self, restart: Restart | None) -> None:
        """Record that another attempt will follow; ``None`` means not known yet."""
        self.update(restart=restart)

    def give_up(self) -> None:
        """Record that no further attempt will follow."""
        self.update(restart=None, is_over=True)

    def add_samples(self, *samples: LinkSample | RankProgress) -> None:
        with self._disk.tolerated():
            for sample in samples:
                self._journal(sample)

    def poll(self, now_s: float) -> bool:
        """Read what the attempt has written, and detect its end. Returns whether there is more to
        read.

        Args:
            now_s: monotonic seconds.
        """
        self._store(is_over=not self.is_active)
        if not self.is_active or self.record.is_queued:
            return self._read_rest(now_s)
        # Checked before the tail is read: all that a rank wrote before the end is read before it.
        is_over, is_behind = self._end.has_begun, False
        self._is_read = False
        with self._disk.tolerated():
            self._read_metrics(now_s)
            is_behind = self._has_more
            self._is_read = True
        is_over = is_over and not is_behind
        if is_over or self.record.part.state == "stopping":
            self._look_at_end(now_s, is_over=is_over)
        looked = self._processes.look(self.record.part, now_s, may_begin=not is_over)
        for seen in () if is_behind else looked:
            self.change(seen)
            if isinstance(seen, RankUp):
                self._watchdog.began(now_s)
        if self.record.part.state == "running" and (stall := self._watchdog.look(now_s)):
            if isinstance(stall, Stalled):
                self._gather_again()
            self.change(stall)
        if (progress_s := self._watchdog.progress_s) is not None:
            self.gathering.note_progress(progress_s)
        if (pace := self._slowness.look(self.record.part)) is not None:
            self.file.note(pressure=pace.pressure)
            self.add_samples(*pace.loading)
            self._watchdog.exchanged(pace.exchanged_bytes, now_s)
        return is_behind

    def _gather_again(self) -> None:
        """Gather evidence again, as old as the stall's stacks. The gang watch tries the links again
        itself.
        """
        before, found = self.record.part.evidence, self.gathering.evidence()
        links = before.links if before else None
        self.change(EvidenceGathered(evidence=msgspec.structs.replace(found, links=links)))

    def _look_at_end(self, now_s: float, *, is_over: bool) -> None:
        if self.record.part.state == "stopping" and (waits := self._stopping.look(now_s)):
            self.change(waits)
        for event in self._end.look(self.record.part, now_s) if is_over else ():
            if isinstance(event, Exited):  # in the same moment: the end is never without it
                self._before_end(event)
            self.change(event)

    def _stop(self, grace_s: float) -> None:
        if not self.record.is_queued:
            return self._stopping.ask(grace_s)
        return self.change(Exited(time_s=self.now_s(), exit_code=None))

    def ask_ranks(self) -> list[StackRequest]:
        """Ask every live rank for its stacks."""
        return [StackRequest(self.attempt.path, *one) for one in self.attempt.living_ranks()]

    def close(self) -> None:
        if "samples" in self.__dict__:
            self.samples.close()

    def rest(self) -> None:
        """Release all but the record of a job that has ended: its supervisor, files and cached
        data. They are loaded again when needed.
        """
        made = self.__dict__.keys() & _MADE
        supervisor = self.attempt.supervisor if "attempt" in made else None
        if supervisor is not None and supervisor.poll() is None:
            return  # it has said how the attempt ended, and is about to end itself
        self.close()
        for name in made:
            del self.__dict__[name]

    def _before_end(self, end: Exited) -> None:
        """Gather evidence for the record, unless the part ended well or was stopped."""
        part = self.record.part
        is_wished, is_good = part.state == "stopping", end.exit_code == 0 and end.problem is None
        if end.exit_code == 0 and not is_wished:
            self._warn(self._watch.at_good_end(part))
        if part.stopped_after_failure or not (is_good or is_wished):
            self.change(EvidenceGathered(evidence=self.gathering.evidence()))

    def update(self, **changes: Any) -> None:
        self.file.update(**changes)
        with self._disk.tolerated():
            self.file.write_changes()

    def _store(self, *, is_over: bool = False) -> None:
        """Write the record, and the part to the journal, unless they are up to date.

        Args:
            is_over: what ranks wrote before the end comes first.
        """
        with self._disk.tolerated():
            self.file.write_changes()
        if self._is_told or (is_over and not self._is_read):
            return
        with self._disk.tolerated():
            self._journal(PartChange(time_s=self.now_s(), part=self.record.part))
            self._is_told = True

    def _read_rest(self, now_s: float) -> bool:
        """Read samples that the full disk could not take before the end. Returns whether there is
        more.
        """
        is_behind = False
        with self._disk.tolerated():
            if not self._is_read:
                self._read_metrics(now_s)
                is_behind = self._has_more
                self._is_read = not is_behind
        return is_behind

    @property
    def _has_more(self) -> bool:
        return not self._is_broken and self._tail.has_more()

    def _read_metrics(self, now_s: float) -> None:
        taken: list[RankSample] = []
        try:
            for source, offset, sample in () if self._is_broken else self._tail.read():
                self._journal(sample, source=source, offset=offset)
                self._take(sample, now_s)
                taken.append(sample)
            self.file.note(loss_line=self.samples.loss_line or self.record.loss_line)
        finally:  # also if the disk is full
            self._warn(self._watch.see(taken, self.record.part))

    def _warn(self, found: Iterable[JobWarning]) -> None:
        for warning in found:
            self.change(warning)
            if problem := self._watch.reason_to_end(warning):
                self.abort(problem)

    def _take(self, sample: RankSample, now_s: float) -> None:
        self._slowness.reports(sample.rank)
        if (event := event_of(sample)) is not None:
            self.change(event)
        if isinstance(sample, RankStep):
            self._watchdog.stepped(sample.rank, sample.step, sample.step_s, now_s)
            self._slowness.take(sample)
        elif not isinstance(sample, RankEnd):
            self._watchdog.got_on(now_s)

    def _journal(
        self, sample: Sample, *, source: str | None = None, offset: int | None = None
    ) -> None:
        self.samples.append(sample, attempt=self._number, source=source, offset=offset)


_MADE = frozenset(name for name, one in vars(LocalJob).items() if isinstance(one, cached_property))
"""What a job makes on first use."""
