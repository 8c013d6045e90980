"""Supervisor: a tiny process for each attempt that outlives the agent.

``python -m jupyter_mntrain.agent.attempt.supervisor ATTEMPT_DIR`` reads ``command.json``, owns
``log``, starts torchrun, adopts every process that torchrun's ranks leave behind, and writes
``status.json`` when no process of the attempt is left. SIGTERM ends the attempt, with the grace in
``stop.json``; another SIGTERM makes it read that file again. It imports almost nothing, because
every launch waits for its start.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_mntrain.agent.attempt.processes import (
    SCAN_INTERVAL_S,
    environment_of,
    kill_all,
    of_attempt,
    ranks_of,
    signal_all,
)
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.environment import NODE_VARIABLE, RECORDERS
from jupyter_mntrain.model.files import PRIVATE, write_atomically
from jupyter_mntrain.model.lifecycle.clock import Clock, clock_of
from jupyter_mntrain.model.sources.launchers import without_launchers

# Earlier work: moves what an attempt wrote in its working directory to the next attempt.
#
# A script that keeps its state there, as torch's own tutorials do (``snapshot.pt``), goes on as
# under torchrun, which restarts it in the same folder.


_ATTEMPT = re.compile(r"attempt-(\d+)")


def earlier_attempt(attempt: Path) -> Path | None:
    """Return the newest earlier attempt on this node that has started ranks; ``None`` if there is
    none.

    What one wrote that was ended before that may be torn: files of a project.

    Args:
        attempt: its directory, ``jobs/ID/attempt-N``.
    """
    number = int(attempt.name.rpartition("-")[2])
    found = {
        int(match[1]): one
        for one in attempt.parent.iterdir()
        if (match := _ATTEMPT.fullmatch(one.name)) and int(match[1]) < number
    }
    started = (found[one] for one in sorted(found, reverse=True) if _has_started(found[one]))
    return next(started, None)


def take_over(attempt: Path) -> None:
    """Move what the earlier attempt left into this one's folder, and leave a link in its place.

    Raises:
        OSError: it cannot be moved. What is not moved stays where it was.
    """
    earlier = earlier_attempt(attempt)
    if earlier is None:
        return
    work = attempt / "work"
    # Where one in between has taken it over, and started no rank, it is there.
    source = (earlier / "work").resolve()
    _move(source, work, (earlier / "command.json").stat().st_mtime_ns)
    source.rmdir()
    source.symlink_to(os.path.relpath(work, source.parent))


def _has_started(attempt: Path) -> bool:
    try:
        return any((attempt / "ranks").iterdir()) and (attempt / "work").is_dir()
    except OSError:
        return False


def _move(source: Path, target: Path, sent_ns: int) -> None:
    """Move files into a folder. Those that the attempt changed replace what was sent; others do
    not.

    Args:
        sent_ns: when everything had been sent.
    """
    for entry in list(os.scandir(source)):
        place = target / entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder and place.is_dir() and not place.is_symlink():
            _move(source / entry.name, place, sent_ns)
            (source / entry.name).rmdir()
        elif place.exists() and entry.stat(follow_symlinks=False).st_mtime_ns <= sent_ns:
            Path(entry.path).unlink()
        else:
            Path(entry.path).replace(place)


# Log times: when each part of a log was written, next to the log. Standard library only, for the
# supervisor.
#
# torchrun's prefix cannot hold a time, and a process between the ranks and their log could lose or
# delay lines. So the supervisor notes the log's size while it grows: 16 bytes a mark.


MOST_MARKS = 100_000
"""Maximum number of times of a log, of 16 bytes each. Beyond that, older ones become coarser."""

Mark = tuple[int, float]
"""Offset and Unix time: the bytes before it had been written by then."""


class TimeStamper:
    """Records when a log grew. A full disk loses times, but not the attempt."""

    def __init__(self, log: Path, clock: Clock, *, most: int = MOST_MARKS) -> None:
        self._log = log
        self._path = times_of(log)
        self._clock = clock
        self._most = most
        self._size = 0
        self._count = 0

    def note(self) -> None:
        """Add a mark if the log has grown."""
        with suppress(OSError):
            size = self._log.stat().st_size
            if size <= self._size:
                return
            if self._count >= self._most:
                self._thin()
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
            try:
                os.write(descriptor, _packed([(size, self._clock())]))
            finally:
                os.close(descriptor)
            self._size, self._count = size, self._count + 1

    def _thin(self) -> None:
        """Drop every other mark in the older half: old lines need no exact times."""
        marks = _read(self._path)
        half = len(marks) // 2
        kept = marks[1:half:2] + marks[half:]
        write_atomically(self._path, _packed(kept))
        self._count = len(kept)


def times_of(log: Path) -> Path:
    """Return the path of a log's time marks."""
    return log.with_name(f"{log.name}.times")


def marks_between(log: Path, begin: int, end: int, now_s: float) -> tuple[Mark, ...]:
    """Return the marks that give the times of the bytes between two offsets, up to the first at
    ``end`` or after it. Bytes after the last mark were written just now.
    """
    return marks_among(_read(times_of(log)), begin, end, now_s)


def marks_among(marks: Sequence[Mark], begin: int, end: int, now_s: float) -> tuple[Mark, ...]:
    """Like :func:`marks_between`, for marks that were read already."""
    if not marks:
        return ()
    first = bisect_left(marks, (begin + 1,))
    last = bisect_left(marks, (end,))
    found = tuple(marks[first : last + 1])
    return found if last < len(marks) else (*found, (max(end, marks[-1][0]), now_s))


def _packed(marks: Iterable[Mark]) -> bytes:
    return array("d", [value for mark in marks for value in mark]).tobytes()


def _read(path: Path) -> list[Mark]:
    values = array("d")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    values.frombytes(content[: len(content) // 16 * 16])
    return [(int(size), time_s) for size, time_s in zip(values[::2], values[1::2], strict=True)]


# Log trimming: bounds logs on disk without moving offsets. Standard library only, for the
# supervisor.
#
# The middle of a long log is freed by punching a hole (fallocate(2)). Nothing is renamed or copied:
# writers keep writing, readers keep their offsets, and no line is torn as by a rotation.


HEAD_BYTES = tunables.size("logs.head_bytes")

KEPT_BYTES = tunables.size("logs.tail_bytes")

NCCL_BYTES = tunables.size("logs.nccl_bytes")

MOST_RECORDERS = 64
"""Maximum number and total size of an attempt's flight recorders on a node, which torch writes
when a collective times out: one per rank, the first ones are kept. 2000 calls are 1.2 MB."""

RECORDERS_BYTES = 64 * 2**20

SLACK_BYTES = 16 * 2**20
"""Excess size before anything is deleted, to save system calls."""

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_BLOCK = 4096
_libc = ctypes.CDLL(None, use_errno=True)


def logs_of(attempt: Path) -> Iterator[Path]:
    """Return the files that an attempt's processes write: the logs of torchrun, ranks and NCCL, and
    the ranks' samples, which the journal stores before they are freed.
    """
    yield attempt / "log"
    yield from (attempt / "metrics").glob("rank-*.ndjson")
    for name in ("stdout.log", "stderr.log"):
        yield from (attempt / "ranks").rglob(name)
    yield from nccl_files(attempt)


def nccl_files(attempt: Path) -> Iterator[Path]:
    """Return NCCL's own log files, one for each process."""
    yield from (attempt / "nccl").glob("*.log")


def trim_logs(attempt: Path) -> None:
    """Free the middle of every log that exceeds its limit."""
    for log in logs_of(attempt):
        trim(log)
    for log in nccl_files(attempt):
        trim(log, kept_bytes=NCCL_BYTES, slack_bytes=NCCL_BYTES // 4)
    _bound_recorders(attempt)


def _bound_recorders(attempt: Path) -> None:
    """Delete flight recorder files beyond their limits. The first ranks to time out tell most."""
    with suppress(OSError):
        found = [(path.stat(), path) for path in (attempt / "metrics").glob(f"{RECORDERS}*")]
        left_bytes = RECORDERS_BYTES
        for number, (status, path) in enumerate(sorted(found, key=lambda one: one[0].st_mtime_ns)):
            left_bytes -= status.st_size
            if number >= MOST_RECORDERS or left_bytes < 0:
                path.unlink(missing_ok=True)


def trim(path: Path, *, kept_bytes: int = KEPT_BYTES, slack_bytes: int = SLACK_BYTES) -> bool:
    """Free the middle of a file that is larger than its limit.

    False if it does not, or if the file system cannot punch holes.
    """
    with suppress(OSError):
        found = path.stat()
        if found.st_blocks * 512 <= kept_bytes + slack_bytes:
            return False
        begin = min(HEAD_BYTES, kept_bytes // 2)
        return give_back(path, begin, found.st_size - (kept_bytes - begin))
    return False


def give_back(path: Path, begin: int, end: int) -> bool:
    """Free the whole blocks between two offsets. They read as zeros afterwards.

    Raises:
        OSError: it cannot be opened.
    """
    first, last = -(-begin // _BLOCK) * _BLOCK, end // _BLOCK * _BLOCK
    return last > first and _punch(path, first, last - first)


def _punch(path: Path, begin: int, length: int) -> bool:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        mode = ctypes.c_int(_KEEP_SIZE | _PUNCH_HOLE)
        done = _libc.fallocate(
            ctypes.c_int(descriptor), mode, ctypes.c_longlong(begin), ctypes.c_longlong(length)
        )
        return bool(done == 0)
    finally:
        os.close(descriptor)


def next_data(descriptor: int, offset: int, size: int) -> int:
    """Return the offset of the first byte at or after ``offset`` that was not freed."""
    try:
        return min(size, os.lseek(descriptor, offset, os.SEEK_DATA))
    except OSError:  # beyond the last byte, or a file system without holes
        return min(offset, size)


# NCCL warnings: copies them from NCCL's own files into the attempt's log. Standard library only,
# for the supervisor.
#
# A launch has NCCL write into a file per rank, which keeps its many lines about networks out of the
# log. Its warnings would stay there, too, and people look for them in the log.


_WARNING = re.compile(rb"\bNCCL WARN\b")
_PID = re.compile(r"\.(\d+)\.log$")


class NcclWarnings:
    """Copies new warnings from NCCL's own files to the log.

    Args:
        directory: the attempt's.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read_bytes: dict[Path, int] = {}
        self._prefixes: dict[Path, bytes] = {}

    def copy(self) -> None:
        """Append new warnings to the log. A full disk loses warnings, but not the attempt."""
        with suppress(OSError):
            for path in nccl_files(self._directory):
                # While its process lives: its environment tells its rank.
                prefix = self._prefixes.setdefault(path, _prefix(path))
                if lines := [one for one in self._new_lines(path) if _WARNING.search(one)]:
                    self._append(b"".join(b"%b%b\n" % (prefix, line) for line in lines))

    def _new_lines(self, path: Path) -> list[bytes]:
        begin = self._read_bytes.get(path, 0)
        with path.open("rb") as file:
            file.seek(begin)
            content = file.read(NCCL_BYTES)
        whole = content[: content.rfind(b"\n") + 1]
        self._read_bytes[path] = begin + len(whole or content[NCCL_BYTES - 1 :])
        return whole.splitlines()

    def _append(self, content: bytes) -> None:
        descriptor = os.open(self._directory / "log", os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)


def _prefix(path: Path) -> bytes:
    """Return a line prefix like torchrun's for the same rank."""
    pid = _PID.search(path.name)
    environment = environment_of(int(pid[1])) if pid else {}
    if "RANK" not in environment:
        return b""
    return f"[{environment.get(NODE_VARIABLE, '')} rank {environment['RANK']}] ".encode()


PR_SET_CHILD_SUBREAPER = 36
SWEEP_GRACE_S = 1.0
"""Time between SIGTERM and SIGKILL for processes that outlive torchrun."""

LINGER_S = 0.5
"""Time for a torchrun without ranks to write its last lines. Its own exit would take 1 to 2.5 s
more (measured)."""

WHERE_PATIENCE_S = 0.5
"""What does not end within the grace is asked for its stacks, and has this long to tell."""

TRIM_EVERY_S = 10.0
"""Interval of checks of the size of the logs."""

STAMP_EVERY_S = 0.2
"""Interval of noting the size of the log, from which its lines have their times: torchrun itself
passes lines on every 0.1 s."""

FULL_DISK_PATIENCE_S = tunables.seconds("supervisor.full_disk_patience_s")
FULL_BYTES = 64 * 2**10
"""A disk with less free space than this is full: the supervisor itself needs a few hundred
bytes."""
SPARED_BYTES = 64 * 2**10
"""Size to which logs are cut if the disk is too full to write the exit status."""

NOT_STARTED = 127
"""What shells report for a command that they cannot start."""


def main(directory: Path) -> int:
    command = json.loads((directory / "command.json").read_bytes())
    clock = clock_of(command["environment"])
    # Handled, not ignored: an ignored signal would be ignored by torchrun and its ranks too.
    wakeup = _wake_on(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if command["attempt"] > 1:
        try:
            take_over(directory)
        except OSError as error:
            told = f"what the previous attempt wrote is not here: {error}\n"
            _append(directory, told.encode())
    try:
        if command.get("project"):
            # Imported here: most launches need not wait for it.
            from jupyter_mntrain.agent.attempt.project_files import write_project

            write_project(directory, command["project"])
        torchrun = _start(directory, command)
    except (OSError, ValueError) as error:
        _finish(directory, clock=clock, exit_code=NOT_STARTED, leftovers=[], error=str(error))
        return 1
    children = Children(torchrun.pid, wakeup)
    times, warnings = TimeStamper(directory / "log", clock), NcclWarnings(directory)
    trimmed_s = time.monotonic()
    while children.exit_code is None and signal.SIGTERM not in children.wait(STAMP_EVERY_S):
        warnings.copy()
        times.note()
        if time.monotonic() - trimmed_s >= TRIM_EVERY_S:
            trimmed_s = time.monotonic()
            trim_logs(directory)
    killed = _end(directory, children, times)
    leftovers = kill_all(
        lambda: of_attempt(directory, os.getpid()), lambda: children.wait(SCAN_INTERVAL_S)
    )
    warnings.copy()
    times.note()
    # Without an exit code torchrun is itself among the leftovers.
    exit_code = -signal.SIGKILL if children.exit_code is None else children.exit_code
    _finish(directory, clock=clock, exit_code=exit_code, leftovers=leftovers, killed=killed)
    return 0


class Children:
    """Reaps all children, including adopted ones, and stores torchrun's exit code."""

    def __init__(self, torchrun: int, wakeup: int) -> None:
        self.torchrun = torchrun
        self.exit_code: int | None = None
        self._wakeup = wakeup

    def wait(self, timeout_s: float | None = None) -> bytes:
        """Wait for signals, and return their numbers."""
        ready = select.select([self._wakeup], [], [], timeout_s)[0]
        signals = os.read(self._wakeup, 64) if ready else b""
        self._reap()
        return signals

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.torchrun:
                    self.exit_code = os.waitstatus_to_exitcode(status)


def _end(directory: Path, children: Children, times: TimeStamper) -> list[int]:
    """Ask every process of the attempt to end. Returns the ranks that did not within the grace
    period.

    SIGTERM goes to torchrun first, which forwards it to its ranks. Processes that remain without
    torchrun get it from the supervisor.
    """
    begun = time.monotonic()
    if children.exit_code is None:
        os.kill(children.torchrun, signal.SIGTERM)
    asked: set[int] = set()
    alone_since: float | None = None
    while alive := of_attempt(directory, os.getpid()):
        if time.monotonic() - begun >= _grace(directory / "stop.json"):
            return _ask_where(directory, children)
        if set(alive) == {children.torchrun}:
            alone_since = alone_since or time.monotonic()
            if time.monotonic() - alone_since >= LINGER_S:
                break
        if children.exit_code is not None:
            unasked = {pid: started for pid, started in alive.items() if pid not in asked}
            signal_all(unasked, signal.SIGTERM)
            asked.update(unasked)
        children.wait(SCAN_INTERVAL_S)
        times.note()
    return []


def _ask_where(directory: Path, children: Children) -> list[int]:
    """Have the remaining ranks write their stacks now: later, nobody can ask them."""
    # takes 10 MB, of each attempt's supervisor
    from jupyter_mntrain.telemetry.startup.mntrain_rank_hooks import STACK_SIGNAL

    ranks = ranks_of(directory)
    for pid in ranks.values():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, STACK_SIGNAL)  # it ends those that do not know it
    until = time.monotonic() + WHERE_PATIENCE_S
    while ranks and time.monotonic() < until and _grace(directory / "stop.json"):
        children.wait(SCAN_INTERVAL_S)
    return sorted(ranks)


def _append(directory: Path, line: bytes) -> None:
    with suppress(OSError), (directory / "log").open("ab") as log:
        log.write(line)


def _start(directory: Path, command: dict[str, Any]) -> subprocess.Popen[bytes]:
    descriptor = os.open(directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
    with open(descriptor, "ab", buffering=0) as log:  # noqa: PTH123 - made with its mode
        return subprocess.Popen(
            command["argv"],
            cwd=command["directory"],
            env={**without_launchers(os.environ), **command["environment"]},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def is_full(directory: Path) -> bool:
    """Return whether the disk is too full to write logs and status."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize < FULL_BYTES


def _grace(stop: Path) -> float:
    """Read the grace period in seconds. It is read again and again: a kill can shorten a stop."""
    try:
        return float(json.loads(stop.read_bytes())["grace_s"])
    except (OSError, ValueError, KeyError):
        return SWEEP_GRACE_S


def _wake_on(*numbers: signal.Signals) -> int:
    """Return a descriptor that becomes readable when one of the signals arrives."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return reading


def _finish(
    directory: Path,
    *,
    clock: Clock,
    exit_code: int,
    leftovers: list[dict[str, object]],
    killed: list[int] | None = None,
    error: str | None = None,
) -> None:
    result: dict[str, Any] = {"exit_code": exit_code, "ended_s": clock(), "leftovers": leftovers}
    result["killed"] = killed or []
    if is_full(directory):
        result["disk_was_full"] = True
    content = json.dumps(result | ({"error": error} if error else {})).encode()
    deadline = time.monotonic() + FULL_DISK_PATIENCE_S
    while True:
        try:
            write_atomically(directory / "status.json", content)
        except OSError as failure:
            if failure.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise  # gone or read-only: the agent finds out that there is no status
            # The disk is full: the exit status matters more than the middle of the logs.
            for log in logs_of(directory):
                trim(log, kept_bytes=SPARED_BYTES, slack_bytes=0)
            if time.monotonic() > deadline:
                raise
            time.sleep(SCAN_INTERVAL_S)
        else:
            return


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
