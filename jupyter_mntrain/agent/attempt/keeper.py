"""Keeper: a tiny process per attempt that outlives the agent.

``python -m jupyter_mntrain.agent.attempt.keeper ATTEMPT_DIR`` reads ``command.json``, owns
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
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_mntrain.agent.attempt.earlier_work import take_over
from jupyter_mntrain.agent.attempt.log_times import TimeStamper
from jupyter_mntrain.agent.attempt.log_trimming import logs_of, trim, trim_logs
from jupyter_mntrain.agent.attempt.nccl_warnings import NcclWarnings
from jupyter_mntrain.agent.attempt.processes import (
    SCAN_INTERVAL_S,
    Alive,
    descendants,
    kill_all,
    marked,
    ranks_of,
    signal_all,
)
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.files import PRIVATE, write_atomically
from jupyter_mntrain.model.lifecycle.clock import Clock, clock_of
from jupyter_mntrain.model.sources.launchers import without_launchers

PR_SET_CHILD_SUBREAPER = 36
SWEEP_GRACE_S = tunables.seconds("keeper.sweep_grace_s")

LINGER_S = tunables.seconds("keeper.linger_s")

WHERE_PATIENCE_S = tunables.seconds("keeper.where_patience_s")

TRIM_EVERY_S = tunables.seconds("keeper.trim_interval_s")

STAMP_EVERY_S = tunables.seconds("keeper.log_time_interval_s")

FULL_DISK_PATIENCE_S = tunables.seconds("keeper.full_disk_patience_s")
FULL_BYTES = tunables.size("keeper.full_disk_bytes")
SPARED_BYTES = tunables.size("keeper.full_disk_log_bytes")

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
            told = f"what the attempt before wrote is not here: {error}\n"
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
    leftovers = kill_all(lambda: _alive(directory), lambda: children.wait(SCAN_INTERVAL_S))
    warnings.copy()
    times.note()
    # Without an exit code torchrun is itself among the leftovers.
    exit_code = -signal.SIGKILL if children.exit_code is None else children.exit_code
    _finish(directory, clock=clock, exit_code=exit_code, leftovers=leftovers, killed=killed)
    return 0


class Children:
    """Reaps every child, also adopted ones; keeps torchrun's exit code."""

    def __init__(self, torchrun: int, wakeup: int) -> None:
        self.torchrun = torchrun
        self.exit_code: int | None = None
        self._wakeup = wakeup

    def wait(self, timeout_s: float | None = None) -> bytes:
        """Wait for signals. Returns their numbers."""
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


def _alive(directory: Path) -> Alive:
    return descendants(os.getpid()) | marked(directory)


def _end(directory: Path, children: Children, times: TimeStamper) -> list[int]:
    """Ask every process of the attempt to end. Returns the ranks that did not within the grace.

    SIGTERM goes to torchrun first, which forwards it to its ranks. Processes that remain without
    torchrun get it from the keeper.
    """
    begun = time.monotonic()
    if children.exit_code is None:
        os.kill(children.torchrun, signal.SIGTERM)
    asked: set[int] = set()
    alone_since: float | None = None
    while alive := _alive(directory):
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
    """Have the ranks that are left write their stacks: nobody can ask them later."""
    # takes 10 MB, of each attempt's keeper
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
    """Whether the disk is too full to write logs and status there."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize < FULL_BYTES


def _grace(stop: Path) -> float:
    """Seconds of grace. Read again at every look, so that a kill shortens a stop."""
    try:
        return float(json.loads(stop.read_bytes())["grace_s"])
    except (OSError, ValueError, KeyError):
        return SWEEP_GRACE_S


def _wake_on(*numbers: signal.Signals) -> int:
    """A descriptor that becomes readable when one of the signals arrives."""
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
