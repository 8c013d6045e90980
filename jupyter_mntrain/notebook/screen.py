"""Notebook screen: shows jobs live, in the background."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from jupyter_mntrain.notebook.bar import NotebookBar, page_tqdm
from jupyter_mntrain.notebook.display import Bundle, text_bundle
from jupyter_mntrain.notebook.liveview import LiveOutput, LiveView
from jupyter_mntrain.notebook.updater import Updater
from jupyter_mntrain.show.progress_bars import PatientBar
from jupyter_mntrain.show.screen import Screen

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job, Progress
    from jupyter_mntrain.notebook.panel.panel import WidgetPanel

LOOK_EVERY_S = 0.2
"""Waiting in pieces, so that an interrupt of the kernel is taken at once."""


class PlacedOutput:
    """A place on the page that is there already."""

    def __init__(self, place: LiveOutput) -> None:
        self._place = place

    def display(self, obj: Any, **kwargs: Any) -> None:
        self._place.update(obj, **kwargs)

    def update(self, obj: Any, **kwargs: Any) -> None:
        self._place.update(obj, **kwargs)


class NotebookScreen(Screen):
    """One live view per job, however many cells show it.

    Args:
        updater: redraws the views.
        show: puts a bundle under the cell that runs.
        new_output: makes a place on the page that can be replaced.
    """

    in_background = True
    has_variables = True

    def __init__(
        self,
        updater: Updater,
        show: Callable[[Bundle], None],
        new_output: Callable[[], LiveOutput],
    ) -> None:
        self._updater = updater
        self._show = show
        self._new_output = new_output
        self._panel: WidgetPanel | None = None
        self._views: weakref.WeakValueDictionary[str, LiveView] = weakref.WeakValueDictionary()

    def say(self, renderable: RenderableType) -> None:
        self._show(text_bundle(renderable))

    def progress(self) -> AbstractContextManager[Progress]:
        return PatientBar(lambda: NotebookBar(self._new_output(), page_tqdm()))

    def show(self, job: Job) -> None:
        self._view(job)

    def open_panel(self, panel: object) -> str | None:
        try:
            from jupyter_mntrain.notebook.panel.panel import WidgetPanel
            from jupyter_mntrain.verbs.panel import Panel
        except ImportError as error:
            return (
                f"{error.name} is not installed, so the panel is text only: pip install ipywidgets"
            )
        if not isinstance(panel, Panel):
            raise TypeError(f"not a panel: {panel!r}")
        if self._panel is not None:
            self._panel.retire()
        below = self._new_output()
        self._panel = WidgetPanel(panel, lambda job: self._show_at(job, PlacedOutput(below)))
        self._show(self._panel.bundle)
        below.display({"text/plain": "A job launched here is shown below the panel."}, raw=True)
        return None

    def close(self) -> None:
        """No panel answers any more."""
        if self._panel is not None:
            self._panel.close()

    def follow(self, job: Job) -> None:
        view = self._view(job)
        while not view.done.wait(LOOK_EVERY_S):
            pass
        view.publish()

    def _show_at(self, job: Job, output: LiveOutput) -> None:
        self._view(job, output)

    def _view(self, job: Job, output: LiveOutput | None = None) -> LiveView:
        view = self._views.get(job.id)
        if view is None or view.done.is_set():
            # A job that has ended is drawn anew: its outputs of before keep their last picture.
            view = self._views[job.id] = LiveView(job)
        view.attach(output or self._new_output())
        self._updater.add(view)
        return view
