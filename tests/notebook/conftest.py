from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

from jupyter_mntrain.notebook.extension import Extension
from tests.agent.live import LiveAgent, addresses_of
from tests.notebook.test_books import FOLDER
from tests.verbs.conftest import cluster, failed_cluster

__all__ = ["cluster", "failed_cluster"]


MAIN = sys.modules["__main__"]


class KernelLike(InteractiveShell):
    """A shell that says it belongs to a kernel, so that outputs can be replaced."""

    kernel = object()


def begin_shell(kind: type[InteractiveShell]) -> InteractiveShell:
    """One that keeps no history and no results, so that its end is quick."""
    keeps_nothing = {"HistoryManager": {"enabled": False}, "InteractiveShell": {"cache_size": 0}}
    kind.clear_instance()
    return kind.instance(config=Config(keeps_nothing))


def end_shell(shell: InteractiveShell) -> None:
    """Now: else all shells of a run end with its process, after their homes are deleted.

    A shell takes the place of ``__main__`` and is emptied at its end; multiprocessing reads it.
    """
    type(shell).clear_instance()
    atexit.unregister(shell.atexit_operations)
    shell.atexit_operations()
    sys.modules["__main__"] = MAIN


class Notebook:
    """A shell with the extension, and what its cells put on the page."""

    def __init__(self, cluster: Any, shell_class: type[InteractiveShell] = KernelLike) -> None:
        self.shell = begin_shell(shell_class)
        self.opened: list[tuple[str, tuple[str, ...]]] = []

        def connect(name: str, addresses: tuple[str, ...]) -> Any:
            self.opened.append((name, addresses))
            return cluster

        self.extension = Extension(self.shell, connect)

    def load(self) -> str:
        with capture_output() as captured:
            self.extension.load()
        return captured.stdout

    def run(self, code: str) -> Any:
        """The result of a cell, with ``outputs``, ``stdout`` and ``stderr`` next to it."""
        with capture_output() as captured:
            result = self.shell.run_cell(code, store_history=True)
        result.outputs = captured.outputs
        result.stdout, result.stderr = captured.stdout, captured.stderr
        return result

    def words(self, code: str) -> str:
        """Everything a cell shows, as plain text."""
        result = self.run(code)
        assert result.success, result.stdout + result.stderr
        return "\n".join(output.data.get("text/plain", "") for output in result.outputs)

    def close(self) -> None:
        self.extension.close()
        end_shell(self.shell)


@pytest.fixture
def notebook(cluster, monkeypatch, tmp_path) -> Iterator[Notebook]:
    monkeypatch.chdir(tmp_path)
    book = Notebook(cluster)
    book.load()
    try:
        yield book
    finally:
        book.close()


CELL_TIMEOUT_S = 1000
"""On a machine that is busy with other work."""


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """What each code cell of a notebook shows, by its first line below ``%%mntrain cell``."""

    def run(name: str, agents: list[LiveAgent]) -> dict[str, str]:
        monkeypatch.setenv("MNTRAIN_CLUSTER", agents[0].cluster)
        monkeypatch.setenv("MNTRAIN_AGENTS", addresses_of(agents))
        book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        resources = {"metadata": {"path": str(tmp_path)}}
        client = NotebookClient(
            book, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources=resources
        )
        try:
            client.execute()
        except CellExecutionError:
            for agent in agents:
                for log in sorted(agent.state.glob("jobs/*/attempt-*/log")):
                    print(log, log.read_text(errors="replace")[-4000:], sep="\n")
            raise
        return {
            cell.source.removeprefix("%%mntrain cell\n").partition("\n")[0]: shown(cell)
            for cell in book.cells
            if cell.cell_type == "code"
        }

    return run


def shown(cell: nbformat.NotebookNode) -> str:
    """All text of a cell's outputs; a picture is named by its type."""
    parts = []
    for output in cell.outputs:
        data = output.get("data", {})
        parts += [output.get("text", ""), data.get("text/plain", ""), *data]
        parts += output.get("traceback", [])
    return "\n".join(parts)
