"""Stacks: asks a rank for its Python stacks and its calls, and reads its state in the kernel."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from jupyter_mntrain.agent.attempt.processes import metrics_of, start_time
from jupyter_mntrain.agent.failure.calls import CallsRequest
from jupyter_mntrain.agent.machine.devices.limits import frozen_group
from jupyter_mntrain.model.failure.sites import Frame, Site, pending_site, site_of
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import Doing, RankStack
from jupyter_mntrain.telemetry.startup.mntrain_rank_hooks import STACK_FILE, STACK_SIGNAL

ANSWER_S = 2.0
"""Timeout for stacks. A rank writes them in milliseconds, or cannot."""

LOOK_EVERY_S = 0.02
"""Interval of looking whether ranks have written their stacks: they do in milliseconds."""

MOST_TEXT = 8000
"""Maximum number of characters of stacks that are stored per rank: every record of the job has
them."""

MOST_READ = 10 * MOST_TEXT
"""Most bytes read from the end of an answer, where the main thread is."""

_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<name>.*)$')
_LIBRARIES = ("/torch/", "/jupyter_mntrain/", "/lib/python3", "<frozen ")
"""Parts of paths that are not the script's own code."""


class StackRequest:
    """A request for one rank's stacks, and its answer.

    Args:
        directory: the attempt's.
    """

    def __init__(self, directory: Path, rank: Rank, pid: int) -> None:
        self.rank = rank
        self.pid = pid
        self._path = metrics_of(directory) / STACK_FILE.format(rank)
        self._before = _size(self._path)
        self._started = start_time(pid)
        self._frozen = frozen_group(Path(f"/proc/{pid}/cgroup"))
        self._state = "T" if self._frozen else kernel_state(pid)
        self._will_answer = False
        self._blocked_before = threads_that_block(pid, STACK_SIGNAL)
        is_live = self._state not in ("T", "t", "Z", "")
        self._calls = CallsRequest(directory, rank) if is_live else None
        if is_live and answers_to(pid, STACK_SIGNAL):
            try:
                os.kill(pid, STACK_SIGNAL)
                self._will_answer = True
            except (ProcessLookupError, PermissionError):
                self._state = ""

    @property
    def is_answered(self) -> bool:
        """Return whether the answer is complete, or none will come.

        faulthandler writes its answer in pieces, during which the kernel blocks the signal in that
        thread.
        """
        if self._calls is not None and not self._calls.is_answered:
            return False
        if not self._will_answer:
            return True
        # In this order: once it has started to write, the signal is blocked.
        return _size(self._path) > self._before and not (
            threads_that_block(self.pid, STACK_SIGNAL) - self._blocked_before
        )

    def result(self) -> RankStack:
        """Return what is known so far."""
        text = ""
        if (size := _size(self._path)) > self._before:
            with self._path.open("rb") as file:
                file.seek(max(self._before, size - MOST_READ))
                text = file.read(MOST_READ).decode(errors="replace")
        frames = main_thread(text)
        calls = self._calls.result() if self._calls else ()
        site = site_of(frames, source_line(frames, self.pid)) or pending_site(frames, calls)
        doing = judge(self._state, frames, site)
        return RankStack(
            rank=self.rank,
            pid=self.pid,
            doing=doing,
            where=str(self._frozen or own_line(frames)),
            site=site if doing == "waiting for others" else None,
            text=text[-MOST_TEXT:],
            calls=calls,
        )


def last_line(directory: Path, rank: Rank) -> str:
    """Return the line at which a rank last wrote its stacks; empty if it never did.

    Args:
        directory: the attempt's.
    """
    path = metrics_of(directory) / STACK_FILE.format(rank)
    try:
        with path.open("rb") as file:
            file.seek(max(0, _size(path) - MOST_READ))
            return own_line(main_thread(file.read(MOST_READ).decode(errors="replace")))
    except OSError:
        return ""


def answers(asked: Sequence[StackRequest]) -> list[RankStack]:
    """Wait at most :data:`ANSWER_S` for the answers, and return them. Blocks; use a thread."""
    until = time.monotonic() + ANSWER_S
    while time.monotonic() < until and not all(one.is_answered for one in asked):
        time.sleep(LOOK_EVERY_S)
    return [one.result() for one in asked]


def main_thread(text: str) -> list[Frame]:
    """Parse the frames of the main thread, which faulthandler writes last."""
    frames: list[Frame] = []
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            frames = []
        elif match := _FRAME.match(line):
            frames.append((match["file"], int(match["line"]), match["name"]))
    return frames


def crashed_thread(text: str) -> list[Frame]:
    """Parse the frames of the thread that crashed."""
    frames: list[Frame] = []
    is_it = False
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            is_it = line.startswith("Current thread ")
        elif is_it and (match := _FRAME.match(line)):
            frames.append((match["file"], int(match["line"]), match["name"]))
    return frames


def judge(state: str, frames: list[Frame], site: Site | None) -> Doing:
    """Classify what a rank is doing.

    Args:
        state: the kernel's letter.
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
    """Return the source line of the innermost frame; empty if it cannot be read.

    Args:
        pid: process whose working directory relative paths refer to.
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
    """Return the innermost line of the script's own code, else the innermost line of all."""
    own = [frame for frame in frames if not any(part in frame[0] for part in _LIBRARIES)]
    file, line, name = (own or frames or [("", 0, "")])[0]
    return f"{name} ({Path(file).name}:{line})" if name else ""


def kernel_state(pid: int) -> str:
    """Return the kernel's state letter for a process; empty if it is gone."""
    return _status(pid, "State:")[:1]


def answers_to(pid: int, number: int) -> bool:
    """Return whether a process handles a signal, which would otherwise kill it."""
    return _is_in(_status(pid, "SigCgt:"), number)


def threads_that_block(pid: int, number: int) -> set[str]:
    """Return the ids of a process's threads that currently block a signal."""
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
