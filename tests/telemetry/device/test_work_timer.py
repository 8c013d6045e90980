"""WorkTimer: work that is held up takes longer, all of it alike."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

from jupyter_mntrain.telemetry.device.work_timer import WorkTimer


class HeldUp:
    """A thread that runs half of the time: a limit of CPU time holds it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran_s = 0.0
        monkeypatch.setattr(time, "thread_time", lambda: self.ran_s)
        monkeypatch.setattr(time, "perf_counter", lambda: 2 * self.ran_s)

    def work(self, seconds: float) -> Callable[[], None]:
        def run() -> None:
            self.ran_s += seconds

        return run


def test_work_is_timed_as_it_ran_and_stretched_by_what_held_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = HeldUp(monkeypatch)
    timer = WorkTimer(torch.device("cpu"))
    assert timer.stretch() == 1.0, "nothing was timed yet"
    timed = timer.timed(thread.work(0.01), thread.work(0.03), seconds=1.0)
    assert timed.means_s == pytest.approx((0.01, 0.03))
    assert timed.variation == pytest.approx(0.0)
    assert timer.stretch() == pytest.approx(2.0)


def test_slow_work_is_done_several_times_though_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = HeldUp(monkeypatch)
    timer, done = WorkTimer(torch.device("cpu")), []
    timer.timed(lambda: (done.append(1), thread.work(5.0)()), seconds=0.1)
    assert len(done) == 4, "once to warm up"


@pytest.mark.parametrize(
    ("seconds", "variation"),
    [
        ((1.0, 1.0, 1.0, 1.0), 0.0),
        ((1.0, 1.0, 1.0, 1.0, 1.0, 50.0), 0.0),
        ((1.0, 2.0, 3.0, 4.0, 5.0), 2 / 1.349 / 3),
    ],
    ids=["they are the same", "one was held up", "they vary"],
)
def test_how_much_rounds_differ_is_told(
    monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, ...], variation: float
) -> None:
    thread = HeldUp(monkeypatch)
    pieces = iter([seconds[0], *seconds])

    def work() -> None:
        thread.work(next(pieces))()

    timed = WorkTimer(torch.device("cpu")).timed(work, seconds=0, least=len(seconds))
    assert timed.variation == pytest.approx(variation, rel=1e-3)
