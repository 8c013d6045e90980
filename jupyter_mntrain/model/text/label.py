"""Job label: the name that people give a job, and their note."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record

MOST_NOTE_CHARACTERS = 500


class JobLabel(Record, frozen=True):
    """A job's name and note. Of several labels the newest counts.

    Args:
        name: empty = that of the spec.
        time_s: Unix time at which it was given.
    """

    name: str = ""
    note: str = ""
    time_s: float = 0.0
