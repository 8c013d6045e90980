"""Notebook progress bar in a real kernel, with and without widgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::RuntimeWarning:zmq"),
]

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
