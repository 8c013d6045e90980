"""The keeper: one tiny process per attempt, which outlives the agent.

``python -m jupyter_mntrain.agent.keeper ATTEMPT_DIR`` reads ``command.json``, owns ``log``, starts
torchrun, adopts every process torchrun's ranks leave behind, and writes ``status.json`` when
nothing of the attempt is left. SIGTERM ends the attempt; ``stop.json`` says with how much grace.
It imports almost nothing: its start is part of every launch.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from jupyter_mntrain.agent.files import write_atomically
from jupyter_mntrain.agent.identity import boot_id
from jupyter_mntrain.agent.processes import end_all, reap_children, start_time

PR_SET_CHILD_SUBREAPER = 36
DEFAULT_GRACE_S = 2.0
SWEEP_GRACE_S = 1.0
"""For what ranks left running after torchrun itself ended."""


def main(directory: Path) -> int:
    command = json.loads((directory / "command.json").read_bytes())
    wakeup = _wake_on(signal.SIGCHLD, signal.SIGTERM)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        torchrun = _start(directory, command)
    except OSError as error:
        _finish(directory, exit_code=127, error=str(error), leftovers=[])
        return 1
    _write(directory / "keeper.json", identity() | {"torchrun_pid": torchrun.pid})
    exit_code, stopped = _supervise(wakeup, torchrun.pid, directory / "stop.json")
    grace_s = _grace(directory / "stop.json") if stopped else SWEEP_GRACE_S
    leftovers = end_all(directory, grace_s)
    if exit_code is None:
        exit_code = reap_children().get(torchrun.pid, -signal.SIGTERM)
    _finish(directory, exit_code=exit_code, error=None, leftovers=leftovers)
    return 0


def identity() -> dict[str, object]:
    """What makes a pid mean this process and no other."""
    pid = os.getpid()
    return {"pid": pid, "start_time": start_time(pid), "boot_id": boot_id()}


def _start(directory: Path, command: dict[str, Any]) -> subprocess.Popen[bytes]:
    with (directory / "log").open("ab", buffering=0) as log:
        return subprocess.Popen(
            command["argv"],
            cwd=command["directory"],
            env={**os.environ, **command["environment"]},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _supervise(wakeup: int, torchrun: int, stop: Path) -> tuple[int | None, bool]:
    """Wait for torchrun's end or for SIGTERM; (exit code if it ended by itself, stop asked)."""
    while True:
        ended = reap_children()
        if torchrun in ended:
            return ended[torchrun], stop.exists()
        received = os.read(wakeup, 64) if select.select([wakeup], [], [], None)[0] else b""
        if signal.SIGTERM in received:
            return None, True


def _grace(stop: Path) -> float:
    try:
        return float(json.loads(stop.read_bytes())["grace_s"])
    except (OSError, ValueError, KeyError):
        return DEFAULT_GRACE_S


def _wake_on(*numbers: signal.Signals) -> int:
    """A descriptor that becomes readable when one of the signals arrives."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return reading


def _finish(
    directory: Path, *, exit_code: int, error: str | None, leftovers: list[dict[str, object]]
) -> None:
    result = {"exit_code": exit_code, "ended_s": time.time(), "leftovers": leftovers}
    _write(directory / "status.json", result | ({"error": error} if error else {}))


def _write(path: Path, content: dict[str, object]) -> None:
    write_atomically(path, json.dumps(content).encode())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
