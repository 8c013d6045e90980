"""One job on this node: its record on disk, its journal, its attempt."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.attempt import AttemptDirectory
from jupyter_mntrain.agent.cause import explain
from jupyter_mntrain.agent.files import write_atomically
from jupyter_mntrain.agent.journal import Journal
from jupyter_mntrain.agent.processes import end_all
from jupyter_mntrain.agent.tail import MetricsTail
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.job import TERMINAL, Cause, JobRecord, Placement
from jupyter_mntrain.model.metrics import LinkSample, PartChange, RankStart, RankStep, Sample
from jupyter_mntrain.model.state import (
    Exited,
    Launched,
    PartEvent,
    RankStepped,
    RankUp,
    StopAsked,
    apply,
)

SCAN_INTERVAL_S = 1.0
"""Between looks for rank processes in /proc, only until every rank was seen."""

STEP_PUBLISH_INTERVAL_S = 1.0
"""Readers of the node's stream see progress once a second; the journal has every step."""


class LocalJob:
    """A job's part on this node, kept so that any driver and any later agent can read it."""

    def __init__(self, directory: Path, record: JobRecord) -> None:
        self.directory = directory
        self.record = record
        self.journal = Journal(directory / "journal.ndjson")
        number = record.attempt.number
        self.attempt = AttemptDirectory(directory / f"attempt-{number}", record.job_id, number)
        offsets = {s: o for (n, s), o in self.journal.offsets.items() if n == number}
        self._tail = MetricsTail(self.attempt.path / "metrics", offsets)
        self._next_scan_s = 0.0
        self._next_publish_s = 0.0
        self._has_news = True

    @classmethod
    def create(cls, directory: Path, record: JobRecord) -> LocalJob:
        directory.mkdir(parents=True, exist_ok=True)
        job = cls(directory, record)
        job.save()
        return job

    @classmethod
    def load(cls, directory: Path) -> LocalJob:
        content = (directory / "record.json").read_bytes()
        return cls(directory, msgspec.json.decode(content, type=JobRecord))

    @property
    def is_active(self) -> bool:
        return self.record.part.state not in TERMINAL

    @property
    def placement(self) -> Placement:
        node_id = self.record.part.node_id
        return next(p for p in self.record.attempt.placements if p.node_id == node_id)

    def save(self) -> None:
        write_atomically(self.directory / "record.json", msgspec.json.encode(self.record))

    def change(self, event: PartEvent) -> None:
        """Apply an event; a change of state is saved and journalled, a step only remembered."""
        old, new = self.record.part, apply(self.record.part, event)
        if new is old:
            return
        self.record = msgspec.structs.replace(self.record, part=new)
        self._has_news = True
        if isinstance(event, RankStepped) and new.state == old.state:
            return
        self.save()
        self._journal(PartChange(time_s=time.time(), part=new))
        self._next_publish_s = 0.0

    def launched(self) -> None:
        self.change(Launched(time_s=time.time()))

    def stop(self, reason: str, grace_s: float) -> None:
        """End this part. Before any start it is over at once."""
        if not self.is_active:
            return
        self.change(StopAsked(reason=reason))
        if self.attempt.keeper is None and not self.attempt.keeper_is_alive():
            if self.attempt.status() is None and not self.attempt.has_processes():
                self.change(Exited(time_s=time.time(), exit_code=None))
            return
        self.attempt.stop(grace_s)

    def add_link_sample(self, sample: LinkSample) -> None:
        self._journal(sample)

    def poll(self, now_s: float) -> None:
        """Read on in everything the attempt writes, and notice its end.

        Args:
            now_s: monotonic seconds.
        """
        # Asked before the tail: what a rank wrote before the end is read in this same look.
        is_over = self.attempt.status() is not None or not self.attempt.keeper_is_alive()
        self._read_metrics()
        if is_over:
            self._conclude()
        elif now_s >= self._next_scan_s and self._has_unseen_ranks():
            self._next_scan_s = now_s + SCAN_INTERVAL_S
            for rank, pid in self.attempt.living_ranks():
                self.change(RankUp(rank=rank, pid=pid))

    def take_news(self, now_s: float) -> bool:
        """True if readers should be told now; steps are told once a second."""
        if not self._has_news or now_s < self._next_publish_s:
            return False
        self._has_news = False
        self._next_publish_s = now_s + STEP_PUBLISH_INTERVAL_S
        return True

    def close(self) -> None:
        self.journal.close()

    def remove(self) -> None:
        self.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _read_metrics(self) -> None:
        for source, offset, sample in self._tail.read():
            self._journal(sample, source=source, offset=offset)
            if isinstance(sample, RankStart):
                self.change(RankUp(rank=sample.rank, pid=sample.pid))
            elif isinstance(sample, RankStep):
                self.change(RankStepped(rank=sample.rank, step=sample.step))

    def _conclude(self) -> None:
        now = time.time()
        status = self.attempt.status()
        if status is None:
            # The keeper was killed: its duty falls to us.
            end_all(self.attempt.path, grace_s=0.0)
        exit_code = status.exit_code if status else None
        ended_s = status.ended_s if status else now
        cause = self._blame(status.error if status else None, exit_code, ended_s)
        self.change(
            Exited(
                time_s=ended_s,
                exit_code=exit_code,
                cause=cause,
                leftovers=status.leftovers if status else (),
            )
        )

    def _blame(self, error: str | None, exit_code: int | None, time_s: float) -> Cause | None:
        if exit_code == 0 or self.record.part.state == "stopping":
            return None
        if error is not None:
            return Cause(summary=f"torchrun did not start: {error}", time_s=time_s)
        ranks = [Rank(rank) for rank in self.placement.ranks]
        downs, cause = explain(self.attempt.path, ranks, exit_code, time_s)
        for down in downs:
            self.change(down)
        return cause

    def _has_unseen_ranks(self) -> bool:
        return any(rank.pid is None for rank in self.record.part.ranks)

    def _journal(
        self, sample: Sample, *, source: str | None = None, offset: int | None = None
    ) -> None:
        self.journal.append(
            sample, attempt=self.record.attempt.number, source=source, offset=offset
        )
