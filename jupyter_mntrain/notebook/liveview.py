"""Live view: draws one job in the newest outputs of a notebook."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from jupyter_mntrain.metrics.entry_builder import job_entry
from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.page_entries import JOB_MIME, JobBundle
from jupyter_mntrain.metrics.series_builder import SeriesBuilder
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.hidden import cleaned, hidden_values
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.notebook.updater import INTERVAL_S, View
from jupyter_mntrain.show.bundles import PROGRAM, Bundle
from jupyter_mntrain.show.job_output import (
    LAST_SAMPLES_S,
    JobOutput,
    saved_bundle,
    saved_points,
    written_note,
)

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

FIRST_INTERVAL_S = 2.0
"""Interval before the first rank reports: there is only text to draw, and people watch."""

SAVED_STREAM = "saved"
"""Stream id of rows saved in a notebook; no server uses it."""

MOST_OUTPUTS = 2
"""Live views per job that are redrawn: the cell that launched it and the one that attached to
it."""


class LiveOutput(Protocol):
    """An output that can be updated, like ``IPython.display.DisplayHandle``."""

    def display(self, obj: Any, **kwargs: Any) -> None: ...
    def update(self, obj: Any, **kwargs: Any) -> None: ...


class LiveView(View):
    """Draws a job into its outputs until it has ended.

    An error is shown once, in the output; the next frame tries again.

    Args:
        clock: Unix time.
    """

    def __init__(self, job: Job, clock: Callable[[], float] = time.time) -> None:
        self.job = job
        self._clock = clock
        self._output = JobOutput()
        self._has_picture = False
        self._series = SeriesBuilder(JobId(job.id), SAVED_STREAM)
        self._lock = threading.Lock()
        self._outputs: list[LiveOutput] = []
        self._last: tuple[Bundle, dict[str, Any]] | None = None
        self._problem: str | None = None
        self._ended_s: float | None = None
        self.done = threading.Event()
        """Set once the last frame is displayed."""

    def attach(self, output: LiveOutput) -> None:
        """Show the view in another output; beyond two, the oldest one refers to the newest.

        It has the job's data from the first moment: the page goes on with it if this kernel dies.
        """
        if self._last is None:
            with suppress(Exception):  # the first frame shows the error
                self._draw()
        with self._lock:
            bundle, metadata = self._last or ({"text/plain": self._first_words()}, {})
            output.display(bundle, metadata=metadata, raw=True)
            self._outputs.append(output)
            left = self._outputs[:-MOST_OUTPUTS]
            self._outputs = self._outputs[-MOST_OUTPUTS:]
        for old in left:
            words = (
                f"{self.job.id} is now shown live in a newer cell. {PROGRAM} attach {self.job.id}"
            )
            old.update({"text/plain": words}, raw=True)

    def frame(self) -> bool:
        try:
            is_last = self._draw()
        except Exception as error:  # noqa: BLE001 - shown on the page, once
            self._tell(error)
            is_last = self._is_over()
        if is_last:
            self.done.set()
        return is_last

    def publish(self) -> None:
        """Send the newest frame again, as output of the running cell.

        A notebook executed without a browser keeps only the running cell's output.
        """
        with self._lock:
            if self._last is not None:
                self._send(*self._last)

    @property
    def interval_s(self) -> float:
        return INTERVAL_S if self._has_picture else FIRST_INTERVAL_S

    def is_urgent(self) -> bool:
        try:
            return self._is_last(self.job.history())
        except Exception:  # noqa: BLE001 - the next frame shows the error
            return False

    def _draw(self) -> bool:
        history, now_s = _without_secrets(self.job.history()), self._clock()
        self._series.extend(history, now_s)
        summary, view = self._series.summary, history.view
        is_last = self._is_last(history)
        has_steps = any(series.count for series in history.ranks.values())
        drawn = self._series.whole() if has_steps or is_last else None
        saved = _saved_bundle(self.job.cluster, history, self._series, now_s)
        note = written_note(view, now_s) if is_last else self._note(view, now_s)
        bundle, metadata = self._output.make(saved, summary, drawn, view, now_s=now_s, note=note)
        with self._lock:
            self._problem = None
            self._has_picture = drawn is not None
            if self._last is None or _shown(bundle) != _shown(self._last[0]):
                self._last = (bundle, metadata)
                self._send(bundle, metadata)
        return is_last

    def _note(self, view: JobView, now_s: float) -> str:
        return (
            f"{written_note(view, now_s)} Redrawn about every {INTERVAL_S:.0f} s. Live in "
            "JupyterLab and Notebook 7 where jupyter_mntrain is installed with the Jupyter server."
        )

    def _is_last(self, history: JobHistory) -> bool:
        if history.view.state not in TERMINAL:
            self._ended_s = None
            return False
        if self._ended_s is None:
            self._ended_s = self._clock()
        return history.is_complete or self._clock() - self._ended_s > LAST_SAMPLES_S

    def _is_over(self) -> bool:
        try:
            return self.job.state in TERMINAL
        except MntrainError:  # every node has forgotten the job
            return True

    def _tell(self, error: Exception) -> None:
        problem = f"{type(error).__name__}: {error}"
        if isinstance(error, MntrainError):
            problem = str(error)
        with self._lock:
            if problem == self._problem:
                return
            self._problem = problem
            bundle, _ = self._last or ({"text/plain": self._first_words()}, {})
            words = f"{bundle['text/plain']}\n⚠ The live view stopped: {problem}"
            # Without the picture: frontends would show it instead of the text.
            kept = {kind: bundle[kind] for kind in (JOB_MIME,) if kind in bundle}
            self._send(kept | {"text/plain": words}, {})

    def _first_words(self) -> str:
        return f"◔ {self.job.id}: reading the history"

    def _send(self, bundle: Bundle, metadata: dict[str, Any]) -> None:
        for output in self._outputs:
            output.update(bundle, metadata=metadata, raw=True)


class BegunView:
    """Names a job in a cell before its nodes are asked to start it: if this kernel dies now, the
    page draws the job by that. Emptied once the job is shown, or there will be none.

    Args:
        cluster: its name.
        left: what the output says then.
        clock: Unix time.
    """

    def __init__(
        self,
        output: LiveOutput,
        cluster: str,
        left: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._output = output
        self._cluster = cluster
        self._left = left
        self._clock = clock
        self._is_shown = False

    def __call__(self, view: JobView) -> None:
        with suppress(Exception):  # a page that cannot be drawn on must not stop the launch
            self._output.display(self._bundle(view), raw=True)
            self._is_shown = True

    def clear(self) -> None:
        if self._is_shown:
            self._is_shown = False
            self._output.update({"text/plain": self._left}, raw=True)

    def _bundle(self, view: JobView) -> Bundle:
        view = cleaned(view, hidden_values(view.spec))
        history = JobHistory(view, ranks={}, links={}, is_complete=False)
        series, now_s = SeriesBuilder(view.job_id, SAVED_STREAM), self._clock()
        series.extend(history, now_s)
        saved = _saved_bundle(self._cluster, history, series, now_s)
        note = written_note(view, now_s)
        return JobOutput().make(saved, series.summary, None, view, now_s=now_s, note=note)[0]


def _saved_bundle(
    cluster: str, history: JobHistory, series: SeriesBuilder, now_s: float
) -> JobBundle:
    view = history.view
    entry = job_entry(view, numbers=series.summary.numbers, history=history)
    whole = series.whole(saved_points(view.attempt.world_size))
    return saved_bundle(cluster, entry, whole, now_s)


def _shown(bundle: Bundle) -> tuple[Any, ...]:
    """Return the visible content of a frame, without the time at which it was made."""
    job = bundle.get(JOB_MIME, {})
    return bundle.get("image/png"), bundle["text/plain"], job.get("job"), job.get("series")


def _without_secrets(history: JobHistory) -> JobHistory:
    """Return the history with secrets hidden, as notebooks are shared."""
    return replace(history, view=cleaned(history.view, hidden_values(history.view.spec)))
