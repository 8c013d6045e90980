"""State directory: detects that it is gone, was replaced, or is no longer writable."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.files import close_to_others, private_directory, write_atomically
from jupyter_mntrain.model.ids import NodeId, is_cluster_name, new_node_id

LOCK_S = 0.2
"""Timeout for the lock of a state directory: longer than somebody needs to look whether it is
held."""

NODE_NAME_LIMIT = 49
"""A DNS label has at most 63; announcements add eight of the node id and four of the instance."""

_NODE_ID = re.compile(r"[0-9a-f]{32}")


def checked_name(kind: str, name: str, limit: int) -> str:
    """Check that a name is valid in a path, an mDNS label and a log line."""
    fix = f"use at most {limit} letters, digits, '-', '_' and '.', a letter or digit first"
    if len(name) > limit:
        raise SpecError(f"{kind} {name[:limit]!r}… is longer than {limit} characters", fix=fix)
    if not is_cluster_name(name):
        raise SpecError(
            f"{kind} {name!r} has characters that a network name cannot contain", fix=fix
        )
    return name


def load_node_id(state: Path) -> NodeId:
    """Return the node id of a state directory; make it on first use.

    A damaged file is an error, not a new id: stored jobs belong to the old one.
    """
    path = state / "node_id"
    if not path.exists():
        write_atomically(path, new_node_id().encode())
    text = path.read_text(errors="replace").strip()
    if not _NODE_ID.fullmatch(text):
        raise MntrainError(
            f"{path} does not hold a node id", fix="restore it, or delete it to become a new node"
        )
    return NodeId(text)


@contextmanager
def locked_state(state: Path, patience_s: float = LOCK_S) -> Iterator[bool]:
    """Lock the state directory. The lock ends with the process, even if it is killed.

    Args:
        patience_s: how long to wait for another process that holds it.

    Yields:
        Whether other users could enter the directory until now, and read what it holds.

    Raises:
        MntrainError: another agent holds the lock, or the directory is not writable.
    """
    lock = FileLock(state / "lock", mode=0o600)
    # Not in the lock file: releases of filelock before 3.20 truncate it when they find it locked.
    owner = state / "lock.owner"
    try:
        private_directory(state)
        was_open = close_to_others(state)
        lock.acquire(timeout=patience_s)
        write_atomically(owner, f"{os.getpid()} on {socket.gethostname()}".encode())
    except Timeout:
        pid = owner.read_text(errors="replace") if owner.exists() else "unknown"
        raise MntrainError(
            f"another agent (pid {pid}) already uses {state}",
            fix="stop it; or, if machines share a home directory, give this one its own --name",
        ) from None
    except OSError as error:
        raise MntrainError(
            f"the state directory {state} cannot be used: {error.strerror}",
            fix="use another one with --state-dir",
        ) from error
    try:
        yield was_open
    finally:
        lock.release()


JOBS = "jobs"


class StateDirectory:
    """The state directory of a running agent.

    Args:
        node_id: that it held when the agent started.
    """

    def __init__(self, path: Path, node_id: NodeId) -> None:
        self.path = path
        self._node_id = node_id

    def problem(self) -> Problem | None:
        """Return why jobs cannot be stored there now, or ``None``. Cheap: writes nothing."""
        cause = self._cause()
        if cause is None:
            return None
        return Problem(
            kind=Kind.NO_STATE,
            cause=f"its state directory {self.path} {cause}",
            fix=fix_of(Kind.NO_STATE),
        )

    def _cause(self) -> str | None:
        try:
            found = (self.path / "node_id").read_text(errors="replace").strip()
            flags = os.statvfs(self.path / JOBS).f_flag
        except FileNotFoundError:
            return "is gone, or some of its files are"
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        if found != self._node_id:
            return "was replaced by another node's"
        if flags & os.ST_RDONLY:
            return "is on a file system that is read-only"
        can_write = all(os.access(one, os.W_OK | os.X_OK) for one in (self.path, self.path / JOBS))
        return None if can_write else "is not writable for the agent's user"
