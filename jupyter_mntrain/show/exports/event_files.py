"""Event files: a job's series for TensorBoard, in a folder each for the job, ranks and nodes.

https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto/event.proto
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from jupyter_mntrain.metrics.series import Column, JobSeries, LinkColumns
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.text.file_name import file_name

SUFFIX: Final = ".mntrain"
"""Ends the names of our event files: what others wrote into the folder is left alone."""

JOB_TAGS: Final = {
    "loss": "train/loss",
    "tokens_per_s": "train/tokens_per_s",
    "step_s": "train/step_s",
    "mfu": "train/mfu",
    "bubble": "train/bubble",
}
RANK_TAGS: Final = {
    "tokens_per_s": "rank/tokens_per_s",
    "pace_tokens_per_s": "rank/pace_tokens_per_s",
    "step_s": "rank/step_s",
    "mfu": "rank/mfu",
    "compute": "rank/compute_share",
    "coding": "rank/encoding_share",
    "send": "rank/send_share",
    "wait": "rank/wait_share",
    "schedule_bubble": "rank/bubble_share",
    "memory_bytes": "rank/memory_bytes",
}
LINK_TAGS: Final = {
    "sent": "link/sent_bytes_per_s",
    "received": "link/received_bytes_per_s",
    "own_sent": "link/own_sent_bytes_per_s",
    "own_received": "link/own_received_bytes_per_s",
}
"""Tags by column. The trainer's own TensorBoard reporter uses the same names for the job."""


def is_installed() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


class EventFiles:
    """The event files of one job, written once or, while it runs, again and again.

    Args:
        directory: the folder of all jobs, TensorBoard's ``--logdir``.

    Raises:
        SpecError: the folder cannot be written.
    """

    def __init__(self, directory: Path, series: JobSeries) -> None:
        name = f"{file_name(series.summary.name)}-{series.job_id}"
        self.directory = directory / name
        self._writers: dict[str, Any] = {}
        self._until: dict[tuple[str, str], float] = {}
        """Time of the last number written, by folder and tag."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for old in self.directory.rglob(f"events.out.tfevents.*{SUFFIX}"):
                old.unlink()
        except OSError as error:
            cause = f"{self.directory}: cannot be written: {error.strerror}"
            raise SpecError(cause, fix="choose another --output") from None

    def write(self, series: JobSeries) -> int:
        """Write the new rows. Return how many numbers were written."""
        written = self._rows("", JOB_TAGS, _columns(series.job))
        evaluated = {"loss": "evaluation/loss"}
        written += self._rows("", evaluated, _columns(series.evaluation))
        for rank in series.ranks:
            written += self._rows(f"rank {rank.rank}", RANK_TAGS, _columns(rank))
        for link in series.links:
            columns = _columns(link) | {"step": _steps_at(link, series)}
            written += self._rows(f"node {file_name(link.node)}", LINK_TAGS, columns)
        for writer in self._writers.values():
            writer.flush()
        return written

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _rows(self, folder: str, tags: Mapping[str, str], columns: Mapping[str, Column]) -> int:
        written = 0
        for column, tag in tags.items():
            until = self._until.get((folder, tag), -1.0)
            for time_s, step, value in _told(columns, column):
                if time_s <= until:
                    continue
                self._until[folder, tag] = time_s
                self._add(folder, tag, time_s, step, value)
                written += 1
        return written

    def _add(self, folder: str, tag: str, time_s: float, step: int, value: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if folder not in self._writers:
            place = str(self.directory / folder) if folder else str(self.directory)
            self._writers[folder] = EventFileWriter(place, filename_suffix=SUFFIX)
        said = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        self._writers[folder].add_event(Event(wall_time=time_s, step=step, summary=said))


def _columns(record: Any) -> dict[str, Column]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _told(columns: Mapping[str, Column], name: str) -> Iterator[tuple[float, int, float]]:
    """Yield time, step and value of the rows that have all three; NaN and infinity are values."""
    rows = zip(columns["time_s"], columns["step"], columns[name], strict=False)
    for time_s, step, value in rows:
        if time_s is not None and step is not None and value is not None:
            yield float(time_s), int(float(step)), float(value)


def _steps_at(link: LinkColumns, series: JobSeries) -> Column:
    """Return the job's last finished step at each sample of an interface; 0 before the first."""
    steps: list[float] = []
    done = [
        (float(time_s), float(step))
        for time_s, step in zip(series.job.time_s, series.job.step, strict=True)
        if time_s is not None and step is not None
    ]
    at = 0
    for time_s in link.time_s:
        while time_s is not None and at < len(done) and done[at][0] <= float(time_s):
            at += 1
        steps.append(done[at - 1][1] if at else 0.0)
    return tuple(steps)
