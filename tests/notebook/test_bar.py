"""Bars on the page: shown late, under the right cell, and gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tqdm.notebook
import tqdm.std
from ipywidgets import Widget
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

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
    assert notebook.words("%mntrain measure").startswith("measuring 6 directions")


def test_tqdm_is_not_loaded_before_it_is_needed() -> None:
    code = "import sys, jupyter_mntrain.notebook; sys.exit('tqdm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


CELL = """
from IPython.display import DisplayHandle
from jupyter_mntrain.notebook.bar import NotebookBar, page_tqdm
from jupyter_mntrain.show.progress_bars import PatientBar
from tests.verbs.beats import Beats

beats = Beats()
with PatientBar(lambda: NotebookBar(DisplayHandle(), page_tqdm()), beats) as progress:
    beats.begun()
    for done in range(3):
        progress.report("leasing", done, 3)
        beats.beat()
"""


class Watched(NotebookClient):
    """Keeps every message about outputs with the cell that it belongs to."""

    def __init__(self, book: NotebookNode, **fields: Any) -> None:
        super().__init__(book, **fields)
        self.seen: list[tuple[int, str, str]] = []

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> Any:
        content = msg["content"]
        if "data" in content and "text/plain" in content["data"]:
            self.seen.append((cell_index, msg["msg_type"], content["data"]["text/plain"]))
        return super().process_message(msg, cell, cell_index)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning:zmq")
@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_kernel_shows_it_under_the_cell_that_waits_and_warns_of_nothing(
    monkeypatch: pytest.MonkeyPatch, *, has_widgets: bool
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    first = "import sys" if has_widgets else "import sys; sys.modules['ipywidgets'] = None"
    book = new_notebook(cells=[new_code_cell(cell) for cell in (first, CELL, "")])
    client = Watched(book, timeout=60, kernel_name="python3")
    client.execute()
    shown, *updated = client.seen
    assert shown[:2] == (1, "display_data")
    assert "leasing" in shown[2]
    assert updated[-1] == (1, "update_display_data", "")
    assert len(updated) == (1 if has_widgets else 3), "a widget moves by itself"
    (output,) = book.cells[1].outputs
    assert output.data == {"text/plain": ""}, "no warning either"
