"""Save intervals: when the next checkpoint is due, by steps, minutes or how often jobs fail."""

from __future__ import annotations

from math import sqrt
from time import monotonic

from jupyter_mntrain.model import tunables
from jupyter_mntrain.recipe.parts.results import CheckpointSection

GUESSED_SAVE_S = tunables.seconds("train.guessed_save_s")
LEAST_INTERVAL_S = tunables.seconds("train.least_save_interval_s")


class SaveIntervals:
    """Counts the time since the last save, and the time that saves hold training up.

    Args:
        section: may be replaced between two steps.
    """

    def __init__(self, section: CheckpointSection) -> None:
        self.section = section
        self._begun_s = monotonic()
        self._held_up_s: float | None = None

    def saved(self, held_up_s: float) -> None:
        """Begin to count anew.

        Args:
            held_up_s: that the steps waited for this save.
        """
        self._begun_s, self._held_up_s = monotonic(), held_up_s

    @property
    def every_s(self) -> float:
        """Seconds between checkpoints; 0 if steps are counted.

        By failures it is what loses least in all, to saves and to steps that are done again: the
        square root of twice the time of a save times that between failures (Young 1974).
        """
        if hours := self.section.failure_hours:
            save_s = GUESSED_SAVE_S if self._held_up_s is None else self._held_up_s
            return max(LEAST_INTERVAL_S, sqrt(2 * save_s * hours * 3600))
        return 60 * self.section.interval_minutes

    @property
    def is_late(self) -> bool:
        """Whether so much time has passed, if time is counted."""
        every_s = self.every_s
        return bool(every_s) and monotonic() - self._begun_s >= every_s

    def is_due(self, step: int, *, is_time: bool) -> bool:
        """Whether to save after this step.

        Args:
            is_time: rank 0 has found that it :attr:`is_late`; clocks of ranks differ.
        """
        if self.section.counts_time:
            return is_time
        every = self.section.interval_steps
        return bool(every) and step % every == 0
