"""Samples of a job on this node: the journal, with a downsampled archive next to it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.jobs.samples.archive import Archive, KeptArchive
from jupyter_mntrain.agent.jobs.samples.journal import Journal, JournalIndex
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.lifecycle.events import (
    PartEvent,
    RankDone,
    RankStepped,
    RankUp,
    SavedEvent,
    SettingsTaken,
)
from jupyter_mntrain.model.lifecycle.loss_line import LossLine
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.model.records.metrics import (
    PartChange,
    RankEnd,
    RankSample,
    RankSaved,
    RankSettings,
    RankStart,
    RankStep,
    Sample,
    journal_decoder,
)

# What a rank's sample changes of its part. Pure.


def event_of(sample: RankSample) -> PartEvent | None:
    """Return the event that a sample implies; ``None`` for most samples."""
    match sample:
        case RankStart(rank=rank, pid=pid, saves=saves, resumed_step=resumed):
            return RankUp(rank=rank, pid=pid, saves=saves, resumed_step=resumed)
        case RankStep(rank=rank, step=step):
            return RankStepped(rank=rank, step=step)
        case RankSaved(step=step, time_s=time_s, is_scheduled=is_scheduled, problem=problem):
            return SavedEvent(step, time_s, is_scheduled, problem)
        case RankSettings(change=change):
            return SettingsTaken(change=change)
        case RankEnd(ok=True, rank=rank, time_s=time_s):
            return RankDone(rank=rank, time_s=time_s)
        case _:
            return None


LINES_PER_SAVE = 16384
"""Lines after which the files of downsampled samples are written: a restarted agent reads these
again."""

MOST_REPLAYED = 8 * LINES_PER_SAVE
"""Most lines read at once for a job that lost its archive. With more, only its journal is used."""


class _Saved(Record, frozen=True):
    index: JournalIndex
    archive: KeptArchive


class Samples:
    """All samples, numbered in the journal and downsampled in the archive, in step with each other.

    Args:
        directory: the job's own.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "samples" / "saved.msgpack"
        saved = self._load()
        path = directory / "journal.ndjson"
        self.journal = Journal(path, index=saved.index if saved else None)
        if self.journal.index is None:
            saved = None
        self._saved_seq = 0
        self.archive = self._open(saved) or self._open(None)
        """``None`` if it does not have all lines."""

    def append(
        self, body: Sample, *, attempt: int, source: str | None = None, offset: int | None = None
    ) -> None:
        """Number and store a sample.

        Raises:
            OSError: it could not be written completely; none of it is stored then.
        """
        line = self.journal.append(body, attempt=attempt, source=source, offset=offset)
        if self.archive is None:
            return
        self.archive.take(line, self.journal.size)
        if line.seq - self._saved_seq >= LINES_PER_SAVE or _is_end(body):
            self.save()

    @property
    def loss_line(self) -> LossLine | None:
        """Loss curve of all attempts; ``None`` if there is no loss yet or the archive is lost."""
        return self.archive.losses.line if self.archive else None

    def save(self) -> None:
        """Write the archive, so that the next agent can continue from here."""
        if self.archive is None or self._saved_seq == self.journal.last_seq:
            return
        # Tried again so many lines later: the disk may be full.
        self._saved_seq = self.journal.last_seq
        with suppress(OSError):
            archive = self.archive.save()
            saved = _Saved(index=self.journal.indexed(), archive=archive)
            write_atomically(self._path, msgspec.msgpack.encode(saved))

    def close(self) -> None:
        self.save()
        self.journal.close()

    def _open(self, saved: _Saved | None) -> Archive | None:
        self._saved_seq = saved.index.seq if saved else 0
        if self.journal.last_seq - self._saved_seq > MOST_REPLAYED:
            return None
        try:
            archive = Archive(self._path.parent, saved.archive if saved else None)
        except ValueError:
            return None
        for block, end in self.journal.read(saved.index.size if saved else 0):
            begin = end - len(block)
            for line in block.splitlines(keepends=True):
                begin += len(line)
                with suppress(msgspec.MsgspecError):
                    archive.take(journal_decoder.decode(line), begin)
        return archive

    def _load(self) -> _Saved | None:
        try:
            return msgspec.msgpack.decode(self._path.read_bytes(), type=_Saved)
        except (OSError, msgspec.MsgspecError):
            return None


def _is_end(body: Sample) -> bool:
    return isinstance(body, PartChange) and body.part.state in TERMINAL
