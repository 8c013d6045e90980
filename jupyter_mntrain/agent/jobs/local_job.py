"""Job on this node: its record on disk, its journal, its attempt."""

from __future__ import annotations

import logging
import signal
import time
from functools import cached_property
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.attempt.directory import AttemptDirectory, KeeperStatus, has_oom_since
from jupyter_mntrain.agent.attempt.keeper import DEFAULT_GRACE_S
from jupyter_mntrain.agent.attempt.metrics_tail import MetricsTail
from jupyter_mntrain.agent.attempt.processes import (
    KILL_PATIENCE_S,
    describe,
    metrics_of,
    signal_all,
)
from jupyter_mntrain.agent.failure.cause import explain
from jupyter_mntrain.agent.failure.fixes import FIXES
from jupyter_mntrain.agent.failure.foreign_messages import kind_of
from jupyter_mntrain.agent.failure.stacks import StackRequest
from jupyter_mntrain.agent.failure.stall import Watchdog
from jupyter_mntrain.agent.jobs.journal import Journal
from jupyter_mntrain.agent.machine.gpus import GpuReader
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import SaveRequest
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.state import (
    EndWished,
    Exited,
    Launched,
    PartEvent,
    RankDone,
    RankStepped,
    RankUp,
    SavedEvent,
    StopAsked,
    apply,
)
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    JobRecord,
    Leftover,
    Placement,
    Restart,
)
from jupyter_mntrain.model.records.metrics import (
    LinkSample,
    PartChange,
    RankEnd,
    RankEvaluation,
    RankProgress,
    RankSaved,
    RankStart,
    RankStep,
    RankText,
    Sample,
)
from jupyter_mntrain.telemetry.controls import Controls, read_controls, write_controls

log = logging.getLogger("mntrain.agent")

SCAN_INTERVAL_S = tunables.seconds("agent.processes_interval_s")

STEP_PUBLISH_INTERVAL_S = tunables.seconds("agent.step_publish_interval_s")


RELEASE_PATIENCE_S = tunables.seconds("agent.release_patience_s")


class LocalJob:
    """A job's part on this node, kept so that any driver and any later agent can read it.

    Args:
        directory: the job's own.
        record: as it was last kept.
        gpus: asked at the end whether their memory is free again.
        journal: of the job's earlier attempt, if there was one: the numbers go on.
    """

    def __init__(
        self,
        directory: Path,
        record: JobRecord,
        gpus: GpuReader,
        *,
        journal: Journal | None = None,
    ) -> None:
        self.directory = directory
        self.record = record
        number = record.attempt.number
        self.attempt = AttemptDirectory(directory / f"attempt-{number}", record.job_id, number)
        if journal is not None:
            self.journal = journal
        self._gpus = gpus
        self._is_saved = True
        self._trouble = ""
        self._next_scan_s = 0.0
        self._next_publish_s = 0.0
        self._sweep_until_s: float | None = None
        self._release_until_s: float | None = None
        self._watchdog = Watchdog(self.ask_ranks, self.now_s)
        self._has_news = True

    @classmethod
    def load(cls, directory: Path, gpus: GpuReader) -> LocalJob:
        content = (directory / "record.json").read_bytes()
        return cls(directory, msgspec.json.decode(content, type=JobRecord), gpus)

    @cached_property
    def journal(self) -> Journal:
        """Opened when first needed: a hundred ended jobs are not read at every start."""
        return Journal(self.directory / "journal.ndjson")

    @cached_property
    def _tail(self) -> MetricsTail:
        offsets = self.journal.offsets(self.attempt.number)
        return MetricsTail(self.attempt.path / "metrics", offsets)

    @property
    def is_active(self) -> bool:
        return self.record.part.state not in TERMINAL

    @property
    def placement(self) -> Placement:
        node_id = self.record.part.node_id
        return next(p for p in self.record.attempt.placements if p.node_id == node_id)

    def now_s(self) -> float:
        """Unix time as all parts of the attempt tell it."""
        return self.attempt.clock()

    def save(self) -> None:
        write_atomically(self.directory / "record.json", msgspec.json.encode(self.record))

    def change(self, event: PartEvent) -> None:
        """Apply an event; a change of state is kept and journalled, a step only remembered."""
        old, new = self.record.part, apply(self.record.part, event)
        if new is old:
            return
        self.record = msgspec.structs.replace(self.record, part=new)
        self._has_news = True
        if isinstance(event, RankStepped) and new.state == old.state:
            return
        self._is_saved = False
        self._next_publish_s = 0.0
        # A full disk changes nothing about the state: it is kept as soon as that is possible.
        try:
            self._keep()
            self._journal(PartChange(time_s=self.now_s(), part=new))
        except OSError as error:
            self._complain(error)

    def launched(self) -> None:
        self.change(Launched(time_s=self.now_s()))

    def stop(self, reason: str, grace_s: float) -> None:
        """End this part. What has ended by itself meanwhile keeps its own end."""
        if self.attempt.status() is not None:
            self.poll(time.monotonic())
        if not self.is_active:
            return
        self.change(StopAsked(reason=reason))
        if self.record.is_queued:
            self.change(Exited(time_s=self.now_s(), exit_code=None))
        else:
            self.attempt.stop(grace_s)

    def abort(self, problem: Problem) -> None:
        """End this part as failed: the attempt is given up."""
        if self.is_active:
            self.change(StopAsked(reason=str(problem), problem=problem))
            self.attempt.stop(DEFAULT_GRACE_S)

    def save_checkpoint(self, request: SaveRequest) -> None:
        """Pass a wish on to the ranks. The same wish again changes nothing.

        Raises:
            RefusedError: the attempt is over or not the one that is meant, or its ranks do not
                listen.
        """
        part, job_id = self.record.part, self.record.job_id
        if not self.is_active or request.attempt != self.record.attempt.number:
            raise RefusedError(f"attempt {request.attempt} of job {job_id} is over", node=part.node)
        if not part.saves:
            raise RefusedError(
                f"the ranks of job {job_id} do not save on request"
                if part.state == "running"
                else f"job {job_id} has not made a step yet",
                fix="use the built-in trainer with a checkpoint directory, or a ControlReader and "
                "recorder.start(saves=True) in a script"
                if part.state == "running"
                else "try again once it has",
                node=part.node,
            )
        directory = metrics_of(self.attempt.path)
        known = read_controls(directory)
        saves = known.saves if request.key in known.saves else (*known.saves, request.key)
        write_controls(directory, Controls(saves=saves, is_stop=known.is_stop or request.is_last))
        if request.is_last:
            self.change(EndWished(reason=request.reason or "stopped after saving"))
            self.give_up()

    def plan(self, restart: Restart | None) -> None:
        """Say that another attempt is to come, or that it is not known whether."""
        self._set(restart=restart)

    def give_up(self) -> None:
        """No further attempt will come."""
        self._set(restart=None, is_over=True)

    def add_link_sample(self, sample: LinkSample) -> None:
        try:
            self._journal(sample)
        except OSError as error:
            self._complain(error)

    def poll(self, now_s: float) -> None:
        """Read on in everything the attempt writes, and notice its end.

        Args:
            now_s: monotonic seconds.
        """
        if not self.is_active or self.record.is_queued:
            self._keep_again()
            return
        # Asked before the tail: what a rank wrote before the end is read in this same look.
        is_over = self.attempt.status() is not None or not self.attempt.keeper_is_alive()
        try:
            self._keep()
            self._read_metrics(now_s)
            while is_over and self._tail.has_more():
                self._read_metrics(now_s)
        except OSError as error:
            self._complain(error)
        if is_over:
            self._conclude(now_s)
        elif now_s >= self._next_scan_s and self._has_unseen_ranks():
            self._next_scan_s = now_s + SCAN_INTERVAL_S
            for rank, pid in self.attempt.living_ranks():
                self.change(RankUp(rank=rank, pid=pid))
        if self.record.part.state == "running" and (event := self._watchdog.look(now_s)):
            self.change(event)

    @property
    def is_settled(self) -> bool:
        """Ended, and that is on disk."""
        return not self.is_active and self._is_saved

    @property
    def has_news(self) -> bool:
        return self._has_news

    def take_news(self, now_s: float) -> bool:
        """True if readers should be told now; steps are told once a second."""
        if not self._has_news or now_s < self._next_publish_s:
            return False
        self._has_news = False
        self._next_publish_s = now_s + STEP_PUBLISH_INTERVAL_S
        return True

    def close(self) -> None:
        if "journal" in self.__dict__:
            self.journal.close()

    def _keep(self) -> None:
        if not self._is_saved:
            self.save()
            self._is_saved = True

    def _keep_again(self) -> None:
        try:
            self._keep()
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        """Once per reason: this is tried again ten times a second."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            log.warning("job %s cannot be stored on disk: %s", self.record.job_id, error)

    def _set(self, **changes: object) -> None:
        record = msgspec.structs.replace(self.record, **changes)
        if record == self.record:
            return
        self.record = record
        self._has_news, self._is_saved, self._next_publish_s = True, False, 0.0
        self._keep_again()

    def ask_ranks(self) -> list[StackRequest]:
        """Begin to ask every rank that lives what it is at."""
        path = self.attempt.path
        return [StackRequest(path, rank, pid) for rank, pid in self.attempt.living_ranks()]

    def _read_metrics(self, now_s: float) -> None:
        for source, offset, sample in self._tail.read():
            self._journal(sample, source=source, offset=offset)
            if isinstance(sample, RankStart):
                self.change(RankUp(rank=sample.rank, pid=sample.pid, saves=sample.saves))
                self._watchdog.got_on(now_s)
            elif isinstance(sample, RankStep):
                self.change(RankStepped(rank=sample.rank, step=sample.step))
                self._watchdog.stepped(sample.rank, sample.step, sample.step_s, now_s)
            elif isinstance(sample, RankSaved):
                self.change(SavedEvent(step=sample.step))
                self._watchdog.got_on(now_s)
            elif isinstance(sample, RankEnd) and sample.ok:
                self.change(RankDone(rank=sample.rank, time_s=sample.time_s))
            elif isinstance(sample, RankProgress | RankEvaluation | RankText):
                self._watchdog.got_on(now_s)

    def _conclude(self, now_s: float) -> None:
        status = self.attempt.status()
        if status is None and not self._sweep(now_s):
            return
        held = self._gpus.held_by([rank.pid for rank in self.record.part.ranks if rank.pid])
        self._release_until_s = self._release_until_s or now_s + RELEASE_PATIENCE_S
        if held and now_s < self._release_until_s:
            return
        ended_s = status.ended_s if status else self.now_s()
        self.change(
            Exited(
                time_s=ended_s,
                exit_code=status.exit_code if status else None,
                problem=self._blame(status, ended_s),
                leftovers=(*(status.leftovers if status else self._leftovers()), *held),
            )
        )

    def _sweep(self, now_s: float) -> bool:
        """The keeper was killed: its duty falls to us. True when all is done that can be."""
        alive = self.attempt.processes()
        signal_all(alive, signal.SIGKILL)
        self._sweep_until_s = self._sweep_until_s or now_s + KILL_PATIENCE_S
        return not alive or now_s >= self._sweep_until_s

    def _leftovers(self) -> tuple[Leftover, ...]:
        alive = [describe(pid) for pid in sorted(self.attempt.processes())]
        return msgspec.convert(alive, tuple[Leftover, ...])

    def _blame(self, status: KeeperStatus | None, time_s: float) -> Problem | None:
        if self.record.part.state == "stopping":
            return None
        if status is None:
            return self._without_keeper(time_s)
        if status.error is not None:
            return Problem(
                kind=Kind.NOT_STARTED,
                cause=f"torchrun did not start: {status.error}",
                fix=(kind_of(status.error) or ("", ""))[1],
                time_s=time_s,
            )
        if status.exit_code == 0:
            return None
        ranks = [Rank(rank) for rank in self.placement.ranks]
        has_run_out = has_oom_since(self.attempt.identity)
        # torch tells its times by the machine's own clock.
        ahead_s = self.now_s() - time.time()
        downs, problem = explain(
            self.attempt.path, ranks, status.exit_code, time_s - ahead_s, has_run_out=has_run_out
        )
        for down in downs:
            self.change(down)
        ended_s = (problem.time_s or time_s) + ahead_s
        if status.disk_was_full and problem.kind is not Kind.DISK_FULL:
            # Whatever it had to say of its end could not be written.
            problem = msgspec.structs.replace(
                problem,
                kind=Kind.DISK_FULL,
                cause=f"the disk of {self.attempt.path} is full",
                fix=FIXES[Kind.DISK_FULL],
            )
        return msgspec.structs.replace(problem, time_s=ended_s)

    def _without_keeper(self, time_s: float) -> Problem:
        """Nobody kept the exit code."""
        kind, cause = Kind.KEEPER_LOST, "the attempt's keeper was killed: its processes were ended"
        if self.attempt.identity is None:
            cause = "the agent was killed before it could start torchrun"
        elif self.attempt.is_of_another_boot():
            kind, cause = (
                Kind.MACHINE_RESTARTED,
                "the machine was restarted while the job was running",
            )
        return Problem(kind=kind, cause=cause, fix=FIXES[kind], time_s=time_s)

    def _has_unseen_ranks(self) -> bool:
        return any(rank.pid is None for rank in self.record.part.ranks)

    def _journal(
        self, sample: Sample, *, source: str | None = None, offset: int | None = None
    ) -> None:
        self.journal.append(
            sample, attempt=self.record.attempt.number, source=source, offset=offset
        )
