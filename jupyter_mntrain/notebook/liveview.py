"""One job in one output: a picture and text, replaced in place until the job has ended."""

from __future__ import annotations

from jupyter_mntrain.cluster import Job
from jupyter_mntrain.notebook.display import Screen
from jupyter_mntrain.show import words

QUICK_INTERVAL_S = 3.0
"""Between pictures in the first minute, while everybody looks: drawing takes 0.1 s of the kernel."""

QUICK_FOR_S = 60.0
SLOW_INTERVAL_S = 10.0
"""Later. A frontend with our extension draws by itself, every second."""

HISTORY_PATIENCE_S = 30.0
"""After a job's end: for the last lines of nodes that do not answer any more."""


class LiveView:
    """A view of one job, created in the cell that asked for it.

    The text is updated with every picture; a terminal gets text only, and a line why.
    """

    def __init__(self, job: Job, screen: Screen) -> None:
        self.job = job
        self._screen = screen
        self._begun_s: float | None = None
        self._ended_s: float | None = None
        self._next_s = 0.0
        self.is_over = False
        job.watch()
        note = "" if screen.has_pictures else "\n(no pictures in a terminal: 'plot -o FILE.png')"
        self._handle = screen.new_output(words.as_text(job.summary()) + note)

    def update(self, now_s: float) -> None:
        """Draw if it is time; the last picture comes when the whole history is there.

        Args:
            now_s: monotonic seconds.
        """
        if self._begun_s is None:
            self._begun_s = now_s
        history = self.job.history()
        done = history.is_complete
        if self.job.is_over and not done:
            self._ended_s = self._ended_s or now_s
            done = now_s - self._ended_s > HISTORY_PATIENCE_S
        if now_s < self._next_s and not done:
            return
        quick = now_s - self._begun_s < QUICK_FOR_S
        self._next_s = now_s + (QUICK_INTERVAL_S if quick else SLOW_INTERVAL_S)
        summary = self.job.summary()
        png = None
        if self._screen.has_pictures:
            from jupyter_mntrain.show import draw_png

            png = draw_png(history, summary)
        self._screen.update(self._handle, words.as_text(summary), png)
        self.is_over = done

    def fail(self, error: Exception) -> None:
        """Say once that this view can go no further; the job does."""
        text = f"the view of {self.job.id} stopped: {error}. 'attach {self.job.id}' starts it anew."
        self._screen.update(self._handle, text, None)
        self.is_over = True
