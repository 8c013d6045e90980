"""One job, live, in one or two outputs of the notebook."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.job import TERMINAL
from jupyter_mntrain.notebook.display import (
    Bundle,
    picture_bundle,
    picture_metadata,
    plain_text,
)
from jupyter_mntrain.notebook.updater import View
from jupyter_mntrain.verbs.tables.job import status_view

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job, JobHistory, JobSummary
    from jupyter_mntrain.verbs.picture import Picture

PROGRAM = "%mntrain"

LAST_SAMPLES_S = 5.0
"""After a job has ended: for the last lines of silent nodes, before the last picture is drawn."""

MOST_OUTPUTS = 2
"""Of one job: the cell that launched it and the one that attached to it."""


class Output(Protocol):
    """A place on the page that can be replaced: ``IPython.display.DisplayHandle`` is one."""

    def display(self, obj: Any, **kwargs: Any) -> None: ...
    def update(self, obj: Any, **kwargs: Any) -> None: ...


class LiveView(View):
    """Draws a job, puts the picture into its outputs, and stops when the job has ended.

    What goes wrong is said once, in the output; the next frame tries again.

    Args:
        clock: Unix time.
    """

    def __init__(self, job: Job, clock: Callable[[], float] = time.time) -> None:
        self.job = job
        self._clock = clock
        self._picture: Picture | None = None
        self._lock = threading.Lock()
        self._outputs: list[Output] = []
        self._last: tuple[Bundle, dict[str, Any]] | None = None
        self._problem: str | None = None
        self._ended_s: float | None = None
        self.done = threading.Event()
        """Set once the last frame is on the page."""

    def attach(self, output: Output) -> None:
        """Show it there, too. The oldest output of too many says where the view has gone."""
        with self._lock:
            bundle, metadata = self._last or ({"text/plain": self._first_words()}, {})
            output.display(bundle, metadata=metadata, raw=True)
            self._outputs.append(output)
            left = self._outputs[:-MOST_OUTPUTS]
            self._outputs = self._outputs[-MOST_OUTPUTS:]
        for old in left:
            words = f"{self.job.id} is shown live in a newer cell. {PROGRAM} attach {self.job.id}"
            old.update({"text/plain": words}, raw=True)

    def frame(self) -> bool:
        try:
            is_last = self._draw()
        except Exception as error:  # noqa: BLE001 - whatever it is, the page says it, once
            self._tell(error)
            is_last = self._is_over()
        if is_last:
            self.done.set()
        return is_last

    def publish(self) -> None:
        """Put the newest frame into every output once more, as part of the cell that runs now.

        A notebook that is executed without a browser takes only what belongs to its cell.
        """
        with self._lock:
            if self._last is not None:
                self._send(*self._last)

    def _draw(self) -> bool:
        history, summary = self.job.history(), self.job.summary()
        is_last = self._is_last(history)
        text = plain_text(status_view(summary, history, program=PROGRAM))
        bundle = picture_bundle(self._png(history, summary), text)

        from jupyter_mntrain.verbs.picture import WIDTH_PX

        with self._lock:
            self._problem = None
            frame = (bundle, picture_metadata(WIDTH_PX))
            if self._last is None or frame[0] != self._last[0]:
                self._last = frame
                self._send(*frame)
        return is_last

    def _png(self, history: JobHistory, summary: JobSummary) -> bytes:
        if self._picture is None:
            # matplotlib takes half a second: in this thread, not when the extension is loaded.
            from jupyter_mntrain.verbs.picture import Picture

            self._picture = Picture(program=PROGRAM)
        return self._picture.draw(history, summary, now_s=self._clock())

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
            bundle, metadata = self._last or ({"text/plain": self._first_words()}, {})
            words = f"{bundle['text/plain']}\n⚠ The live view stopped here: {problem}"
            # Without the picture: frontends would show only that, and not the words.
            self._send({"text/plain": words}, metadata if "image/png" in bundle else {})

    def _first_words(self) -> str:
        return f"◔ {self.job.id}: reading its history"

    def _send(self, bundle: Bundle, metadata: dict[str, Any]) -> None:
        for output in self._outputs:
            output.update(bundle, metadata=metadata, raw=True)
