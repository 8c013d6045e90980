"""Notebook screen: live views, drawn in the background."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from jupyter_mntrain.notebook.awaited_view import AwaitedView
from jupyter_mntrain.notebook.bar import NotebookBar, page_tqdm
from jupyter_mntrain.notebook.liveview import LiveOutput, LiveView
from jupyter_mntrain.notebook.output import Client
from jupyter_mntrain.notebook.updater import Updater
from jupyter_mntrain.show.bundles import Bundle, text_bundle
from jupyter_mntrain.show.progress_bars import PatientBar
from jupyter_mntrain.show.screen import Awaited, Screen

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job, Progress
    from jupyter_mntrain.notebook.panel.panel import WidgetPanel

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
        self._views: weakref.WeakValueDictionary[str, LiveView] = weakref.WeakValueDictionary()

    def say(self, renderable: RenderableType) -> None:
        self._show(text_bundle(renderable))

    def progress(self) -> AbstractContextManager[Progress]:
        return PatientBar(lambda: NotebookBar(self._new_output(), page_tqdm()))

    def show(self, job: Job) -> None:
        self._view(job)

    def await_job(self, first: Awaited, look: Callable[[], Awaited]) -> None:
        place = self._new_output()
        begin = partial(self._view, output=PlacedOutput(place))
        view = AwaitedView(look, place, begin)
        view.begin(first)
        self._updater.add(view)

    def open_panel(self, panel: Any) -> str | None:
        if not self._client().is_person:
            return "a program runs this notebook, so the panel is text"
        try:
            from jupyter_mntrain.notebook.panel.panel import WidgetPanel
        except ImportError as error:
            return (
                f"{error.name} is not installed, so the panel is text only: pip install ipywidgets"
            )
        if self._panel is not None:
            self._panel.retire()
        place, below = self._new_output(), self._new_output()
        self._panel = WidgetPanel(
            panel,
            lambda job: self._view(job, PlacedOutput(below)),
            lambda bundle: place.update(bundle, raw=True),
        )
        place.display(self._panel.bundle, raw=True)
        below.display({"text/plain": "A job launched here is shown below the panel."}, raw=True)
        return None

    def close(self) -> None:
        """Close the panel."""
        if self._panel is not None:
            self._panel.close()

    def follow(self, job: Job, timeout_s: float | None = None) -> None:
        view = self._view(job)
        deadline = inf if timeout_s is None else time.monotonic() + timeout_s
        while not view.done.wait(LOOK_EVERY_S) and time.monotonic() < deadline:
            pass
        view.publish()
        if not self._client().has_cells and view.bundle is not None:
            self._show({"text/plain": view.bundle["text/plain"]})

    def _view(self, job: Job, output: LiveOutput | None = None) -> LiveView:
        view = self._views.get(job.id)
        if view is None or view.done.is_set():
            # Earlier outputs of an ended job keep their last picture.
            view = self._views[job.id] = LiveView(job)
        view.attach(output or self._new_output())
        self._updater.add(view)
        return view
