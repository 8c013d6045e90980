"""Last traceback: whether a rank's output ends with an exception. Pure.

A program may catch every exception, print it, and exit with code 0. A traceback that it printed and
went on from is none of our business.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record

MOST_LINES_AFTER = tunables.count("failure.lines_after_traceback")

_HEAD = "Traceback (most recent call last):"
_IGNORED = ("Exception ignored in", "Exception ignored on", "Exception ignored while")
"""What Python says of an exception in a destructor, at the end of many a good program."""
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(:.*)?$")
_PLACE = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+)')
_LIBRARIES = ("/site-packages/", "/lib/python", "<frozen ")
_NO_TEXT = re.compile(r"\s|$|frame #\d+|Exception raised from|\[[WIE]\d{3,4} ")
"""Lines that belong to what was said before, or that C++ libraries log while they end."""


class LastTraceback(Record, frozen=True):
    """A traceback.

    Args:
        message: exception and, if known, the script's own line: ``ValueError: x (a.py, line 3)``.
        lines: all of it.
    """

    message: str
    lines: tuple[str, ...]


def last_traceback(lines: Sequence[str]) -> LastTraceback | None:
    """Find the traceback that a rank's output ends with; ``None`` if it ends with something else.

    Args:
        lines: output of one rank, without prefixes.
    """
    found: LastTraceback | None = None
    after = 0
    index = 0
    while index < len(lines):
        if lines[index] != _HEAD:
            after += not _NO_TEXT.match(lines[index])
            index += 1
            continue
        end = index + 1
        while end < len(lines) and lines[end][:1] in (" ", "\t"):
            end += 1
        is_ignored = index > 0 and lines[index - 1].startswith(_IGNORED)
        if is_ignored:
            after -= 1  # the line that says so
        elif end < len(lines) and _EXCEPTION.match(lines[end]):
            whole = tuple(lines[index : end + 1])
            found, after = LastTraceback(message=_with_place(whole), lines=whole), 0
        index = end + 1
    return found if after <= MOST_LINES_AFTER else None


def _with_place(lines: Sequence[str]) -> str:
    places = [match for line in lines if (match := _PLACE.match(line))]
    own = [one for one in places if not any(part in one["file"] for part in _LIBRARIES)]
    if not own:
        return lines[-1]
    return f"{lines[-1]} ({PurePath(own[-1]['file']).name}, line {own[-1]['line']})"
