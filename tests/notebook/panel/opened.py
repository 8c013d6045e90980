"""Submit panels on a page."""

from __future__ import annotations

import threading
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

from jupyter_mntrain.notebook.panel.panel import WidgetPanel
from jupyter_mntrain.notebook.panel.widgets import blocked
from jupyter_mntrain.verbs.panel.last_choices import Memory
from jupyter_mntrain.verbs.panel.panel import Panel
from tests import waiting
from tests.standin.cluster import StandInCluster
from tests.standin.screen import make_context

_OPEN: WeakSet[Open] = WeakSet()

DRAWN_S = 1.0
"""For what is being drawn; a task that waits for the test is not waited for."""


def until(condition: Callable[[], object], what: str = "it") -> None:
    """Until it is so, and what was being drawn then is drawn whole."""
    waiting.until(condition, what)
    for page in tuple(_OPEN):
        page.draw()


class Open:
    """A panel on a page, and what was done with it."""

    def __init__(
        self, cluster: StandInCluster, directory: Path, resumes: str | None = None
    ) -> None:
        self.cluster = cluster
        self.jobs: list[Any] = []
        self.form_threads: set[str] = set()
        context = make_context(cluster, directory=directory, program="%mntrain")
        memory = Memory(directory / "panel.json")
        args = Namespace(cluster=None, agent=None)
        target = None if resumes else "small.toml"
        panel = Panel(context, args, target=target, resumes=resumes, memory=memory)
        self.panel = panel
        form = panel.form
        self.kept: list[Any] = []
        self.view = WidgetPanel(panel, self.jobs.append, self.kept.append)

        def noted() -> Any:
            self.form_threads.add(threading.current_thread().name)
            return form()

        panel.form = noted  # type: ignore[method-assign]
        _OPEN.add(self)

    @property
    def why(self) -> str:
        return str(self.view.launch_bar.why.value)

    def draw(self) -> None:
        worker, drawn = self.view._worker, threading.Event()
        worker.put(drawn.set)
        if worker._thread.is_alive():
            drawn.wait(DRAWN_S)

    def row(self, name: str) -> Any:
        return self.view.nodes.rows[name]

    def click(self, button: Any) -> None:
        """As a person does: once it can be clicked."""
        until(lambda: not button.disabled and not blocked(button), button.description)
        button.click()
