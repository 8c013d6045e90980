"""Progress bar on a page: tqdm's, below the cell that waits, as a widget or text."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

from jupyter_mntrain.notebook.liveview import LiveOutput

Tqdm = Callable[..., Any]

WORDS = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}]"
WORDS_WITHOUT_TOTAL = "{desc}: {n_fmt} [{elapsed}]"


def page_tqdm() -> Tqdm:
    """What ``tqdm.auto`` chooses for this page: with widgets where there are any."""
    from tqdm.std import TqdmWarning

    with warnings.catch_warnings():
        # Without ipywidgets it would advise to install them. Text is as good, and needs no advice.
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm
    made: Tqdm = tqdm
    return made


class NotebookBar:
    """Takes one output of the page and leaves it empty.

    tqdm does not display itself: a widget that is closed would leave "model not found" in the
    notebook once that is opened again.

    Args:
        output: a place on the page, not shown yet.
        tqdm: ``tqdm.auto.tqdm``, or the one of another face.
    """

    def __init__(self, output: LiveOutput, tqdm: Tqdm) -> None:
        self._output = output
        self._tqdm = tqdm
        self._is_shown = False
        self._bar: Any = None
        self._piece: tuple[str, int | None] | None = None

    def draw(self, what: str, done: int, total: int | None) -> None:
        if self._piece != (what, total):
            self._begin(what, total)
            self._piece = (what, total)
        self._bar.n = done
        if self._has_widget:
            self._bar.refresh()
        else:
            self._show({"text/plain": str(self._bar)}, raw=True)

    def close(self) -> None:
        self._end()
        if self._is_shown:
            self._show({"text/plain": ""}, raw=True)

    @property
    def _has_widget(self) -> bool:
        return hasattr(self._bar, "container")

    def _begin(self, what: str, total: int | None) -> None:
        self._end()
        # Into nowhere: text goes to the output, which can be replaced from any thread.
        settings: dict[str, Any] = {"desc": what, "total": total, "leave": False}
        settings |= {"file": io.StringIO(), "ascii": False}
        settings["bar_format"] = WORDS if total else WORDS_WITHOUT_TOTAL
        try:
            self._bar = self._tqdm(**settings, display=False)
        except KeyError:  # tqdm's own word for: text bars know no ``display``
            self._bar = self._tqdm(**settings)
        if self._has_widget:
            self._show(self._bar.container)

    def _end(self) -> None:
        if self._bar is not None:
            # A bar that is not full would stay, in red; not every piece of work reports its end.
            self._bar.total = None
            self._bar.close()

    def _show(self, content: Any, **options: Any) -> None:
        if self._is_shown:
            self._output.update(content, **options)
        else:
            self._output.display(content, **options)
            self._is_shown = True
