"""Control file: requests to a running job, which its ranks read when it changes.

The agent writes it and every rank reads its own node's; the trainer makes all ranks act on it at
the same step. Imports no torch, so any script can use it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import METRICS_VARIABLE
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.lifecycle.running_changes import SettingsRequest

CONTROLS_FILE = "controls.json"


class Controls(Record, frozen=True):
    """The requests to an attempt so far.

    Args:
        saves: the key of each requested save; a repeated key counts once.
        is_stop: save once more, and end.
        settings: each requested change of settings, in the order to make them.
    """

    saves: tuple[str, ...] = ()
    is_stop: bool = False
    settings: tuple[SettingsRequest, ...] = ()


def read_controls(directory: Path) -> Controls:
    """Read the control file in an attempt's metrics directory; without one, return none."""
    try:
        return msgspec.json.decode((directory / CONTROLS_FILE).read_bytes(), type=Controls)
    except (OSError, msgspec.MsgspecError):
        return Controls()


def write_controls(directory: Path, controls: Controls) -> None:
    """Write the control file for the ranks of this node.

    Raises:
        OSError: the disk is full.
    """
    write_atomically(directory / CONTROLS_FILE, msgspec.json.encode(controls))


class ControlReader:
    """Reads the requests to a rank's attempt.

    In your own script::

        wishes = ControlReader()
        for batch in batches:
            train(batch)
            if wishes.wants_save() or wishes.wants_stop():
                save()

    With several ranks, let rank 0 read and broadcast: a request may reach one node a step earlier
    than another.

    Args:
        directory: instead of ``$MNTRAIN_METRICS_DIR``; without either, nothing is ever requested.
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
        self._settings_taken = 0

    def wants_save(self) -> bool:
        """Whether a requested save has not been made yet."""
        return len(self._read().saves) > self._saves_done

    def wants_stop(self) -> bool:
        """Whether the job should save and end."""
        return self._read().is_stop

    def saved(self) -> None:
        """Confirm the saves that were requested so far."""
        self._saves_done = len(self._controls.saves)

    def settings(self) -> tuple[SettingsRequest, ...]:
        """Return requested changes of settings that are not yet applied. Only for the trainer."""
        return self._read().settings[self._settings_taken :]

    def took_settings(self, count: int) -> None:
        """Confirm the first ``count`` of :meth:`settings`."""
        self._settings_taken += count

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
