"""Service: keeps the agent running after logout, with systemd or as a background process."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from jupyter_mntrain.agent.membership import systemd
from jupyter_mntrain.agent.membership.state import Membership
from jupyter_mntrain.model.errors import MntrainError

START_S = 20.0
"""Timeout for the start, and for the end, of an agent that is started without systemd."""
LOOK_EVERY_S = 0.05
"""Interval of looking whether it has started."""
LOG = "agent.log"
LAST_LINES = 5


def running_pid(state: Path) -> int | None:
    """Return the pid of the agent that uses a state directory; ``None`` if there is none."""
    try:
        with FileLock(state / "lock", mode=0o600).acquire(timeout=0):
            return None
    except Timeout:
        return int((state / "lock.owner").read_text().split()[0])
    except OSError as error:
        raise MntrainError(
            f"the state directory {state} cannot be used: {error.strerror}",
            fix="run this as the user who runs the agent",
        ) from error


def start(state: Path) -> list[str]:
    """Start the agent in its own session, so that it outlives the login. Returns lines to print.

    Raises:
        MntrainError: it ended at once, or did not start in time.
    """
    words = [sys.executable, "-P", "-m", "jupyter_mntrain.agent", "run", "--state-dir", str(state)]
    path = state / LOG
    with path.open("ab") as log:
        path.chmod(0o600)
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )
    deadline = time.monotonic() + START_S
    while not _is_up(process, state):
        if process.poll() is not None or time.monotonic() > deadline:
            said = path.read_text(errors="replace").splitlines()[-LAST_LINES:]
            why = " ".join(said) or f"it printed nothing within {START_S:.0f} s"
            raise MntrainError(f"the agent did not start: {why}", fix=f"see {path}, then try again")
        time.sleep(LOOK_EVERY_S)
    return [
        f"this machine does not run systemd: the agent was started without it (pid {process.pid})",
        f"it does not start at boot; to change that, run this at boot: {shlex.join(words)}",
        f"its log: {path}",
    ]


def stop(state: Path) -> list[str]:
    """End the agent that uses a state directory, if there is one. Its jobs continue.

    Raises:
        MntrainError: it does not end in time.
    """
    pid = running_pid(state)
    if pid is None:
        return []
    try:
        process = psutil.Process(pid)
        process.terminate()
        process.wait(START_S)
    except psutil.NoSuchProcess:
        pass
    except (psutil.AccessDenied, psutil.TimeoutExpired) as error:
        raise MntrainError(
            f"the agent with pid {pid} cannot be ended: {error}", fix=f"end it: kill {pid}"
        ) from None
    return [f"stopped the running agent (pid {pid}); its jobs continue"]


def _is_up(process: subprocess.Popen[bytes], state: Path) -> bool:
    """Return whether the agent holds the lock. Does not try the lock, which would keep the agent
    from it.
    """
    owner = state / "lock.owner"
    return owner.exists() and owner.read_text().startswith(f"{process.pid} ")


def install(
    membership: Membership,
    state: Path,
    *,
    without_systemd: bool = False,
    is_restarted: bool = False,
) -> list[str]:
    """Start the agent so that it outlives this login. One that runs correctly is left running.

    Args:
        without_systemd: start it on its own, also where systemd runs.
        is_restarted: end one that runs first: its package was changed. Jobs continue.

    Returns:
        Lines that say what was done and what is left to do.

    Raises:
        MntrainError: it cannot be started.
    """
    if systemd.has_systemd() and not without_systemd:
        # An agent that somebody started by hand would keep systemd's from the state directory.
        ended = [] if systemd.is_active() else stop(state)
        return [*ended, *systemd.install(membership, state, is_restarted=is_restarted)]
    ended = stop(state) if is_restarted else []
    pid = running_pid(state)
    if pid is not None:
        return [f"the agent is already running (pid {pid})"]
    return [*ended, *start(state)]


def remove(state: Path) -> list[str]:
    """Stop the service, and keep it from starting again. Jobs continue.

    Raises:
        MntrainError: there is none, or it cannot be ended.
    """
    has_unit = any(systemd.unit_path(is_root=is_root).exists() for is_root in (True, False))
    if not has_unit and (ended := stop(state)):
        return ended
    return systemd.remove()
