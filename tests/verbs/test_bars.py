"""Progress bars of slow verbs: shown late, kept alive, removed without a trace."""

from __future__ import annotations

import contextvars
import io
import threading

import pytest
from rich.console import Console

from jupyter_mntrain.show.progress_bars import PATIENCE_S, REDRAW_EVERY_S, PatientBar, TerminalBar
from jupyter_mntrain.show.terminal import QuietScreen, TerminalScreen
from tests.standin.screen import Paper
from tests.verbs.beats import DEADLINE_S, Beats, Wall


def test_what_is_soon_done_is_never_drawn() -> None:
    wall, beats = Wall(), Beats()
    with PatientBar(wall.open, beats) as progress:
        beats.begun()
        progress.report("asking the nodes", 1, 3)
    assert (wall.opened, wall.drawn, wall.closed) == (0, [], 0)
    assert beats.waits == [PATIENCE_S]
    assert PATIENCE_S == 1.0


def test_what_takes_longer_is_drawn_as_it_is_now_and_closed() -> None:
    wall, beats = Wall(), Beats()
    with PatientBar(wall.open, beats) as progress:
        beats.begun()
        progress.report("asking the nodes", 0, 3)
        progress.report("asking the nodes", 2, 3)
        beats.beat()
        assert wall.drawn == [("asking the nodes", 2, 3)]
        beats.beat()
        progress.report("leasing", 1, 3)
        beats.beat()
        assert wall.closed == 0
    assert wall.drawn == [
        ("asking the nodes", 2, 3),
        ("asking the nodes", 2, 3),  # again: something turns while nothing is new
        ("leasing", 1, 3),
    ]
    assert (wall.opened, wall.closed) == (1, 1)
    assert beats.waits == [PATIENCE_S, *[REDRAW_EVERY_S] * 3]


def test_work_that_reports_nothing_opens_no_bar() -> None:
    wall, beats = Wall(), Beats()
    with PatientBar(wall.open, beats):
        beats.begun()
        beats.beat()
    assert wall.opened == 0


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
def test_an_interrupt_and_an_error_close_the_bar_and_pass(kind) -> None:
    wall, beats = Wall(), Beats()

    def work() -> None:
        with PatientBar(wall.open, beats) as progress:
            beats.begun()
            progress.report("leasing", 1, 3)
            beats.beat()
            raise kind

    with pytest.raises(kind):
        work()
    assert (wall.opened, wall.closed) == (1, 1)


def test_a_page_that_breaks_does_not_break_the_work() -> None:
    class Broken(Wall):
        def draw(self, what: str, done: int, total: int | None) -> None:
            tried.set()
            raise OSError("the page has gone")

    tried = threading.Event()
    broken, beats = Broken(), Beats()
    with PatientBar(broken.open, beats) as progress:
        beats.begun()
        progress.report("leasing", 1, 3)
        beats._passed.release()
        assert tried.wait(DEADLINE_S)
    assert (broken.opened, broken.closed) == (1, 1)


def test_it_draws_for_the_cell_that_began_the_work() -> None:
    cell: contextvars.ContextVar[str] = contextvars.ContextVar("cell", default="none")
    cells: list[str] = []

    class Page(Wall):
        def draw(self, what: str, done: int, total: int | None) -> None:
            cells.append(cell.get())

    cell.set("the third")
    page, beats = Page(), Beats()
    with PatientBar(page.open, beats) as progress:
        beats.begun()
        progress.report("leasing", 1, 3)
        beats.beat()
    assert cells == ["the third"]


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, _environ={"TERM": "xterm"})


def test_a_terminal_shows_what_how_far_and_nothing_afterwards() -> None:
    console = terminal()
    file = console.file
    assert isinstance(file, io.StringIO)
    bar = TerminalBar(console)
    bar.draw("measuring [odd] → node2", 2, 6)
    assert "measuring [odd] → node2" in file.getvalue()
    assert "2/6" in file.getvalue()
    bar.draw("looking for nodes", 3, None)
    assert "3/?" in file.getvalue()
    bar.close()
    assert file.getvalue().endswith("\x1b[1A\x1b[2K"), "up, and the line is wiped"


@pytest.mark.parametrize(
    "bars",
    [
        Console(file=io.StringIO(), force_terminal=False),
        Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"}),
    ],
)
def test_where_nothing_can_be_redrawn_nothing_is_drawn(bars: Console) -> None:
    screen = TerminalScreen(Console(file=io.StringIO()), "mntrain", bars=bars)
    with screen.progress() as progress:
        assert not isinstance(progress, PatientBar)
        progress.report("leasing", 1, 3)
    assert isinstance(bars.file, io.StringIO)
    assert bars.file.getvalue() == ""


def test_a_terminal_has_a_patient_bar() -> None:
    screen = TerminalScreen(Console(file=io.StringIO()), "mntrain", bars=terminal())
    with screen.progress() as progress:
        assert isinstance(progress, PatientBar)


def test_data_alone_shows_no_bar() -> None:
    paper = Paper()
    with QuietScreen(paper).progress() as progress:
        progress.report("leasing", 1, 3)
    assert paper.heard.reports == []


@pytest.mark.parametrize(
    ("words", "pieces"),
    [
        (["nodes"], ["looking for nodes"]),
        (
            ["measure", "wopr", "hal"],
            ["looking for nodes", "measuring", "measuring devices"],
        ),
        (["status", "j-7f3a"], ["looking for job j-7f3a", "reading the job's history"]),
        (
            ["stop", "j-7f3a"],
            [
                "looking for job j-7f3a",
                "telling the nodes to stop j-7f3a9c21",
                "waiting for the end of j-7f3a9c21",
            ],
        ),
        (
            ["kill", "j-7f3a"],
            [
                "looking for job j-7f3a",
                "telling the nodes to stop j-7f3a9c21",
                "waiting for the end of j-7f3a9c21",
            ],
        ),
        (
            ["launch", "train.py", "--member", "wopr", "--detach"],
            ["looking for nodes", "leasing GPUs and ports"],
        ),
    ],
)
def test_verbs_say_what_they_wait_for(do, tmp_path, words, pieces) -> None:
    (tmp_path / "train.py").write_text("")
    paper = Paper()
    do(*words, screen=paper, directory=tmp_path)
    assert list(dict.fromkeys(what for what, _, _ in paper.heard.reports)) == pieces
    quiet = Paper()
    do(*words, "--json", screen=quiet, directory=tmp_path)
    assert quiet.heard.reports == []
