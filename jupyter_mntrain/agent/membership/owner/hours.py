"""Lent hours: the times of the week at which a machine is lent. Pure; in its local time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from jupyter_mntrain.model.errors import SpecError

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY_MIN = 24 * 60
WEEK_MIN = 7 * DAY_MIN
FORM = '"Mon-Fri 19:00-07:00, Sat-Sun 00:00-24:00"'

_PART = re.compile(
    r"(?:(?P<first>[a-z]+)(?:-(?P<last>[a-z]+))?)?\s*(?P<times>\d.*)?", re.IGNORECASE
)
_TIMES = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})", re.ASCII)


class Hours:
    """The times of the week at which a machine is lent.

    Args:
        text: parts like ``Mon-Fri 19:00-07:00``, separated by commas; without days, every day. A
            time that is not after the one before it is the next day's. Parts may overlap.

    Raises:
        SpecError: it has another form.
    """

    def __init__(self, text: str) -> None:
        week = bytearray(WEEK_MIN)
        for begin, end in _spans(text):
            for minute in range(begin, end):
                week[minute % WEEK_MIN] = 1
        self._weeks = bytes(week * 2)
        """For each minute of two weeks, whether it is lent: what lies ahead needs no wrapping."""

    def is_open(self, now_s: float) -> bool:
        return bool(self._weeks[_now(now_s)])

    def closes_in_s(self, now_s: float) -> float | None:
        """Seconds until they end; ``None`` if they have not begun, or never end."""
        now = _now(now_s)
        end = self._weeks.find(0, now)
        if end <= now:
            return None
        return (end - now) * 60.0 - time.localtime(now_s).tm_sec

    def closes_at(self, now_s: float) -> str:
        """When they end, like ``07:00``, or ``Mon 07:00`` if that is a day or more ahead."""
        return _told(self._weeks.find(0, _now(now_s)), _now(now_s))

    def opens_at(self, now_s: float) -> str:
        """When they begin next."""
        return _told(self._weeks.find(1, _now(now_s)), _now(now_s))

    def ended_at(self, now_s: float) -> str:
        """When they ended last, of those that are over."""
        return clock_text(self._weeks.rfind(1, 0, _now(now_s) + WEEK_MIN) + 1)


def _now(now_s: float) -> int:
    return minute_of_week(time.localtime(now_s))


def minute_of_week(now: time.struct_time) -> int:
    return now.tm_wday * DAY_MIN + now.tm_hour * 60 + now.tm_min


def clock_text(minute: int) -> str:
    """``07:00``; midnight is 00:00."""
    hour, minutes = divmod(minute % DAY_MIN, 60)
    return f"{hour:02}:{minutes:02}"


def _told(minute: int, now: int) -> str:
    day = "" if minute - now < DAY_MIN else f"{DAYS[minute // DAY_MIN % 7]} "
    return day + clock_text(minute)


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """From one minute of the week to another, which may be in the next week."""
    days: list[int] = []
    if not text.strip(" ,"):
        raise _bad("no hours are given")
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if found is None or not part.strip():
            raise _bad(f"{part.strip()!r} is not a time of the week")
        if found["first"]:
            days += _days(found["first"], found["last"])
        if found["times"]:
            begin, end = _times(found["times"].strip())
            for day in days or range(7):
                yield day * DAY_MIN + begin, day * DAY_MIN + end
            days = []
    if days:
        raise _bad(f"no time is given for {DAYS[days[-1]]}")


def _days(first: str, last: str | None) -> list[int]:
    begin, end = _day(first), _day(last or first)
    return [day % 7 for day in range(begin, end + 1 + 7 * (end < begin))]


def _day(text: str) -> int:
    for number, day in enumerate(DAYS):
        if text[:3].lower() == day.lower():
            return number
    raise _bad(f"{text!r} is not a day of the week")


def _times(text: str) -> tuple[int, int]:
    """Minutes of the day; the end may be the next day's."""
    found = _TIMES.fullmatch(text)
    if found is None:
        raise _bad(f"{text!r} is not a time from and to")
    begin, end = (_minute(found[n], found[n + 1]) for n in (1, 3))
    if begin == end:
        raise _bad(f"{text} has no length")
    if begin == DAY_MIN:
        raise _bad("24:00 can only be an end")
    return begin, end if end > begin else end + DAY_MIN


def _minute(hour: str, minute: str) -> int:
    total = int(hour) * 60 + int(minute)
    if int(minute) > 59 or total > DAY_MIN:
        raise _bad(f"{hour}:{minute} is not a time of day")
    return total


def _bad(cause: str) -> SpecError:
    return SpecError(cause, fix=f"write the hours like {FORM}, in this machine's local time")
