"""Job in memory: as a driver's handle of one, for verbs and live views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from jupyter_mntrain.cluster import JobHistory, JobSummary, LogLine
from jupyter_mntrain.cluster.history.logs import placements_with
from jupyter_mntrain.cluster.launch.record_changes import SettingsChanged
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.launch.settings import settings_of_job
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.lifecycle.saves import requested_save
from jupyter_mntrain.model.records.checkpoint import SavedStep
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec, JobState, JobView
from jupyter_mntrain.model.records.plan import Plan
from jupyter_mntrain.model.records.setting import Setting
from tests.standin.chat import StandInChat
from tests.standin.jobs import MACHINE
from tests.standin.labeled import LabeledJob
from tests.standin.rank_session import StandInSession
from tests.standin.resuming import ResumableJob
from tests.standin.training import Sample


class StandInJob(ResumableJob, LabeledJob):
    """Ends when it is waited for, in the state it was made with."""

    def __init__(self, sample: Sample, *, ends_as: JobState | None = None) -> None:
        self._sample = sample
        self._ends_as = ends_as
        self.id = sample.history.view.job_id
        self.calls: list[tuple[str, Any]] = []
        self.interrupts_wait = False
        self.refuses_save: MntrainError | None = None
        self.on_save: Callable[[], None] = lambda: None
        self.changed = SettingsChanged()
        self.cluster = "lab"
        self.at: dict[str, Any] = {}
        self.cells = StandInSession()
        self.lines = [
            LogLine(node="wopr", rank=None, text="torchrun is up"),
            LogLine(node="wopr", rank=0, text="step 1 loss 7.1"),
            LogLine(node="muthur", rank=1, text="step 1"),
        ]

    @property
    def state(self) -> JobState:
        return self._sample.history.view.state

    def view(self) -> JobView:
        return self._sample.history.view

    def session(self) -> StandInSession:
        return self.cells

    def settings(self) -> tuple[Setting, ...]:
        return settings_of_job(self.spec(), self.view().run)

    def spec(self) -> JobSpec:
        return self.view().spec

    def watch(self) -> None:
        self.calls.append(("watch", None))

    def history(self) -> JobHistory:
        return self._sample.history

    def summary(self) -> JobSummary:
        return self._sample.summary

    def serving_url(self, timeout_s: float | None = None) -> None:
        """It trains."""

    def series(self, points: int = 0) -> JobSeries:
        return self._sample.series

    def subscribe(self, tell: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    def become(self, state: JobState) -> None:
        view = self.view()
        ended_s = self._sample.now_s if state in TERMINAL else None
        change = {"state": state, "ended_s": ended_s}
        parts = tuple(msgspec.structs.replace(part, **change) for part in view.parts)
        self.change_view(msgspec.structs.replace(view, state=state, parts=parts))

    def take_plan(self, chosen: dict[str, str], plan: Plan | None) -> None:
        """As a job that was launched with this plan."""
        view = self.view()
        spec = msgspec.structs.replace(view.spec, chosen=chosen)
        attempt = msgspec.structs.replace(view.attempt, plan=plan)
        self.change_view(msgspec.structs.replace(view, spec=spec, attempt=attempt))

    def change_view(self, view: JobView) -> None:
        old = self._sample.history
        history = JobHistory(view=view, ranks=old.ranks, links=old.links, is_complete=True)
        self._sample = Sample(history, self._sample.now_s)

    def wait(self, timeout_s: float | None = None, *, progress: Progress = SILENT) -> JobView:
        progress.report(f"waiting for the end of {self.id}", 0, len(self.view().parts))
        if self.interrupts_wait:
            raise KeyboardInterrupt
        if self._ends_as:
            self.become(self._ends_as)
        return self.view()

    def logs(
        self, *, rank: int | None = None, node: str | None = None, tail: int = 200
    ) -> tuple[LogLine, ...]:
        self.calls.append(("logs", (rank, node, tail)))
        chosen = [
            line
            for line in self.lines
            if (rank is None or line.rank == rank) and (node is None or line.node == node)
        ]
        return tuple(chosen[len(chosen) - min(tail, len(chosen)) :])

    def chat(self) -> StandInChat:
        return StandInChat(self.lines[0].text)

    def whole_log(
        self, *, rank: int | None = None, node: str | None = None
    ) -> Iterator[list[LogLine]]:
        return iter([list(self.logs(rank=rank, node=node, tail=len(self.lines)))])

    def describe_machines(self) -> dict[str, Any]:
        return {place.node: MACHINE for place in self.view().attempt.placements}

    def stacks(self, *, rank: int | None = None) -> dict[str, Any]:
        placements_with(self.view(), rank)
        return {
            node: said
            if rank is None or isinstance(said, Exception)
            else [stack for stack in said if stack.rank == rank]
            for node, said in self.at.items()
        }

    def wait_for_history(self, timeout_s: float | None = None) -> JobHistory:
        return self.history()

    def catch_up(
        self, timeout_s: float | None = None, *, progress: Progress = SILENT
    ) -> JobHistory:
        progress.report("reading the job's history", 0, None)
        return self.history()

    def save(self, *, is_last: bool = False, reason: str = "") -> JobView:
        if self.refuses_save is not None:
            raise self.refuses_save
        self.calls.append(("save", is_last))
        asked = self.view()
        self.on_save()
        return asked

    def set(
        self, settings: Sequence[str], *, timeout_s: float, progress: Progress = SILENT
    ) -> SettingsChanged:
        progress.report("waiting for the ranks to take it", 0, 1)
        self.calls.append(("set", settings))
        return self.changed

    def wait_for_save(
        self, before: JobView, timeout_s: float | None = None, *, progress: Progress = SILENT
    ) -> SavedStep | None:
        progress.report("saving", 0, None)
        now = self.view()
        return requested_save(now, before) if now.attempt.number == before.attempt.number else None

    def stop(
        self,
        *,
        reason: str = "stopped by user",
        grace_s: float = 2.0,
        progress: Progress = SILENT,
    ) -> JobView:
        progress.report(f"telling the nodes to stop {self.id}", 0, len(self.view().parts))
        self.calls.append(("stop", (reason, grace_s)))
        return self.view()

    def kill_rank(self, rank: int) -> JobView:
        placements_with(self.view(), rank)
        self.calls.append(("kill_rank", rank))
        return self.view()

    @contextmanager
    def ending_with_driver(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # Ctrl-C, too
            self.kill()
            raise

    def kill(self, *, progress: Progress = SILENT) -> JobView:
        progress.report(f"telling the nodes to stop {self.id}", 0, len(self.view().parts))
        self.calls.append(("kill", None))
        return self.view()
