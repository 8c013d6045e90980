"""Notebook screen: live views, drawn in the background."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from IPython.display import clear_output
from rich.console import RenderableType
from rich.text import Text

from jupyter_mntrain.notebook.awaited_view import AwaitedView
from jupyter_mntrain.notebook.bar import NotebookBar, page_tqdm
from jupyter_mntrain.notebook.liveview import BegunView, LiveOutput, LiveView
from jupyter_mntrain.notebook.output import Client, show_bundle
from jupyter_mntrain.notebook.updater import Updater
from jupyter_mntrain.show.bundles import PROGRAM, Bundle, text_bundle
from jupyter_mntrain.show.progress_bars import PatientBar
from jupyter_mntrain.show.screen import Awaited, Screen
from jupyter_mntrain.show.tables.job import status_view
from jupyter_mntrain.show.terminal import say_lines

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job, Progress
    from jupyter_mntrain.model.records.job import JobView
    from jupyter_mntrain.notebook.panel.panel import WidgetPanel

BELOW_PANEL = "A job launched here is shown below the panel."

LOOK_EVERY_S = 0.2
"""Longest wait without a look: short, so that a kernel interrupt takes effect at once."""


class PlacedOutput:
    """An output that is already displayed."""

    def __init__(self, place: LiveOutput) -> None:
        self.display = self.update = place.update


class NotebookScreen(Screen):
    """One live view per job, however many cells show it.

    Args:
        updater: redraws the views.
        show: displays a bundle below the running cell.
        new_output: makes an output that can be updated.
        client: who runs the current cell.
    """

    in_background = True
    has_variables = True

    def __init__(
        self,
        updater: Updater,
        show: Callable[[Bundle], None],
        new_output: Callable[[], LiveOutput],
        client: Callable[[], Client] = Client,
    ) -> None:
        self._updater = updater
        self._show = show
        self._new_output = new_output
        self._client = client
        self._panel: WidgetPanel | None = None
        self._begun: BegunView | None = None
        self._views: weakref.WeakValueDictionary[str, LiveView] = weakref.WeakValueDictionary()

    @property
    def shows_pictures(self) -> bool:  # type: ignore[override]
        """Where a cell shows them. jupyter console opens each in a window of its own."""
        return self._client().has_cells

    def say(self, renderable: RenderableType) -> None:
        self._show(text_bundle(renderable))

    def display(
        self,
        bundle: Mapping[str, Any],
        metadata: Mapping[str, Any],
        identity: str,
        *,
        is_update: bool,
    ) -> None:
        show_bundle(dict(bundle), dict(metadata), identity, is_update=is_update)

    def clear(self) -> None:
        clear_output(wait=True)

    def ask(self, prompt: str) -> str:
        if not self._client().is_person:
            raise EOFError("a program runs this notebook")
        return input(prompt)

    def progress(self) -> AbstractContextManager[Progress]:
        if not self._client().has_cells:  # each of its states would stay
            return super().progress()
        return PatientBar(lambda: NotebookBar(self._new_output(), page_tqdm()))

    @contextmanager
    def starting(self, cluster: str) -> Iterator[Callable[[JobView], object]]:
        if not self._client().has_cells:  # it would say "starting" for ever
            yield bool
            return
        self._begun = BegunView(self._new_output(), cluster)
        try:
            yield self._begun
        finally:
            self._end_begun()

    def _end_begun(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.clear()

    def show(self, job: Job) -> None:
        if self._client().has_cells:
            self._view(job)
        else:
            self._say_status(job)
            self.say(Text(f"follow: {PROGRAM} attach --wait {job.id}", style="dim"))

    def _say_status(self, job: Job) -> None:
        self.say(status_view(job.summary(), job.view(), program=PROGRAM))

    def await_job(self, first: Awaited, look: Callable[[], Awaited]) -> None:
        place = self._new_output()
        begin = partial(self._view, output=PlacedOutput(place))
        view = AwaitedView(look, place, begin)
        view.begin(first)
        self._updater.add(view)

    def open_panel(self, panel: Any) -> str | None:
        client = self._client()
        if not client.is_person:
            return "a program runs this notebook, so the panel is text"
        if not client.has_cells:
            return "a console shows no widgets, so the panel is text"
        try:
            from jupyter_mntrain.notebook.panel.panel import WidgetPanel
        except ImportError as error:
            return (
                f"{error.name} is not installed, so the panel is text only: pip install ipywidgets"
            )
        if self._panel is not None:
            self._panel.retire()
        place, below = self._new_output(), self._new_output()
        panel.starting = partial(self._starting_below, PlacedOutput(below), panel.cluster.name)
        self._panel = WidgetPanel(
            panel,
            lambda job: self._view(job, PlacedOutput(below)),
            lambda bundle: place.update(bundle, raw=True),
        )
        place.display(self._panel.bundle, raw=True)
        below.display({"text/plain": BELOW_PANEL}, raw=True)
        return None

    @contextmanager
    def _starting_below(
        self, below: LiveOutput, cluster: str
    ) -> Iterator[Callable[[JobView], object]]:
        """As :meth:`starting`, in the place that the job's live view will have."""
        begun = BegunView(below, cluster, BELOW_PANEL)
        try:
            yield begun
        except BaseException:  # Ctrl-C, too; a job that has started is drawn in its place
            begun.clear()
            raise

    def close(self) -> None:
        """Close the panel."""
        if self._panel is not None:
            self._panel.close()

    def follow(self, job: Job, timeout_s: float | None = None) -> None:
        if not self._client().has_cells:
            say_lines(self.say, job, time.time, timeout_s)
            self._say_status(job)
            return
        view = self._view(job)
        deadline = inf if timeout_s is None else time.monotonic() + timeout_s
        while not view.done.wait(LOOK_EVERY_S) and time.monotonic() < deadline:
            pass
        view.publish()

    def _view(self, job: Job, output: LiveOutput | None = None) -> LiveView:
        view = self._views.get(job.id)
        if view is None or view.done.is_set():
            # Earlier outputs of an ended job keep their last picture.
            view = self._views[job.id] = LiveView(job)
        view.attach(output or self._new_output())
        if output is None:
            self._end_begun()
        self._updater.add(view)
        return view
