"""Labeled job: name, note and deletion of a job."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from jupyter_mntrain.cluster.launch.record_changes import (
    JobRemoval,
    plan_removal,
    put_label,
    remove,
)
from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.model.records.job import JobView
from jupyter_mntrain.model.text.label import JobLabel
from jupyter_mntrain.plan.spec_check import check_label


class LabeledJob(ABC):
    """What people call a job, and how it is deleted; see :class:`jupyter_mntrain.Job`."""

    _driver: DriverSession

    @abstractmethod
    def view(self) -> JobView:
        """The job now."""

    def rename(self, name: str) -> tuple[str, ...]:
        """Give the job another name, on every node that has it; empty = the first one again.

        Returns:
            names of participants that do not answer: repeat it once they do.

        Raises:
            SpecError: the name is too long, or cannot be shown.
            NodeError: no node answers.
        """
        return self._put_label(name=name)

    def note(self, text: str) -> tuple[str, ...]:
        """Keep a note with the job; empty = none. Otherwise like :meth:`rename`."""
        return self._put_label(note=text)

    def plan_removal(self) -> JobRemoval:
        """What :meth:`remove` would delete. Asks its nodes, and deletes nothing.

        Raises:
            RefusedError: the job has not ended.
            NodeError: no node answers.
        """
        return self._driver.loop.run(plan_removal(self._driver.live, self.view()))

    def remove(self, *, with_checkpoints: bool = False) -> JobRemoval:
        """Delete the job's record, samples and logs on every node that answers.

        Args:
            with_checkpoints: also those of its run, in the nodes' own directories, on each node
                where it is the last job of the run. Otherwise they stay.

        Raises:
            RefusedError: the job has not ended, or this driver is read-only.
            NodeError: no node answers.
        """
        self._driver.refuse_read_only()
        live = self._driver.live
        return self._driver.loop.run(remove(live, self.view(), with_checkpoints=with_checkpoints))

    def _put_label(self, **change: str) -> tuple[str, ...]:
        self._driver.refuse_read_only()
        view, now_s = self.view(), self._driver.clock.time()
        # Newer than any it replaces, also if another driver's clock is ahead.
        time_s = max(now_s, view.label.time_s + 1e-3)
        label: JobLabel = msgspec.structs.replace(view.label, time_s=time_s, **change)
        check_label(label)
        return self._driver.loop.run(put_label(self._driver.live, view, label))
