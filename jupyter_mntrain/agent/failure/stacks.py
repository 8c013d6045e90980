"""Stacks of a rank: its state in the kernel, and its Python stacks if it answers."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from jupyter_mntrain.agent.attempt.processes import metrics_of, start_time
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.sites import Frame, Site, site_of
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import Doing, RankStack
from jupyter_mntrain.telemetry.stacks import STACK_SIGNAL, stack_file

ANSWER_S = tunables.seconds("watchdog.stacks_timeout_s")

LOOK_EVERY_S = 0.02

MOST_TEXT = 8_000
"""Characters of all threads' stacks that are kept of a rank."""

MOST_READ = 10 * MOST_TEXT
"""Bytes from the end of an answer, where the main thread is, that are looked at."""

_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<name>.*)$')
_LIBRARIES = ("/torch/", "/jupyter_mntrain/", "/lib/python3", "<frozen ")
"""Whose lines are not "own code" to a person who looks for his own."""


class StackRequest:
    """One question to one rank, and what has come of it.

    Args:
        directory: the attempt's.
    """

    def __init__(self, directory: Path, rank: Rank, pid: int) -> None:
        self.rank = rank
        self.pid = pid
        self._path = metrics_of(directory) / stack_file(rank)
        self._before = _size(self._path)
        self._started = start_time(pid)
        self._state = kernel_state(pid)
        self._will_answer = False
        self._blocked_before = threads_that_block(pid, STACK_SIGNAL)
        if self._state not in ("T", "t", "Z", "") and answers_to(pid, STACK_SIGNAL):
            try:
                os.kill(pid, STACK_SIGNAL)
                self._will_answer = True
            except (ProcessLookupError, PermissionError):
                self._state = ""

    @property
    def is_answered(self) -> bool:
        """Whether nothing more is to be waited for.

        faulthandler writes its answer piece by piece, and the kernel blocks the signal in the
        thread that does so until it is done.
        """
        if not self._will_answer:
            return True
        # In this order: who has begun to write does block it.
        return _size(self._path) > self._before and not (
            threads_that_block(self.pid, STACK_SIGNAL) - self._blocked_before
        )

    def result(self) -> RankStack:
        """What is known by now."""
        text = ""
        if (size := _size(self._path)) > self._before:
            with self._path.open("rb") as file:
                file.seek(max(self._before, size - MOST_READ))
                text = file.read(MOST_READ).decode(errors="replace")
        frames = main_thread(text)
        site = site_of(frames, source_line(frames, self.pid))
        doing = judge(self._state, frames, site)
        return RankStack(
            rank=self.rank,
            pid=self.pid,
            doing=doing,
            where=own_line(frames),
            site=site if doing == "waiting for others" else None,
            text=text[-MOST_TEXT:],
        )


def answers(asked: Sequence[StackRequest]) -> list[RankStack]:
    """What they say within :data:`ANSWER_S`. Blocks; use a thread."""
    until = time.monotonic() + ANSWER_S
    while time.monotonic() < until and not all(one.is_answered for one in asked):
        time.sleep(LOOK_EVERY_S)
    return [one.result() for one in asked]


def main_thread(text: str) -> list[Frame]:
    """Frames of the main thread, which faulthandler tells last."""
    frames: list[Frame] = []
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            frames = []
        elif match := _FRAME.match(line):
            frames.append((match["file"], int(match["line"]), match["name"]))
    return frames


def judge(state: str, frames: list[Frame], site: Site | None) -> Doing:
    """What a rank is at.

    Args:
        state: the kernel's letter for it.
        site: where it waits for another rank, if it does.
    """
    if state in ("T", "t"):
        return "stopped"
    if state == "D":
        return "in the kernel"
    if not frames:
        return "not known"
    return "busy" if site is None else "waiting for others"


def source_line(frames: list[Frame], pid: int) -> str:
    """The line of source that the innermost frame is at; empty if it cannot be read.

    Args:
        pid: whose working directory a script's name is relative to.
    """
    if not frames:
        return ""
    file, number, _ = frames[0]
    try:
        with (Path(f"/proc/{pid}/cwd") / file).open(errors="replace") as source:
            return next(islice(source, number - 1, None), "")
    except (OSError, ValueError):
        return ""


def own_line(frames: list[Frame]) -> str:
    """The innermost line that is a person's own, or else the innermost."""
    own = [frame for frame in frames if not any(part in frame[0] for part in _LIBRARIES)]
    file, line, name = (own or frames or [("", 0, "")])[0]
    return f"{name} ({Path(file).name}:{line})" if name else ""


def kernel_state(pid: int) -> str:
    """The letter of ``/proc/PID/stat``; empty if it is gone."""
    return _status(pid, "State:")[:1]


def answers_to(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal: without one it would be killed by it."""
    return _is_in(_status(pid, "SigCgt:"), number)


def threads_that_block(pid: int, number: int) -> set[str]:
    """Ids of a process's threads to which a signal is not delivered at present."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return set()
    return {thread.name for thread in threads if _is_in(_line(thread, "SigBlk:"), number)}


def _is_in(mask: str, number: int) -> bool:
    return bool(mask) and bool(int(mask, 16) >> (number - 1) & 1)


def _status(pid: int, name: str) -> str:
    return _line(Path(f"/proc/{pid}"), name)


def _line(process: Path, name: str) -> str:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return ""
    return next((line[len(name) :].strip() for line in lines if line.startswith(name)), "")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
