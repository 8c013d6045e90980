"""Shown checks: what the page asks the doctor, and the answer."""

from __future__ import annotations

from jupyter_mntrain.doctor.every import EVERY
from jupyter_mntrain.doctor.finding import DoctorReport
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import JobId


class DoctorRequest(Record, frozen=True, forbid_unknown_fields=True):
    """Nodes by name; empty = all, also silent ones, or those of the job.

    Args:
        job: also look for what it reads and writes.
    """

    nodes: tuple[str, ...] = ()
    job: JobId | None = None


class CheckTitle(Record, frozen=True):
    """A row of the doctor's table."""

    id: str
    title: str


class DoctorAnswer(Record, frozen=True):
    """The doctor's report, and all checks in their order."""

    report: DoctorReport
    checks: tuple[CheckTitle, ...]


TITLES = tuple(CheckTitle(id=check.id, title=check.title) for check in EVERY)
