"""Printed lines: finds what a rank, or torchrun, printed last in the log. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from jupyter_mntrain.agent.attempt.directory import LOG_TAG
from jupyter_mntrain.model.ids import Rank

LOG_TAIL_BYTES = 256 * 2**10
"""Size of the end of a log that is searched for the cause."""
DETAIL_LINES = 40
"""Maximum number of lines of the log that are shown with a cause."""
LINE_LIMIT = 500
"""Maximum number of characters of such a line: scripts print whole tensors."""

RECENT_S = 3.0
"""What a rank printed longer than this before its last line, it went on from."""

_ERROR_LINE = re.compile(r"^[\w.]*(Error|Exception|Interrupt|Exit)\b.*")
_ABORT_LINE = re.compile(r"^ *what\(\): +(?P<reason>.+)")
_NO_SCRIPT = re.compile(r"^\S*python[\d.]*: can't open file '(?:.*/)?([^'/]+)': .*")
_REJECTS = re.compile(r"(\S+: )?error: \S")
_OF_PYTHON = re.compile(r"^\S*/python[\d.]*: ")
_NOISE = re.compile(
    r"^(E|W|I)\d{4} |^\[(W|E|I)\d{4} |^=+$|^-+$|^Root Cause|^Failures:|^\s*$|^" + re.escape(LOG_TAG)
)
TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(: .*|:)?")
_OF_HYDRA = "Set the environment variable HYDRA_FULL_ERROR=1"
"""What Hydra prints below an exception that it has caught, before it exits with code 1."""
_HYDRA_BEGINS = re.compile(
    r"(Could not |Cannot |In '|Primary config|Missing |You must |Key '|Error )"
)
_GROUP_BEGINS = re.compile(r"\s*\+ Exception Group Traceback ")
_MARGIN = re.compile(r"\s*[|+] ?")
_RULE = re.compile(r"\s*\+-")
_SECOND = re.compile(r"\s*\+-+ 2 -+$")
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH_TAG = re.compile(r"^\[rank\d+\]: ?")
"""Prefix that torch.distributed adds to an uncaught exception."""


def tail(path: Path) -> str:
    """Read the end of a log; empty if it does not exist."""
    return tail_bytes(path).decode(errors="replace")


def tail_bytes(path: Path) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
        return file.read()


def output_of(rank: Rank, log: str) -> list[str]:
    """Return the lines of one rank, without its tags."""
    tag = re.compile(rf"^\[\S+ rank {rank}\] ?")
    return [_TORCH_TAG.sub("", tag.sub("", line)) for line in log.split("\n") if tag.match(line)]


def latest_output_of(
    rank: Rank, log: bytes, end: int, marks: Sequence[tuple[int, float]]
) -> list[str]:
    """Return the lines of one rank that it printed within :data:`RECENT_S` of its last one.

    Args:
        log: its last bytes.
        end: their last offset.
        marks: offsets and the times by which what is before them had been written; all lines are
            recent if there are none.
    """
    tag = re.compile(rb"^\[\S+ rank %d\] ?" % rank)
    offset = end - len(log)
    written: list[tuple[float, bytes]] = []
    for line in log.split(b"\n"):
        offset += len(line) + 1
        if tag.match(line):
            at = bisect_left(marks, (offset,))
            written.append((marks[min(at, len(marks) - 1)][1] if marks else 0.0, line))
    recent = [line for time_s, line in written if time_s >= written[-1][0] - RECENT_S]
    return output_of(rank, b"\n".join(recent).decode(errors="replace"))


def last_lines(lines: Sequence[str]) -> str:
    return "\n".join(line[:LINE_LIMIT] for line in lines[-DETAIL_LINES:])


def spoken(lines: Sequence[str]) -> list[str]:
    """Return the lines that are not torchrun's own."""
    return [line for line in lines if not _NOISE.match(line)]


def last_spoken(lines: Sequence[str]) -> str:
    """Return the last line that is not torchrun's own; empty if there is none."""
    said = spoken(lines)
    return _OF_PYTHON.sub("", said[-1])[:LINE_LIMIT] if said else ""


def rejection(lines: Sequence[str]) -> str:
    """Return what a parser of arguments says it rejects, if the output ends with that; else empty.

    jsonargparse explains itself in indented lines below.
    """
    said = [_OF_PYTHON.sub("", line) for line in spoken(lines)]
    more = list(takewhile(lambda line: line.startswith((" ", "\t")), reversed(said)))
    at = len(said) - len(more) - 1
    if at < 0 or not _REJECTS.match(said[at]):
        return ""
    return " ".join([said[at], *(line.strip() for line in reversed(more))])[:LINE_LIMIT]


def missing_script(lines: Sequence[str]) -> str | None:
    """Return the script that Python could not open, if that is the last thing it printed."""
    said = spoken(lines)
    missing = _NO_SCRIPT.match(said[-1]) if said else None
    return missing[1] if missing else None


def last_error(lines: Sequence[str]) -> str | None:
    """Return the error that the output ends with, and where it was raised.

    An error that was printed earlier was handled, and explains nothing.
    """
    said = spoken(_without_margins(lines))
    if not said or not _ERROR_LINE.match(said[-1]):
        return None
    return with_place(said[-1], "\n".join(said))


def last_traceback_error(lines: Sequence[str]) -> str | None:
    """Return the exception of the last traceback, and its place, whatever was printed after it.

    What a program has printed before may reach the log after it: its standard output waits in a
    buffer.
    """
    lines = _without_margins(lines)
    heads = [at for at, line in enumerate(lines) if line == TRACEBACK]
    for at in reversed(heads):
        after = lines[at + 1 :]
        end = next((n for n, line in enumerate(after) if not line.startswith((" ", "\t"))), None)
        is_ignored = at > 0 and lines[at - 1].startswith("Exception ignored")
        if end is not None and not is_ignored and _EXCEPTION.fullmatch(after[end]):
            return with_place(after[end], "\n".join(after[:end]))
    return None


def _without_margins(lines: Sequence[str]) -> list[str]:
    """Return the lines with the first exception of a group as if it had been raised alone: Python
    prints each with a margin, in the order in which they were raised.
    """
    begins = [at for at, line in enumerate(lines) if _GROUP_BEGINS.match(line)]
    if not begins:
        return [*lines]
    block = lines[begins[-1] :]
    size = next((at for at, line in enumerate(block) if not _MARGIN.match(line)), len(block))
    second = next((at for at, line in enumerate(block) if _SECOND.match(line)), size)
    inner = [_MARGIN.sub("", line) for line in block[:second] if not _RULE.match(line)]
    return [*lines[: begins[-1]], *inner, *block[size:]]


def hydra_error(lines: Sequence[str]) -> str | None:
    """Return the error that Hydra says has ended a program below ``@hydra.main``, or ``None``.

    It prints the traceback of the script's exceptions, and only the message of its own.
    """
    ends = [at for at, line in enumerate(lines) if line.startswith(_OF_HYDRA)]
    if not ends:
        return None
    before = list(lines[: ends[-1]])
    begins = [at for at, line in enumerate(before) if line.startswith("Error executing job with")]
    block = before[begins[-1] + 1 :] if begins else before
    if (error := last_traceback_error(block)) is not None:
        return error
    said = [line for line in spoken(block)[-DETAIL_LINES:] if not line.startswith((" ", "\t"))]
    if not begins:
        first = next((at for at, line in enumerate(said) if _HYDRA_BEGINS.match(line)), -1)
        said = said[first:]
    return " ".join(said)[:LINE_LIMIT] or None


def abort_reason(lines: Sequence[str]) -> str:
    """Return the reason that a program printed when it aborted; empty if there is none.

    C++ prints one that nothing else looks like; Python's must be the last line, as it always is.
    """
    said = [match["reason"] for line in lines if (match := _ABORT_LINE.match(line))]
    return said[-1][:LINE_LIMIT] if said else (last_error(lines) or "")


def with_place(line: str, traceback: str) -> str:
    """Append the line of the script from which an exception came."""
    places = [(file, int(number)) for file, number in _PLACE.findall(traceback)]
    return placed(line, places)


def placed(line: str, places: Sequence[tuple[str, int | None]]) -> str:
    """Append the innermost (file, line) that belongs to the script."""
    own = [place for place in places if is_own(place[0])]
    line = line.strip()[:LINE_LIMIT]
    return f"{line} ({Path(own[-1][0]).name}, line {own[-1][1]})" if own else line


def is_own(file: str) -> bool:
    """Return whether a source file is the user's, and not a library's or Python's own."""
    if file in {"<string>", "<stdin>"}:
        return True
    return not ("/site-packages/" in file or "/lib/python" in file or file.startswith("<"))
