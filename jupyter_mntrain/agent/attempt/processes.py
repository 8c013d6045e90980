"""Processes of an attempt: finds and ends exactly these. Standard library only.

torchrun starts each rank in a session of its own, so neither its process group nor its session
holds them all (measured). Every process of an attempt carries the attempt's own directory in its
environment instead; nothing is ever matched by name. The job id would not be enough: two agents on
one machine may run parts of the same job. A process that changed its environment is still found
as a descendant of the supervisor, which adopts every orphan below it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from jupyter_mntrain.model.environment import METRICS_VARIABLE

SCAN_INTERVAL_S = 0.05
"""Interval of looking whether processes have ended: short, because a person waits for it."""

KILL_PATIENCE_S = 5.0
"""Timeout after SIGKILL. A process ends in milliseconds, or hangs in the kernel and is reported."""

Alive = dict[int, int]
"""Live processes: pid → start time, which distinguishes a process from one that reuses its pid."""


def environment_of(pid: int) -> dict[str, str]:
    """Return a process's initial environment; empty if it is gone, a zombie or another user's."""
    pairs = (item.partition(b"=") for item in _environment(pid) if item)
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, _, value in pairs}


def start_time(pid: int) -> int | None:
    """Return when ``pid`` started, in ticks since boot; ``None`` if it is gone or a zombie."""
    stat = _stat(pid)
    return None if stat is None else stat[1]


def unreaped_exit_code(pid: int) -> int | None:
    """Return a zombie's exit code, negative for a signal; ``None`` if its parent has reaped it.

    A parent that is stopped reaps nothing.
    """
    fields = _fields(pid)
    is_zombie = fields is not None and fields[0] == b"Z"
    return os.waitstatus_to_exitcode(int(fields[49])) if fields and is_zombie else None


def processes_of(directory: Path) -> dict[int, dict[str, str]]:
    """Find live processes that carry the attempt's directory, and their environments, by pid."""
    return {pid: environment_of(pid) for pid in marked(directory)}


def ranks_of(directory: Path) -> dict[int, int]:
    """Return the pid of each live rank: its oldest process, not the children it started."""
    found: dict[int, int] = {}
    for pid, environment in sorted(processes_of(directory).items()):
        if environment.get("RANK", "").isdecimal():
            found.setdefault(int(environment["RANK"]), pid)
    return found


def marked(directory: Path) -> Alive:
    """Find live processes that carry the attempt's directory in their environment."""
    mark = f"{METRICS_VARIABLE}={metrics_of(directory)}".encode()
    found = ((pid, start_time(pid)) for pid in _pids() if mark in _environment(pid))
    return {pid: started for pid, started in found if started is not None}


def of_attempt(directory: Path, supervisor: int) -> Alive:
    """Find the live processes of an attempt, but its supervisor.

    Those that a session has forked for other jobs of this agent are theirs.
    """
    others = f"{METRICS_VARIABLE}={directory.parents[1]}{os.sep}".encode()
    below = {
        pid: started
        for pid, started in descendants(supervisor).items()
        if not any(one.startswith(others) for one in _environment(pid))
    }
    return below | marked(directory)


def descendants(ancestor: int) -> Alive:
    """Return all live descendants of ``ancestor``, in any session."""
    stats = {pid: stat for pid in _pids() if (stat := _stat(pid)) is not None}
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in stats.items():
        children.setdefault(parent, []).append(pid)
    found: Alive = {}
    below = children.get(ancestor, [])
    while below:
        pid = below.pop()
        found[pid] = stats[pid][1]
        below += children.get(pid, [])
    return found


def metrics_of(directory: Path) -> Path:
    """Return the folder that an attempt's ranks write to. Unique on a machine, even with several
    agents.
    """
    return directory / "metrics"


def signal_all(alive: Mapping[int, int], number: signal.Signals) -> None:
    """Send a signal to those processes whose pids have not been reused."""
    for pid, started in alive.items():
        if start_time(pid) == started:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def kill_all(
    find: Callable[[], Alive], pause: Callable[[], object] = lambda: time.sleep(SCAN_INTERVAL_S)
) -> list[dict[str, object]]:
    """Send SIGKILL until no process is left. Returns the survivors: pid, command, state.

    It repeats because a process may fork between the search and the kill.
    """
    deadline = time.monotonic() + KILL_PATIENCE_S
    while (alive := find()) and time.monotonic() < deadline:
        signal_all(alive, signal.SIGKILL)
        pause()
    return [describe(pid) for pid in sorted(alive)]


def describe(pid: int) -> dict[str, object]:
    """Return the pid, command and kernel state of a process, and where it waits in the kernel."""

    def read(name: str) -> str:
        try:
            return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
        except OSError:
            return ""

    state = next((one[7:] for one in read("status").splitlines() if one[:6] == "State:"), "gone")
    command = read("cmdline").replace("\0", " ").strip()
    found: dict[str, object] = {"pid": pid, "command": command, "status": state}
    # A process that runs or sleeps would wait elsewhere a moment later.
    waits_in = read("wchan") if state[:1] == "D" else ""
    return found | ({"waits_in": waits_in} if waits_in.strip("0") else {})


def _pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - thousands of them
            return file.read().split(b"\0")
    except OSError:
        return []


def _stat(pid: int) -> tuple[int, int] | None:
    """Return the parent pid and start time; ``None`` if the process is gone or a zombie."""
    fields = _fields(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[1]), int(fields[19])


def _fields(pid: int) -> list[bytes] | None:
    """Return the fields of ``/proc/PID/stat`` from the state on; see proc(5)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            stat = file.read()
    except OSError:
        return None
    # The name, before the last ")", may itself contain spaces and parentheses.
    return stat[stat.rindex(b")") + 2 :].split()
