"""Stall watchdog, by a clock that tests set."""

from __future__ import annotations

import pytest

from jupyter_mntrain.agent.failure.stacks import (
    ANSWER_S,
)
from jupyter_mntrain.agent.failure.stall import (
    ASK_AGAIN_S,
    CONFIRMED_AFTER_S,
    EARLY_S,
    FIRST_STEP_S,
    STALL_S,
    Watchdog,
)
from jupyter_mntrain.agent.failure.stall import LEAST_S as PAUSE_S
from jupyter_mntrain.model.failure.sites import Site
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.events import Resumed, Stalled
from jupyter_mntrain.model.records.job import Doing, RankStack

ZERO = Rank(0)


class Asked:
    """Ranks that answer when they are told to."""

    def __init__(self) -> None:
        self.times = 0
        self.is_answered = False
        self.doing: Doing = "busy"
        self.site: Site | None = None

    def __call__(self) -> list[Asked]:
        self.times += 1
        return [self]

    def result(self) -> RankStack:
        doing: Doing = self.doing if self.is_answered else "not known"
        return RankStack(rank=ZERO, doing=doing, site=self.site)


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def dog(asked: Asked) -> Watchdog:
    return Watchdog(asked)  # type: ignore[arg-type]


def test_a_script_that_tells_nothing_is_never_called_stalled(dog: Watchdog, asked: Asked) -> None:
    assert [dog.look(now_s) for now_s in (0.0, 100.0, 1e6)] == [None, None, None]
    assert asked.times == 0


def test_a_script_that_reports_nothing_is_stalled_when_it_exchanges_nothing_for_long(
    dog: Watchdog, asked: Asked
) -> None:
    asked.is_answered = True
    dog.began(0.0)
    for second in range(100):
        dog.exchanged(second * 1_000_000, float(second))
    assert dog.limit_s == PAUSE_S
    assert dog.look(98.0 + PAUSE_S) is None
    assert asked.times == 0
    looks = [dog.look(at) for at in (99.0 + PAUSE_S, 100.0 + PAUSE_S)]
    assert looks == [None, None], "it may be a moment between two exchanges"
    again_s = 100.0 + PAUSE_S + CONFIRMED_AFTER_S
    assert dog.look(again_s) is None
    event = dog.look(again_s + 0.1)
    assert isinstance(event, Stalled)
    assert not event.stall.is_reported
    dog.exchanged(200_000_000, again_s + 1)
    assert isinstance(dog.look(again_s + 1), Resumed)


def test_longer_pauses_are_known_and_keep_alives_are_no_exchange(dog: Watchdog) -> None:
    dog.began(0.0)
    for number in range(50):
        dog.exchanged(number * 1_000_000, 60.0 * number)
    assert dog.limit_s == 180.0
    last_s = 60.0 * 49
    for second in range(1, 180):
        dog.exchanged(49_000_000 + second * 100, last_s + second)
    assert dog.look(last_s + 179) is None


def test_ranks_that_report_nothing_and_never_meet_are_stalled_early(
    dog: Watchdog, asked: Asked
) -> None:
    asked.is_answered, asked.doing, asked.site = True, "waiting for others", "rendezvous"
    dog.began(0.0)
    assert dog.look(EARLY_S - 0.1) is None
    for at in (EARLY_S, EARLY_S + 0.1, EARLY_S + 0.2 + CONFIRMED_AFTER_S):
        assert dog.look(at) is None
    assert isinstance(dog.look(EARLY_S + 0.3 + CONFIRMED_AFTER_S), Stalled)


@pytest.mark.parametrize(
    ("steps_s", "limit_s"),
    [([], FIRST_STEP_S), ([0.1] * 5, STALL_S), ([1.0, 1.0, 60.0], STALL_S), ([8.0] * 3, 24.0)],
)
def test_how_long_nothing_may_happen(dog: Watchdog, steps_s: list[float], limit_s: float) -> None:
    dog.got_on(0.0)
    for number, step_s in enumerate(steps_s, 1):
        dog.stepped(ZERO, number, step_s, 0.0)
    assert dog.limit_s == limit_s
    assert dog.look(limit_s - 0.1) is None


def test_it_asks_once_waits_for_answers_and_says_it(dog: Watchdog, asked: Asked) -> None:
    dog.stepped(ZERO, 7, 0.1, 0.0)
    assert dog.look(STALL_S) is None
    assert dog.look(STALL_S + 0.1) is None
    assert asked.times == 1
    asked.is_answered = True
    event = dog.look(STALL_S + 0.2)
    assert isinstance(event, Stalled)
    assert (event.stall.step, event.stall.limit_s) == (7, STALL_S)
    assert [stack.doing for stack in event.stall.stacks] == ["busy"]
    assert dog.look(STALL_S + 0.3) is None, "said once"


def test_who_does_not_answer_is_not_waited_for_for_ever(dog: Watchdog) -> None:
    dog.stepped(ZERO, 1, 0.1, 0.0)
    assert dog.look(STALL_S) is None
    event = dog.look(STALL_S + ANSWER_S)
    assert isinstance(event, Stalled)
    assert [stack.doing for stack in event.stall.stacks] == ["not known"]


def test_a_hang_that_goes_on_is_looked_at_anew(dog: Watchdog, asked: Asked) -> None:
    asked.is_answered = True
    dog.stepped(ZERO, 1, 0.1, 0.0)
    dog.look(STALL_S)
    assert isinstance(dog.look(STALL_S), Stalled)
    assert dog.look(STALL_S + ASK_AGAIN_S - 0.1) is None
    dog.look(STALL_S + ASK_AGAIN_S)
    assert isinstance(dog.look(STALL_S + ASK_AGAIN_S), Stalled)
    assert asked.times == 2


def test_when_something_gets_on_it_is_over_and_may_begin_again(dog: Watchdog, asked: Asked) -> None:
    asked.is_answered = True
    dog.stepped(ZERO, 1, 0.1, 0.0)
    dog.look(STALL_S)
    assert isinstance(dog.look(STALL_S), Stalled)
    dog.got_on(STALL_S + 1)
    assert isinstance(dog.look(STALL_S + 1), Resumed)
    assert dog.look(STALL_S + 2) is None
    dog.look(2 * STALL_S + 1)
    assert isinstance(dog.look(2 * STALL_S + 1), Stalled)


@pytest.mark.parametrize(("is_waiting", "is_told"), [(True, True), (False, False)])
def test_before_the_first_step_only_those_who_all_wait_are_called_stalled(
    dog: Watchdog, asked: Asked, is_waiting: bool, is_told: bool
) -> None:
    asked.is_answered = True
    asked.doing = "waiting for others" if is_waiting else "busy"
    dog.got_on(0.0)
    assert dog.look(EARLY_S - 0.1) is None
    assert asked.times == 0
    dog.look(EARLY_S)
    event = dog.look(EARLY_S)
    assert isinstance(event, Stalled) == is_told
    if not is_told:
        dog.look(FIRST_STEP_S)
        assert isinstance(dog.look(FIRST_STEP_S), Stalled), "that is long for anything"


def test_before_the_first_step_a_node_whose_ranks_have_ended_loads_nothing() -> None:
    dog = Watchdog(list)
    dog.got_on(0.0)
    dog.look(EARLY_S)
    event = dog.look(EARLY_S)
    assert isinstance(event, Stalled)
    assert event.stall.stacks == ()


def test_progress_while_answers_are_waited_for_is_no_stall(dog: Watchdog) -> None:
    dog.stepped(ZERO, 1, 0.1, 0.0)
    dog.look(STALL_S)
    dog.got_on(STALL_S)
    assert dog.look(STALL_S + ANSWER_S) is None
