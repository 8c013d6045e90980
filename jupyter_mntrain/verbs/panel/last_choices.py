"""Last choices: stores what was last launched with each recipe."""

from __future__ import annotations

from pathlib import Path

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.whereabouts import kept_folder
from jupyter_mntrain.trust.shared_file import SharedFile
from jupyter_mntrain.verbs.panel.choices import Choices

MOST_RECIPES = 100
"""Recipes that the panel lists, and recipes whose last choices it remembers; of those, the one
that was launched longest ago is dropped first."""


class Remembered(Record, frozen=True):
    """Choices, the Unix time of their launch, and the job."""

    choices: Choices
    launched_s: float
    job: JobId | None = None


class Memory:
    """Stores last choices in a file, mode 0600. Several kernels may share it.

    Args:
        path: default: ``panel.json`` in the user's state directory.
    """

    def __init__(self, path: Path | None = None) -> None:
        path = path or kept_folder("state") / "panel.json"
        self._file = SharedFile(path, dict[str, Remembered], what="the panel's last choices")

    def all(self) -> dict[str, Remembered]:
        """Return all stored choices by :attr:`Target.key`, newest first.

        Raises:
            SpecError: the file was damaged.
        """
        return self._file.read()

    def remember(self, key: str, choices: Choices, *, job: JobId, now_s: float) -> None:
        """Store the choices of a launch, without acknowledgments, which were for that launch only.

        Those are of versions that differ and of what the doctor found.
        """
        choices = msgspec.structs.replace(choices, mixed_versions=False, skips_doctor=False)
        with self._file.locked():
            known = {key: Remembered(choices=choices, launched_s=now_s, job=job)}
            known |= {other: one for other, one in self.all().items() if other != key}
            self._file.write(dict(list(known.items())[:MOST_RECIPES]))

    def forget(self, key: str) -> None:
        """Delete the stored choices of a recipe."""
        with self._file.locked():
            known = self.all()
            if known.pop(key, None):
                self._file.write(known)
