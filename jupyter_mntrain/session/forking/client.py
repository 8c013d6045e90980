"""Client: asks the server for a process. As a program it stands in torchrun's place; torchrun asks
for its ranks.

Standard library only: it is read again for every torchrun.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "MNTRAIN_FORKSERVER"
"""The address of the server's socket."""
ENTERED = ("user", "net", "uts", "pid", "mnt")
"""Namespaces, in the order in which a process enters them: ``/proc`` is the last one's. ``pid`` is
entered by its children."""
LIMITS = [value for name, value in vars(resource).items() if name.startswith("RLIMIT_")]
RELAYED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
LOOK_S = 0.02


class Process:
    """A process that was forked, as ``subprocess.Popen`` has it."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.pid = pid
        self.connection = connection
        self.status = 0
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self.connection], [], [], 0)[0]:
            told = self.connection.recv(4)
            self.status = int.from_bytes(told, "big") if told else int(signal.SIGKILL)
            self.returncode = os.waitstatus_to_exitcode(self.status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until_s = time.monotonic() + (timeout or 0)
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() > until_s:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(LOOK_S)
        return code


def ask(
    entry: Sequence[str],
    environment: dict[str, str],
    outputs: tuple[int, int],
    *,
    ends_with_asker: bool,
) -> Process | None:
    """Have a process forked, or ``None`` where nobody forks for this one.

    Args:
        entry: what stands behind ``python -u``.
        outputs: its standard output and its standard error.
        ends_with_asker: whether it is killed where the one that asked is.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        address = Path(environment[VARIABLE])
        # By its folder's descriptor: a socket's path may have 107 bytes.
        folder = os.open(address.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{address.name}")
        finally:
            os.close(folder)
    except (KeyError, OSError):
        return None
    os.umask(umask := os.umask(0))
    asked = {
        "entry": list(entry),
        "environment": environment,
        "identity": identity(),
        "ends_with_asker": ends_with_asker,
        "directory": str(Path.cwd()),
        "cores": [*os.sched_getaffinity(0)],
        "niceness": os.nice(0),
        "limits": [(one, *resource.getrlimit(one)) for one in LIMITS],
        "umask": umask,
    }
    text = json.dumps(asked).encode()
    entered = [os.open(f"/proc/self/ns/{one}", os.O_RDONLY) for one in ENTERED]
    try:
        socket.send_fds(connection, [len(text).to_bytes(4, "big")], [*outputs, *entered])
        connection.sendall(text)
        pid = int.from_bytes(connection.recv(4), "big")
    except OSError:  # it has ended
        pid = 0
    for one in entered:
        os.close(one)
    if not pid:  # it could not become what was asked for
        connection.close()
        return None
    return Process(connection, pid)


def identity() -> list[str]:
    """What nobody changes for a process: who it is, what it may do, in which groups it counts."""
    status = Path("/proc/self/status").read_text().splitlines()
    who = [line for line in status if line.startswith(("Uid", "Gid", "Groups", "CapEff", "CapBnd"))]
    spaces = [str(Path(f"/proc/self/ns/{one}").readlink()) for one in ("cgroup", "ipc")]
    return [*who, *spaces, Path("/proc/self/cgroup").read_text()]


def main(words: list[str]) -> None:
    """Be torchrun: a process that the server forks, with this one's signals, and its end."""
    process = ask(words[words.index("-m") :], dict(os.environ), (1, 2), ends_with_asker=True)
    if process is None:
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - as the agent starts it
    for name in RELAYED:
        signal.signal(getattr(signal, name), lambda number, _: os.kill(process.pid, number))
    select.select([process.connection], [], [])
    process.poll()
    if os.WIFSIGNALED(process.status):
        number = os.WTERMSIG(process.status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(process.returncode or 0)


if __name__ == "__main__":
    main(sys.argv[1:])
