"""Awaited view: shows what a job waits for, until its live view takes over the output."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.notebook.background import background_thread
from jupyter_mntrain.notebook.liveview import LiveOutput
from jupyter_mntrain.notebook.updater import View
from jupyter_mntrain.show.bundles import Bundle, text_bundle
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.show.screen import Awaited
from jupyter_mntrain.sources.awaited_launch import LOOK_EVERY_S

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job


class AwaitedView(View):
    """Redraws what a job waits for.

    It asks in its own thread: a scheduler may take a minute to answer, while other views are drawn.

    Args:
        look: what is known now; raises :class:`RefusedError` if there will be no job.
        take_over: shows the job, once it is there, in the place of this view.
    """

    def __init__(
        self,
        look: Callable[[], Awaited],
        output: LiveOutput,
        take_over: Callable[[Job], object],
    ) -> None:
        self._look = look
        self._output = output
        self._take_over = take_over
        self._last: Bundle = {}
        self._seen: Future[Awaited] | None = None

    def begin(self, first: Awaited) -> None:
        """Show what is known already in the running cell."""
        self._last = text_bundle(first.said)
        self._output.display(self._last, raw=True)

    @property
    def interval_s(self) -> float:
        return LOOK_EVERY_S

    def is_urgent(self) -> bool:
        return self._seen is not None and self._seen.done()

    def frame(self) -> bool:
        if self._seen is None:
            self._seen = self._begin_look()
            return False
        if not self._seen.done():
            return False
        seen, self._seen = self._seen, None
        try:
            now = seen.result()
        except RefusedError as error:
            self._say(problem_text(error.problem))
            return True
        except Exception as error:  # noqa: BLE001 - shown on the page; the next look may succeed
            self._say(Text(f"⚠ {error}"))
            return False
        if now.job is None:
            self._say(now.said)
            return False
        self._take_over(now.job)
        return True

    def _begin_look(self) -> Future[Awaited]:
        seen: Future[Awaited] = Future()

        def look() -> None:
            try:
                seen.set_result(self._look())
            except BaseException as error:  # noqa: BLE001 - whoever reads the result gets it
                seen.set_exception(error)

        background_thread(look, "mntrain-look").start()
        return seen

    def _say(self, renderable: RenderableType) -> None:
        bundle = text_bundle(renderable)
        if bundle != self._last:
            self._last = bundle
            self._output.update(bundle, raw=True)
