"""Quiet end: exceptions of ranks that exited with code 0."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.agent.warnings.quiet_end import QUIET_S, QuietEnd
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.events import Warned, WarningOver
from tests.wording import says

TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/job/train.py", line 7, in <module>',
    "ValueError: no label",
)
RANKS = (Rank(0), Rank(1))


class Log:
    def __init__(self, path: Path) -> None:
        self.path = path

    def says(self, rank: int, *lines: str) -> None:
        with self.path.open("a") as file:
            file.writelines(f"[node1 rank {rank}] {line}\n" for line in lines)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")


def found(end: QuietEnd, message: str = "") -> list[int | None]:
    """The ranks that are warned of, each with this message."""
    problems = [*end.warnings(RANKS)]
    assert all(one.kind is Kind.TRACEBACK and says(message, one.cause) for one in problems)
    return [one.rank for one in problems]


def test_the_rank_that_ended_with_a_traceback_is_named(log: Log) -> None:
    end = QuietEnd(log.path)
    log.says(0, "step 1", "done")
    log.says(1, *TRACEBACK)
    log.says(0, *["more of rank 0"] * 20)
    assert found(end, "code 0: ValueError: no label (train.py, line 7)") == [1]
    (problem,) = end.warnings(RANKS)
    assert problem.detail == "\n".join(TRACEBACK)


def test_after_a_traceback_from_which_steps_went_on_there_is_nothing_to_warn_of(log: Log) -> None:
    """A script that prints nothing but this, and reports its steps."""
    end = QuietEnd(log.path)
    log.says(1, *TRACEBACK)
    end.look([])
    end.look(RANKS)
    assert found(end) == []


def test_a_traceback_right_after_the_last_step_is_found(log: Log) -> None:
    end = QuietEnd(log.path)
    log.says(1, "step 1")
    end.look([Rank(1)])
    log.says(1, *TRACEBACK)
    end.look([Rank(1)])  # the step was reported before the exception, and is read after it
    assert found(end, "code 0: ValueError: no label (train.py, line 7)") == [1]


def test_what_a_recorder_saw_is_enough(log: Log) -> None:
    end = QuietEnd(log.path)
    end.failed(Rank(1), "ValueError: no label")
    assert found(end, "code 0: ValueError: no label") == [1]


def test_without_a_log_nothing_is_said(log: Log) -> None:
    end = QuietEnd(log.path)
    end.look(RANKS)
    assert found(end) == []


class Clock:
    """A clock that a test moves."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


WORKER = (
    "Traceback (most recent call last):",
    '  File "/usr/lib/python3/multiprocessing/queues.py", line 244, in _feed',
    "OSError: AF_UNIX path too long",
)


def living(
    end: QuietEnd, clock: Clock, after_s: float, stepped: tuple[Rank, ...] = ()
) -> list[object]:
    """What is said of the ranks, as it is asked for often, ``after_s`` later."""
    until_s, said = clock.now_s + after_s, list[object]()
    while clock.now_s < until_s:
        clock.now_s += 1.0
        end.look(stepped)
        said += end.living(RANKS, stepped)
    return said


def test_a_rank_that_does_nothing_after_a_traceback_is_warned_of_while_it_lives(log: Log) -> None:
    clock = Clock()
    end = QuietEnd(log.path, clock)
    log.says(0, "epoch 1")
    assert living(end, clock, 3 * QUIET_S) == []
    log.says(1, *WORKER)
    log.says(0, *["progress"] * 3)
    (warned,) = living(end, clock, 3 * QUIET_S)
    assert isinstance(warned, Warned)
    assert (warned.problem.kind, warned.problem.rank) == (Kind.TRACEBACK, 1)
    assert "AF_UNIX path too long" in warned.problem.cause
    assert says("--env TMPDIR=/tmp", warned.problem.fix)
    assert living(end, clock, 3 * QUIET_S) == []
    assert living(end, clock, 2, (Rank(1),)) == [WarningOver(kind=Kind.TRACEBACK, rank=Rank(1))]
    assert living(end, clock, 3 * QUIET_S) == []


def test_a_rank_that_prints_on_after_a_traceback_is_not_warned_of(log: Log) -> None:
    clock = Clock()
    end = QuietEnd(log.path, clock)
    log.says(0, *TRACEBACK)
    for _ in range(5):
        assert living(end, clock, QUIET_S) == []
        log.says(0, "went on")
        log.says(0, *TRACEBACK)


def test_a_warning_ends_once_its_rank_prints_on(log: Log) -> None:
    clock = Clock()
    end = QuietEnd(log.path, clock)
    log.says(0, *TRACEBACK)
    assert len(living(end, clock, 3 * QUIET_S)) == 1
    log.says(0, *["went on"] * 20)
    assert living(end, clock, 2 * QUIET_S) == [WarningOver(kind=Kind.TRACEBACK, rank=Rank(0))]
