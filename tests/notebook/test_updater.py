"""Updater: one thread for all views; the last frame is always drawn."""

from __future__ import annotations

import threading

import pytest

from jupyter_mntrain.notebook.updater import DUTY, INTERVAL_S, MOST_INTERVAL_S, Updater, View

PATIENCE_S = 20.0


class Frames(View):
    """Draws ``count`` frames, and notes by which thread."""

    def __init__(self, count: int, cost: float = 0.0, clock: FakeTime | None = None) -> None:
        self.left = count
        self.cost = cost
        self.clock = clock
        self.times: list[float] = []
        self.threads: set[str] = set()
        self.done = threading.Event()
        self.interval = INTERVAL_S if clock else 0.0
        self.urgent = False

    @property
    def interval_s(self) -> float:
        return self.interval

    def is_urgent(self) -> bool:
        return self.urgent

    def frame(self) -> bool:
        self.threads.add(threading.current_thread().name)
        if self.clock is not None:
            self.times.append(self.clock.now)
            self.clock.spent += self.cost
        self.left -= 1
        if self.left <= 0:
            self.done.set()
        return self.left <= 0


class FakeTime:
    """Jumps to whatever is waited for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.spent = 0.0

    def clock(self) -> float:
        self.now += 0.25
        return self.now

    def cost(self) -> float:
        return self.spent


def live_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "mntrain-live-view"]


def until_idle(updater: Updater) -> None:
    deadline = threading.Event()
    for _ in range(int(PATIENCE_S / 0.01)):
        if updater._thread is None:
            return
        deadline.wait(0.01)
    pytest.fail("the thread goes on without a view")


def test_one_thread_draws_all_views_and_ends_with_the_last():
    updater = Updater()
    views = [Frames(count) for count in (1, 3, 5)]
    for view in views:
        updater.add(view)
        assert len(live_threads()) <= 1
    for view in views:
        assert view.done.wait(PATIENCE_S)
        assert view.threads == {"mntrain-live-view"}
    until_idle(updater)
    assert updater._due == {}


def test_it_begins_again_after_it_has_ended():
    updater = Updater()
    for _ in range(3):
        view = Frames(2)
        updater.add(view)
        assert view.done.wait(PATIENCE_S)
        until_idle(updater)
    assert live_threads() == []


def test_closing_ends_the_thread_at_once():
    updater = Updater()
    view = Frames(10**9)
    view.interval = 3600.0
    updater.add(view)
    while not view.threads:
        threading.Event().wait(0.005)
    updater.close()
    assert updater._thread is None
    assert live_threads() == []


def test_what_is_urgent_does_not_wait_for_its_turn():
    updater = Updater()
    view = Frames(2)
    view.interval = 3600.0
    updater.add(view)
    while view.left == 2:
        threading.Event().wait(0.005)
    view.urgent = True
    assert view.done.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("cost", "gap"), [(0.0, INTERVAL_S), (0.4, 0.4 / DUTY), (9.0, MOST_INTERVAL_S)]
)
def test_costly_frames_are_drawn_less_often(cost, gap):
    time = FakeTime()
    updater = Updater(time.clock, time.cost)
    view = Frames(9, cost, time)
    # By hand, in this thread: time that only jumps when it is asked needs no waiting.
    updater._changed.wait = lambda _: None
    updater._due[view] = 0.0
    updater._work()
    gaps = [b - a for a, b in zip(view.times, view.times[1:], strict=False)]
    assert gaps[0] == pytest.approx(INTERVAL_S, abs=1.1)  # the first frame loads matplotlib
    assert all(one == pytest.approx(gap, abs=1.1) for one in gaps[1:])
