"""Waiting process: whether the one that waits for an allocation's nodes is still there.

It holds a lock as long as it waits, which the kernel takes from one that is killed.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.files import private_directory
from jupyter_mntrain.model.whereabouts import kept_folder

LAUNCHES = "launches"

LOCKED_WITHIN_S = 1.0


def launches_folder() -> Path:
    """What this user's launches that wait leave next to the book."""
    return kept_folder("state") / LAUNCHES


@contextmanager
def waiting_for(cluster: str) -> Iterator[None]:
    """Be the process that waits for the nodes of a cluster."""
    path = lock_file(cluster)
    private_directory(path.parent)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=LOCKED_WITHIN_S)  # somebody may just be looking
    except (OSError, NotImplementedError, Timeout):  # on some disks there are no locks
        forget_waiting(cluster)
    try:
        yield
    finally:
        forget_waiting(cluster)
        lock.release()


def is_gone(cluster: str) -> bool:
    """Whether the process that waited for these nodes has ended without a word: it was killed, or
    its machine was started again. ``False`` also if that is not known, as on another machine: not
    every file system that machines share tells of their locks.
    """
    path = lock_file(cluster)
    if not path.exists():
        return False
    lock = FileLock(path)
    try:
        with lock.acquire(timeout=0):
            return path.exists()
    except (OSError, NotImplementedError, Timeout):
        return False


def forget_waiting(cluster: str) -> None:
    """Forget who has waited: nobody does any more."""
    for path in launches_folder().glob(f"{cluster}.*.lock"):
        path.unlink(missing_ok=True)


def gone_error(cluster: str) -> RefusedError:
    """What to tell of a launch whose process is gone."""
    return RefusedError(
        f"nothing starts on the nodes of {cluster}: the process that waited for them was killed",
        kind=Kind.NOT_STARTED,
        fix=f"give them back with mntrain stop {cluster}, and launch again",
    )


def lock_file(cluster: str) -> Path:
    """Locked by the process of this machine that waits."""
    return launches_folder() / f"{cluster}.{socket.gethostname()}.lock"
