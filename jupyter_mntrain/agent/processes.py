"""Finding and ending every process of an attempt, and nothing else. Only the standard library.

torchrun starts each rank in a session of its own, so neither its process group nor its session
holds them all (measured). Every process of an attempt carries the attempt's own directory in its
environment instead; nothing is ever matched by name. The job id would not do: two agents on one
machine may both have a part of the job.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from jupyter_mntrain.model.environment import METRICS_VARIABLE

SCAN_INTERVAL_S = 0.05
"""Between looks while processes are ending: short, because a person waits for it."""

KILL_PATIENCE_S = 5.0
"""After SIGKILL a process is gone in milliseconds, or it sits in the kernel and is named."""


def environment_of(pid: int) -> dict[str, str]:
    """A process's initial environment; empty if it is gone, a zombie or somebody else's."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if item)
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, _, value in pairs}


def start_time(pid: int) -> int | None:
    """Clock ticks since boot at which ``pid`` started: with the boot id, it names a process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] == "Z" else int(fields[19])


def processes_of(directory: Path) -> dict[int, dict[str, str]]:
    """Every living process of the attempt kept in ``directory``: pid → environment."""
    mark = f"{METRICS_VARIABLE}={metrics_of(directory)}".encode()
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            raw = Path(entry.path, "environ").read_bytes()
        except OSError:
            continue
        if mark in raw.split(b"\0"):
            found[int(entry.name)] = environment_of(int(entry.name))
    return found


def metrics_of(directory: Path) -> Path:
    """Where an attempt's ranks write: on one machine no two attempts of any agent share it."""
    return directory / "metrics"


def signal_all(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def end_all(directory: Path, grace_s: float) -> list[dict[str, object]]:
    """End every process of an attempt; returns what is left: pid, command and kernel state.

    SIGTERM, ``grace_s`` to go in order, SIGKILL to whatever is there, then again until nothing is:
    a process may fork between a look and a kill.
    """
    deadline = time.monotonic() + grace_s
    alive = set(processes_of(directory))
    signal_all(alive, signal.SIGTERM)
    while alive and time.monotonic() < deadline:
        _pause()
        alive = set(processes_of(directory))
    deadline = time.monotonic() + KILL_PATIENCE_S
    while alive and time.monotonic() < deadline:
        signal_all(alive, signal.SIGKILL)
        _pause()
        alive = set(processes_of(directory))
    return [_describe(pid) for pid in sorted(alive)]


def _pause() -> None:
    reap_children()
    time.sleep(SCAN_INTERVAL_S)


def reap_children() -> dict[int, int]:
    """Collect every child that ended: pid → exit code (negative for a signal)."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def _describe(pid: int) -> dict[str, object]:
    def read(name: str) -> str:
        try:
            return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
        except OSError:
            return ""

    status = [line for line in read("status").splitlines() if line.startswith("State:")]
    command = read("cmdline").replace("\0", " ").strip()
    return {"pid": pid, "command": command, "status": status[0][7:] if status else "gone"}
