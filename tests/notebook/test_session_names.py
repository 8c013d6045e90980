"""Tab and Shift-Tab in cells of a session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from ipykernel.inprocess.ipkernel import InProcessKernel
from IPython.core.interactiveshell import InteractiveShell

from jupyter_mntrain.model.records.session import Completions, Described
from jupyter_mntrain.notebook import session_names
from jupyter_mntrain.notebook.extension import Extension
from jupyter_mntrain.notebook.session_names import RemoteCell, SessionNames
from jupyter_mntrain.show.screen import CellTarget
from jupyter_mntrain.verbs.verb import Clusters
from tests.notebook.conftest import end_shell


class Ranks:
    """A cluster with one session, whose ranks know the name ``weights``."""

    name = "test"
    is_driver = False

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.asked: list[int] = []
        self.spec = self.membership = self
        self.runs_cells, self.job_id = True, "j-7f3a9c21"

    def known_jobs(self) -> tuple[Ranks, ...]:
        return (self,)

    def known_job(self, job_id: str) -> Ranks:
        assert job_id == self.job_id
        return self

    def session(self) -> Ranks:
        return self

    def close(self) -> None:
        """Nothing is open."""

    def complete(self, code: str, position: int, rank: int) -> Completions:
        self.asked.append(rank)
        self.answers.wait(10)
        begin = code.rfind("wei", 0, position)
        return Completions(rank, ("weights",) if begin >= 0 else (), begin, position)

    def inspect(self, code: str, position: int, detail: int, rank: int) -> Described:
        data = {"text/plain": "Tensor of the ranks"} if "weights" in code[: position + 7] else {}
        return Described(rank, data)


@pytest.fixture
def ranks() -> Ranks:
    return Ranks()


@pytest.fixture
def target() -> CellTarget:
    return CellTarget()


@pytest.fixture
def names(
    ranks: Ranks, target: CellTarget, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SessionNames]:
    monkeypatch.setattr(session_names, "ANSWER_S", 60.0)  # of a machine that is busy with tests
    clusters = Clusters(lambda *_: ranks)  # type: ignore[arg-type, return-value]
    clusters.get("test", ())
    made = SessionNames(clusters, target)
    yield made
    ranks.answers.set()
    made.close()


HEAD = "%%mntrain cell --session j-7f --rank 1,0\n"


def test_where_a_cell_runs_is_known_from_its_text(names: SessionNames, target: CellTarget) -> None:
    assert names.cell_at(f"{HEAD}wei", len(HEAD) + 3) == RemoteCell("j-7f", 1, len(HEAD))
    above = "# the first\n\n"
    assert names.cell_at(f"{above}{HEAD}wei", 60) == RemoteCell("j-7f", 1, len(above + HEAD))
    assert names.cell_at("%%mntrain cell\nwei", 18) == RemoteCell("", 0, 15)
    assert names.cell_at(HEAD, 12) is None, "its first line is ours"
    for here in ("wei", "%%mntrain cell --rank x\nwei", "%%mntrain launch\nwei", "%%time\nwei"):
        assert names.cell_at(here, len(here)) is None
    target.session = "j-7f3a9c21"
    assert names.cell_at("wei", 3) == RemoteCell("j-7f3a9c21", 0, 0)
    assert names.cell_at("%mntrain nodes", 10) is None
    assert names.cell_at("job = %mntrain launch a.py", 25) is None, "as session auto leaves it here"


def test_a_cluster_that_is_away_keeps_nobody_waiting(
    names: SessionNames, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = RemoteCell("", 1, 0)
    assert names.complete(cell, "wei", 3) == ("wei", ("weights",))
    ranks.answers.clear()
    monkeypatch.setattr(session_names, "ANSWER_S", 0.01)
    assert names.complete(cell, "wei", 3) == ("", ())
    assert names.complete(cell, "wei", 3) == ("", ())
    assert ranks.asked == [1, 1], "it is not asked again before it has answered"
    assert names.complete(RemoteCell("j-other", 0, 0), "wei", 3) == ("", ())


def test_the_kernel_asks_the_ranks(ranks: Ranks) -> None:
    InteractiveShell.clear_instance()
    kernel: Any = InProcessKernel()
    extension = Extension(kernel.shell, lambda *_: ranks)  # type: ignore[arg-type, return-value]
    try:
        extension.clusters.get("test", ())
        extension.load()
        text = f"{HEAD}print(wei)\nprint(1)"
        at = len(f"{HEAD}print(wei")
        done = kernel.do_complete(text, at)
        assert (done["matches"], done["cursor_start"]) == (["weights"], at - 3)
        code = f"{HEAD}weights"
        told = kernel.do_inspect(code, len(code))
        assert told["data"] == {"text/plain": "Tensor of the ranks"}
        assert not kernel.do_inspect("weights", 7)["found"], "it is no name of this kernel"
        extension.unload()
        assert not kernel.do_inspect(code, len(code))["found"]
    finally:
        end_shell(kernel.shell)
        kernel.iopub_thread.stop()
