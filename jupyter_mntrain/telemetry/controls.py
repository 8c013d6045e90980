"""Control file: requests to a running job, read when it changes.

An agent writes it, every rank reads its own node's; the trainer has all ranks agree before any of
them acts. Imports no torch, so a script of one's own can use it, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import METRICS_VARIABLE
from jupyter_mntrain.model.files import write_atomically

CONTROLS_FILE = "controls.json"


class Controls(Record, frozen=True):
    """What was asked of an attempt so far.

    Args:
        saves: a key for each save that was asked for: asked for twice with one key is once.
        is_stop: save once more and end.
    """

    saves: tuple[str, ...] = ()
    is_stop: bool = False


def read_controls(directory: Path) -> Controls:
    """What stands in an attempt's directory of samples; nothing asked if there is nothing."""
    try:
        return msgspec.json.decode((directory / CONTROLS_FILE).read_bytes(), type=Controls)
    except (OSError, msgspec.MsgspecError):
        return Controls()


def write_controls(directory: Path, controls: Controls) -> None:
    """For the ranks of this node to find.

    Raises:
        OSError: the disk is full.
    """
    write_atomically(directory / CONTROLS_FILE, msgspec.json.encode(controls))


class ControlReader:
    """A rank's eye on what is asked of its attempt.

    In a script of one's own::

        wishes = ControlReader()
        for batch in batches:
            train(batch)
            if wishes.wants_save() or wishes.wants_stop():
                save()

    In a job of several ranks let rank 0 read and tell the others, as by an all-reduce: one node
    hears of it a step before another.

    Args:
        directory: instead of ``$MNTRAIN_METRICS_DIR``; without either nothing is ever asked.
    """

    def __init__(
        self, directory: Path | None = None, *, environment: Mapping[str, str] = os.environ
    ) -> None:
        if directory is None and environment.get(METRICS_VARIABLE):
            directory = Path(environment[METRICS_VARIABLE])
        self._directory = directory
        self._changed_ns = 0
        self._controls = Controls()
        self._saves_done = 0

    def wants_save(self) -> bool:
        """Whether somebody asked for a save that was not made yet."""
        return len(self._read().saves) > self._saves_done

    def wants_stop(self) -> bool:
        """Whether somebody asked to save and end."""
        return self._read().is_stop

    def saved(self) -> None:
        """What was asked for up to now is done."""
        self._saves_done = len(self._controls.saves)

    def _read(self) -> Controls:
        if self._directory is None:
            return self._controls
        try:
            changed_ns = (self._directory / CONTROLS_FILE).stat().st_mtime_ns
        except OSError:
            return self._controls
        if changed_ns != self._changed_ns:
            self._changed_ns = changed_ns
            self._controls = read_controls(self._directory)
        return self._controls
