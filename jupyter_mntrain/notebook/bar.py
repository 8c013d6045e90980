"""Notebook progress bar: tqdm's, below the running cell, as a widget or as text."""

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
    """Return the class of ``tqdm.auto``: a widget if ipywidgets is installed, else text."""
    from tqdm.std import TqdmWarning

    with warnings.catch_warnings():
        # Without ipywidgets it warns; a text bar does as well.
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm
    made: Tqdm = tqdm
    return made


class NotebookBar:
    """A progress bar in one output, which is empty again when closed.

    tqdm does not display itself: its closed widget would leave "model not found" in the saved
    notebook.

    Args:
        output: not displayed yet.
        tqdm: ``tqdm.auto.tqdm``, or a class like it.
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
        # Discarded: we show the text in the output, which any thread may update.
        settings: dict[str, Any] = {"desc": what, "total": total, "leave": False}
        settings |= {"file": io.StringIO(), "ascii": False}
        settings["bar_format"] = WORDS if total else WORDS_WITHOUT_TOTAL
        try:
            self._bar = self._tqdm(**settings, display=False)
        except KeyError:  # text bars have no ``display`` option
            self._bar = self._tqdm(**settings)
        if self._has_widget:
            self._show(self._bar.container)

    def _end(self) -> None:
        if self._bar is not None:
            # An incomplete bar would stay, in red; not all work reports its end.
            self._bar.total = None
            self._bar.close()

    def _show(self, content: Any, **options: Any) -> None:
        if self._is_shown:
            self._output.update(content, **options)
        else:
            self._output.display(content, **options)
            self._is_shown = True
