"""Offered hours: when they begin and end, across midnight, week ends and changes of the clock."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.agent.membership.availability import Hours
from jupyter_mntrain.model.errors import SpecError

MONDAY_S = 1_767_571_200.0
"""2026-01-05 00:00 UTC."""
HOUR_S, DAY_S = 3600.0, 86_400.0
NIGHTS = "Mon-Fri 19:00-07:00"


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(day: int, hour: float) -> float:
    return MONDAY_S + day * DAY_S + hour * HOUR_S


def test_hours_over_midnight_belong_to_the_day_on_which_they_begin() -> None:
    hours = Hours(NIGHTS)
    assert not hours.is_open(at(0, 6)), "Sunday night is not offered"
    assert not hours.is_open(at(0, 14))
    assert hours.opens_at(at(0, 14)) == "19:00"
    assert hours.is_open(at(0, 19))
    assert hours.closes_at(at(0, 23)) == "07:00"
    assert hours.closes_in_s(at(0, 23)) == 8 * HOUR_S
    assert hours.is_open(at(1, 6.9))
    assert not hours.is_open(at(1, 7))
    assert hours.ended_at(at(1, 8)) == "07:00"
    assert hours.is_open(at(5, 6)), "Friday night ends on Saturday"
    assert hours.opens_at(at(5, 8)) == "Mon 19:00"


def test_they_go_on_from_sunday_to_monday() -> None:
    hours = Hours("Sun 22:00-04:00, sat-sunday 00:00-24:00")
    assert hours.closes_in_s(at(6, 23)) == 5 * HOUR_S
    assert hours.closes_in_s(at(5, 0)) == 52 * HOUR_S, "what overlaps or adjoins is one"
    assert hours.is_open(at(7, 3))
    assert not hours.is_open(at(7, 5))


def test_without_days_they_are_every_day_s_and_all_of_them_never_end() -> None:
    assert Hours("22:00-06:00").is_open(at(3, 23))
    always = Hours("00:00-24:00")
    assert always.is_open(at(2, 12))
    assert always.closes_in_s(at(2, 12)) is None
    assert Hours("Tue, Thu 1:00-2:00").is_open(at(1, 1.5))


def test_they_are_of_the_local_clock_also_when_that_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    hours = Hours("08:00-10:00")
    winter_s = time.mktime((2026, 3, 28, 8, 30, 0, 0, 0, -1))
    summer_s = time.mktime((2026, 3, 29, 8, 30, 0, 0, 0, -1))
    assert summer_s - winter_s == 23 * HOUR_S
    assert hours.is_open(winter_s)
    assert hours.is_open(summer_s)


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "Mon", "Mon 25:00-26:00", "Mon 1:60-2:00", "Mo 1:00-2:00", "Mon 1:00-1:00"),
        *("24:00-01:00", "1:00", "Mon-Fri", "Mon 1-2", "Mon 1:00-2:00,", "1:00-2:00 3:00-4:00"),
        *("Mon--Fri 1:00-2:00", "١:00-2:00"),
    ],
)
def test_what_is_no_time_of_the_week_says_the_form(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        Hours(text)
    assert NIGHTS in caught.value.fix


@given(st.text(alphabet="MonTueSat-:, 0123456789"))
def test_any_text_is_hours_or_an_error_of_ours(text: str) -> None:
    with contextlib.suppress(SpecError):
        assert any(Hours(text).is_open(at(0, minute / 60)) for minute in range(7 * 24 * 60))
