"""A job in memory that can be renamed, noted and deleted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import msgspec

from jupyter_mntrain.cluster.launch.record_changes import JobRemoval
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.lifecycle.deletion import JobDeletion
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.plan.spec_check import check_label


class LabeledJob(ABC):
    calls: list[tuple[str, Any]]
    silent: tuple[str, ...] = ()
    """Nodes that do not answer."""

    @abstractmethod
    def view(self) -> JobView: ...

    @abstractmethod
    def change_view(self, view: JobView) -> None: ...

    def rename(self, name: str) -> tuple[str, ...]:
        return self._put_label(name=name)

    def note(self, text: str) -> tuple[str, ...]:
        return self._put_label(note=text)

    def plan_removal(self) -> JobRemoval:
        view = self.view()
        if view.state not in TERMINAL:
            raise RefusedError(f"{view.job_id} has not ended", fix="stop it first")
        nodes = tuple(
            JobDeletion(place.node, f"/state/jobs/{view.job_id}", 3 << 20, is_last_of_run=True)
            for place in view.attempt.placements
            if place.node not in self.silent
        )
        return JobRemoval(view.job_id, view.run, nodes, self.silent)

    def remove(self, *, with_checkpoints: bool = False) -> JobRemoval:
        removal = self.plan_removal()
        self.calls.append(("remove", with_checkpoints))
        return removal

    def _put_label(self, **change: str) -> tuple[str, ...]:
        view = self.view()
        label = msgspec.structs.replace(view.label, time_s=view.label.time_s + 1, **change)
        check_label(label)
        spec = msgspec.structs.replace(view.spec, name=label.name or view.spec.name)
        self.change_view(msgspec.structs.replace(view, label=label, spec=spec))
        return self.silent
