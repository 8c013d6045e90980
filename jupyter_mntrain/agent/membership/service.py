"""Service: keeps the agent running after logout, with systemd or as a background process."""

from __future__ import annotations

from pathlib import Path

from jupyter_mntrain.agent.membership import detached, systemd
from jupyter_mntrain.agent.membership.state import Membership


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
        ended = [] if systemd.is_active() else detached.stop(state)
        return [*ended, *systemd.install(membership, state, is_restarted=is_restarted)]
    ended = detached.stop(state) if is_restarted else []
    pid = detached.running_pid(state)
    if pid is not None:
        return [f"the agent is already running (pid {pid})"]
    return [*ended, *detached.start(state)]


def remove(state: Path) -> list[str]:
    """Stop the service, and keep it from starting again. Jobs continue.

    Raises:
        MntrainError: there is none, or it cannot be ended.
    """
    has_unit = any(systemd.unit_path(is_root=is_root).exists() for is_root in (True, False))
    if not has_unit and (ended := detached.stop(state)):
        return ended
    return systemd.remove()
