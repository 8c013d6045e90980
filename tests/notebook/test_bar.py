"""Notebook progress bar: shown late, under the right cell, and removed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import tqdm.notebook
import tqdm.std
from ipywidgets import Widget

from jupyter_mntrain.notebook.bar import NotebookBar
from jupyter_mntrain.show.progress_bars import PatientBar


class Page:
    """An output of a page, as IPython's handle is one."""

    def __init__(self) -> None:
        self.displayed: list[Any] = []
        self.updated: list[Any] = []

    def display(self, obj: Any, **kwargs: Any) -> None:
        self.displayed.append(obj)

    def update(self, obj: Any, **kwargs: Any) -> None:
        assert self.displayed, "nothing to replace yet"
        self.updated.append(obj)


def test_without_widgets_it_is_one_line_of_text_and_then_nothing() -> None:
    page = Page()
    bar = NotebookBar(page, tqdm.std.tqdm)
    bar.draw("measuring node1 → node2", 1, 4)
    bar.draw("measuring node1 → node2", 2, 4)
    bar.draw("looking for nodes", 3, None)
    bar.close()
    (first,) = page.displayed
    second, other, last = page.updated
    assert first["text/plain"].startswith("measuring node1 → node2:  25%|")
    assert "2/4" in second["text/plain"]
    assert other["text/plain"].startswith("looking for nodes: 3 [")
    assert all("\n" not in one["text/plain"] for one in (first, *page.updated))
    assert last == {"text/plain": ""}


def test_with_widgets_it_is_one_widget_for_each_piece_of_work_and_then_nothing() -> None:
    page = Page()
    bar = NotebookBar(page, tqdm.notebook.tqdm)
    bar.draw("leasing <all>", 1, 4)
    bar.draw("leasing <all>", 2, 4)
    (leasing,) = page.displayed
    label, gauge, numbers = leasing.children
    assert (gauge.value, gauge.max) == (2, 4)
    assert label.value.replace("\u2007", " ") == "leasing &lt;all&gt;:  50%"
    assert "2/4" in numbers.value
    bar.draw("starting", 1, 4)
    starting, *_ = page.updated
    assert isinstance(starting, Widget)
    assert starting is not leasing
    assert leasing.comm is None, "closed"
    bar.close()
    assert starting.comm is None
    assert page.updated[-1] == {"text/plain": ""}


def test_a_bar_that_was_never_drawn_on_shows_nothing() -> None:
    page = Page()
    NotebookBar(page, tqdm.std.tqdm).close()
    assert (page.displayed, page.updated) == ([], [])


def test_a_notebook_has_a_patient_bar(notebook) -> None:
    with notebook.extension.screen.progress() as progress:
        assert isinstance(progress, PatientBar)
        progress.report("leasing", 1, 3)
    assert notebook.words("%mntrain measure --devices").startswith("measuring devices")


def test_tqdm_is_not_loaded_before_it_is_needed() -> None:
    code = "import sys, jupyter_mntrain.notebook; sys.exit('tqdm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
