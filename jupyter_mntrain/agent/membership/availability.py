"""Availability: what a machine's owner offers to jobs, and when; stored in the state directory."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import agreeing, numbered
from jupyter_mntrain.model.records.node import Availability, Drain
from jupyter_mntrain.trust.shared_file import SharedFile

# Offered hours: the times of the week at which a machine is offered. Pure; in its local time.


DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY_MIN = 24 * 60
WEEK_MIN = 7 * DAY_MIN
FORM = '"Mon-Fri 19:00-07:00, Sat-Sun 00:00-24:00"'

_PART = re.compile(
    r"(?:(?P<first>[a-z]+)(?:-(?P<last>[a-z]+))?)?\s*(?P<times>\d.*)?", re.IGNORECASE
)
_TIMES = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})", re.ASCII)


class Hours:
    """The hours of the week at which a machine is offered.

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
        """For each minute of two weeks, whether it is offered: what lies ahead needs no
        wrapping."""

    def is_open(self, now_s: float) -> bool:
        return bool(self._weeks[_now(now_s)])

    def closes_in_s(self, now_s: float) -> float | None:
        """Return the seconds until the offered hours end; ``None`` outside of them, or if they
        never end.
        """
        now = _now(now_s)
        end = self._weeks.find(0, now)
        if end <= now:
            return None
        return (end - now) * 60.0 - time.localtime(now_s).tm_sec

    def closes_at(self, now_s: float) -> str:
        """Return when they end, like ``07:00``, or ``Mon 07:00`` if that is a day or more ahead."""
        return _told(self._weeks.find(0, _now(now_s)), _now(now_s))

    def opens_at(self, now_s: float) -> str:
        """Return when they begin next."""
        return _told(self._weeks.find(1, _now(now_s)), _now(now_s))

    def ended_at(self, now_s: float) -> str:
        """Return when they last ended."""
        return clock_text(self._weeks.rfind(1, 0, _now(now_s) + WEEK_MIN) + 1)


def _now(now_s: float) -> int:
    return minute_of_week(time.localtime(now_s))


def minute_of_week(now: time.struct_time) -> int:
    return now.tm_wday * DAY_MIN + now.tm_hour * 60 + now.tm_min


def clock_text(minute: int) -> str:
    """Format minutes of the day as ``07:00``; midnight is 00:00."""
    hour, minutes = divmod(minute % DAY_MIN, 60)
    return f"{hour:02}:{minutes:02}"


def _told(minute: int, now: int) -> str:
    day = "" if minute - now < DAY_MIN else f"{DAYS[minute // DAY_MIN % 7]} "
    return day + clock_text(minute)


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Parse hours into spans of minutes of the week. The end may be in the next week."""
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
    """Parse a span into minutes of the day. The end may be on the next day."""
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


# Owner's word: what is offered, kept in the node's state directory, and what it refuses now.
#
# Only the machine's user changes it, on the machine: ``mntrain agent drain`` and the like write the
# file, and the running agent reads it again when it has changed. No request can.


FILE = "availability.json"
OWNER = "a user of this machine"
"""For the audit log: who may change it."""

DAY_S = 86_400.0
WAIT = "leave it out, or queue the job with --queue: it starts when the node takes jobs again"


def availability_file(state: Path) -> SharedFile[Availability]:
    return SharedFile(state / FILE, Availability, what="what this machine offers")


def read_availability(file: SharedFile[Availability]) -> Availability:
    """Read what the owner offers.

    Raises:
        SpecError: the file is damaged, or cannot be read.
    """
    try:
        availability = file.read()
        if availability.hours:
            Hours(availability.hours)
    except SpecError as error:
        fix = (
            "correct the file on that machine, or offer everything again: mntrain agent offer --all"
        )
        raise SpecError(error.cause, fix=fix) from error
    return availability


class NodeAvailability:
    """What the owner offers, as of the last :meth:`look`.

    Args:
        state: the node's state directory.
        clock: Unix time.
    """

    def __init__(self, state: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = availability_file(state)
        self._clock = clock
        self._seen: tuple[int, ...] | None = None
        self._damage: Problem | None = None
        self._said = Availability()
        self.hours: Hours | None = None
        self.look()

    def look(self) -> None:
        """Read the file again if it has changed."""
        try:
            found = self._file.path.stat()
            seen: tuple[int, ...] = (found.st_mtime_ns, found.st_ino, found.st_size)
        except OSError:  # it is read below: one that may not be read is an error, none is not
            seen = ()
        if seen and seen == self._seen:
            return
        self._seen = seen
        try:
            self._said = read_availability(self._file)
            self.hours = Hours(self._said.hours) if self._said.hours else None
            self._damage = None
        except SpecError as error:
            # It may have held less than everything, so nothing is offered until it can be read.
            self._damage = msgspec.structs.replace(error.problem, kind=Kind.NOT_OFFERED)

    @property
    def availability(self) -> Availability:
        """What is offered, without a drain that is over."""
        return current(self._said, self._clock())

    @property
    def refusal(self) -> Problem | None:
        """Why the node takes no new job now; ``None`` if it does."""
        drain, now_s = self.availability.drain, self._clock()
        if self._damage is not None:
            return self._damage
        if drain is not None:
            return Problem(kind=Kind.DRAINED, cause=drained(drain, now_s), fix=WAIT)
        if self.hours is not None and not self.hours.is_open(now_s):
            now = clock_text(minute_of_week(time.localtime(now_s)))
            cause = f"its owner offers it from {self.hours.opens_at(now_s)}; it is {now} there"
            return Problem(kind=Kind.OUT_OF_HOURS, cause=cause, fix=WAIT)
        return None

    def refuse_gpus(self, gpus: Sequence[int], node: str) -> None:
        """Refuse GPUs that the owner does not offer.

        Raises:
            RefusedError: one of them is not.
        """
        availability = self._said
        kept = [index for index in gpus if not availability.offers_gpu(index)]
        if kept:
            offered = numbered("GPU", availability.gpus) if availability.gpus else "none"
            raise RefusedError(
                f"{numbered('GPU', kept)} {agreeing(kept, 'is', 'are')} not offered by its owner "
                f"(offered: {offered})",
                kind=Kind.NOT_OFFERED,
                fix="choose from the GPUs that 'nodes' lists as offered",
                node=node,
            )


def current(availability: Availability, now_s: float) -> Availability:
    """Return what is offered at a given time, by which a drain may be over."""
    drain = availability.drain
    if drain is None or drain.until_s is None or now_s < drain.until_s:
        return availability
    return msgspec.structs.replace(availability, drain=None)


def drained(drain: Drain, now_s: float) -> str:
    """Describe that a node is drained, until when and why, without naming the node."""
    until = "" if drain.until_s is None else f" until {moment_text(drain.until_s, now_s)}"
    reason = f": {drain.reason}" if drain.reason else ""
    return f"its owner drained it{until}{reason}"


def moment_text(at_s: float, now_s: float) -> str:
    """Format a local time: ``18:00``, with the date if it is a day or more ahead."""
    form = "%H:%M" if at_s - now_s < DAY_S else "%Y-%m-%d %H:%M"
    return time.strftime(form, time.localtime(at_s))
