"""Lending: what the owner of a machine lends, and when; kept in the node's state directory."""

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
from jupyter_mntrain.model.records.lending import Drain, Lending
from jupyter_mntrain.trust.shared_file import SharedFile

# Lent hours: the times of the week at which a machine is lent. Pure; in its local time.


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


# Owner's word: what is lent, kept in the node's state directory, and what it refuses now.
#
# Only the machine's user changes it, on the machine: ``mntrain agent drain`` and the like write the
# file, and the running agent reads it again when it has changed. No request can.


FILE = "lending.json"
OWNER = "a user of this machine"
"""For the audit log: who may change it."""

DAY_S = 86_400.0
WAIT = "leave it out, or queue the job with --queue: it starts when the node takes jobs again"


def lending_file(state: Path) -> SharedFile[Lending]:
    return SharedFile(state / FILE, Lending, what="what this machine lends")


def read_lending(file: SharedFile[Lending]) -> Lending:
    """Read what is lent.

    Raises:
        SpecError: the file is damaged, or cannot be read.
    """
    try:
        lending = file.read()
        if lending.hours:
            Hours(lending.hours)
    except SpecError as error:
        fix = "correct the file on that machine, or lend everything again: mntrain agent lend --all"
        raise SpecError(error.cause, fix=fix) from error
    return lending


class OwnersWord:
    """What the owner lends, as of the last :meth:`look`.

    Args:
        state: the node's state directory.
        clock: Unix time.
    """

    def __init__(self, state: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = lending_file(state)
        self._clock = clock
        self._seen: tuple[int, ...] | None = None
        self._damage: Problem | None = None
        self._said = Lending()
        self.hours: Hours | None = None
        self.look()

    def look(self) -> None:
        """Read the file again, if it has changed."""
        try:
            found = self._file.path.stat()
            seen: tuple[int, ...] = (found.st_mtime_ns, found.st_ino, found.st_size)
        except OSError:  # it is read below: one that may not be read is an error, none is not
            seen = ()
        if seen and seen == self._seen:
            return
        self._seen = seen
        try:
            self._said = read_lending(self._file)
            self.hours = Hours(self._said.hours) if self._said.hours else None
            self._damage = None
        except SpecError as error:
            # It may have held less than everything, so nothing is lent until it can be read.
            self._damage = msgspec.structs.replace(error.problem, kind=Kind.NOT_LENT)

    @property
    def lending(self) -> Lending:
        """What is lent; a drain that is over is left out."""
        return current(self._said, self._clock())

    @property
    def refusal(self) -> Problem | None:
        """Why the node takes no new job now."""
        drain, now_s = self.lending.drain, self._clock()
        if self._damage is not None:
            return self._damage
        if drain is not None:
            return Problem(kind=Kind.DRAINED, cause=drained(drain, now_s), fix=WAIT)
        if self.hours is not None and not self.hours.is_open(now_s):
            now = clock_text(minute_of_week(time.localtime(now_s)))
            cause = f"its owner lends it from {self.hours.opens_at(now_s)}; it is {now} there"
            return Problem(kind=Kind.OUT_OF_HOURS, cause=cause, fix=WAIT)
        return None

    def refuse_gpus(self, gpus: Sequence[int], node: str) -> None:
        """Refuse GPUs that are not lent.

        Raises:
            RefusedError: one of them is not.
        """
        lending = self._said
        kept = [index for index in gpus if not lending.lends_gpu(index)]
        if kept:
            lent = numbered("GPU", lending.gpus) if lending.gpus else "none"
            raise RefusedError(
                f"{numbered('GPU', kept)} {agreeing(kept, 'is', 'are')} not lent by its owner "
                f"(lent: {lent})",
                kind=Kind.NOT_LENT,
                fix="choose from the GPUs that 'nodes' lists as lent",
                node=node,
            )


def current(lending: Lending, now_s: float) -> Lending:
    """What is lent at a time: a drain may be over by then."""
    drain = lending.drain
    if drain is None or drain.until_s is None or now_s < drain.until_s:
        return lending
    return msgspec.structs.replace(lending, drain=None)


def drained(drain: Drain, now_s: float) -> str:
    """Say that, until when and why a node is drained, without the node."""
    until = "" if drain.until_s is None else f" until {moment_text(drain.until_s, now_s)}"
    reason = f": {drain.reason}" if drain.reason else ""
    return f"its owner drained it{until}{reason}"


def moment_text(at_s: float, now_s: float) -> str:
    """A time by this machine's clock: ``18:00``, with the date if it is a day or more ahead."""
    form = "%H:%M" if at_s - now_s < DAY_S else "%Y-%m-%d %H:%M"
    return time.strftime(form, time.localtime(at_s))
