"""What ranks write as one text: equal lines once, others with their rank."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.session import Done, Lost, Shown, Text
from jupyter_mntrain.show.screen import Screen
from jupyter_mntrain.verbs.sessions.cell import parse_ranks, refuse_bad_syntax
from jupyter_mntrain.verbs.sessions.printing import HELD_S, CellPrinter, failure_lines


class Written(Screen):
    """Keeps what is written and shown."""

    def __init__(self) -> None:
        self.text = ""

    def say(self, renderable: object) -> None:
        self.text += f"{renderable}\n"

    def write(self, text: str) -> None:
        self.text += text

    def show(self, job: object) -> None:
        raise AssertionError(job)

    def follow(self, job: object, timeout_s: float | None = None) -> None:
        raise AssertionError(job, timeout_s)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def screen() -> Written:
    return Written()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def printer(screen: Written, clock: Clock) -> CellPrinter:
    return CellPrinter(screen, (0, 1, 2), clock)


def done(rank: int, **fields: object) -> Done:
    return Done(rank=rank, number=9, end="ok", took_s=0.1, **fields)  # type: ignore[arg-type]


def test_equal_lines_are_written_once_whoever_is_first(printer, screen):
    printer.text(Text(1, 1, "same\nother"))
    printer.text(Text(0, 1, "sa"))
    printer.text(Text(0, 2, "me\n"))
    printer.text(Text(1, 2, " line\n"))
    printer.text(Text(2, 1, "same\n"))
    assert screen.text == "same\n"
    printer.text(Text(0, 3, "second\n"))
    assert screen.text == "same\nsecond\n[rank 1] other line\n"


def test_a_line_waits_for_the_first_rank_for_a_second_and_no_longer(printer, screen, clock):
    printer.text(Text(1, 1, "alone\n"))
    assert screen.text == ""
    clock.now_s += HELD_S + 0.1
    printer.text(Text(2, 1, "later\n"))
    assert screen.text == "[rank 1] alone\n"
    printer.ended(done(0))
    assert screen.text == "[rank 1] alone\n[rank 2] later\n"


def test_what_is_left_without_a_newline_is_written_at_the_end(printer, screen):
    printer.text(Text(0, 1, "a"))
    printer.text(Text(1, 1, "a"))
    printer.text(Text(2, 1, "b"))
    for rank in (0, 1, 2):
        printer.ended(done(rank))
    printer.close()
    assert screen.text == "a\n[rank 2] b\n"


def test_a_line_that_is_ended_so_that_others_can_be_read_is_ended_once(printer, screen):
    printer.text(Text(0, 1, "a"))
    printer.say("said")
    printer.text(Text(0, 2, "\n"))
    printer.text(Text(0, 3, "\nb\n"))
    assert screen.text == "a\nsaid\n\nb\n"


def test_a_progress_bar_stays_on_its_line_and_nothing_else_moves_the_cursor(printer, screen):
    printer.text(Text(0, 1, "10 %\r20 %\x1b[2J\x1b[31mred\x1b[0m\n"))
    assert "\r20 %" in screen.text
    assert "\x1b[2J" not in screen.text
    assert "\x1b[31mred\x1b[0m" in screen.text


def test_results_are_shown_once_and_others_by_their_text(printer, screen):
    for rank, text in enumerate(("3", "3", "4")):
        printer.shown(Shown(rank, 1, {"text/plain": text, "application/javascript": "alert()"}))
    assert screen.text == "3\n[rank 2] 4\n"


@pytest.mark.wording
def test_dropped_output_is_said(printer, screen):
    printer.lost(Lost(1, 4, 12_000_000))
    assert screen.text.startswith("rank 1: about ")


@pytest.mark.wording
def test_errors_of_other_ranks_are_folded():
    failed = {
        0: done(0, error="ValueError", message="a", line=3),
        1: done(1, error="ValueError", message="a", line=3),
        2: done(2, error="KeyError", message="b", line=4),
        3: done(3, error="KeyError", message="b", line=4),
    }
    assert failure_lines(failed) == [
        "rank 1: the same ValueError",
        "ranks 2, 3: KeyError in line 4: b",
    ]


@pytest.mark.parametrize(
    ("text", "ranks"), [("0", (0,)), ("0,2", (0, 2)), ("0-2,1", (0, 1, 2)), ("3,1", (3, 1))]
)
def test_ranks_are_numbers_and_ranges(text, ranks):
    assert parse_ranks(text) == ranks


@pytest.mark.wording
@pytest.mark.parametrize("text", ["", "a", "0,", "-1", "1-", "0-x", "9" * 12])
def test_what_names_no_ranks_is_refused(text):
    with pytest.raises(ValueError, match="names no ranks"):
        parse_ranks(text)


@pytest.mark.parametrize("code", ["await x\n", "%time 1\n", "!ls\n", "%%time\n1\n", "x?\n"])
def test_what_ipython_runs_is_no_bad_syntax(code):
    refuse_bad_syntax(code)


@pytest.mark.wording
@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("a = 1\nb = = 2\n", "line 2 of the cell: invalid syntax: b = = 2"),
        ("  \n", "the cell is empty"),
        ("x = '\0'\n", "null bytes"),
    ],
)
def test_what_no_rank_could_run_is_refused_before_any_runs_it(code, cause):
    with pytest.raises(SpecError, match=cause):
        refuse_bad_syntax(code)
