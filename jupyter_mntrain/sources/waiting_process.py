"""Waiting process: tells whether the process that waits for an allocation's nodes is still alive.

It holds a lock as long as it waits, which the kernel takes from one that is killed.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.files import private_directory
from jupyter_mntrain.model.whereabouts import kept_folder

LAUNCHES = "launches"

LOCKED_WITHIN_S = 1.0


def launches_folder() -> Path:
    """Return the folder for locks and logs of launches that wait for nodes."""
    return kept_folder("state") / LAUNCHES


@contextmanager
def waiting_for(cluster: str) -> Iterator[None]:
    """Hold the lock that marks this process as the one that waits for a cluster's nodes."""
    from filelock import FileLock, Timeout  # who looks at a cluster without launches needs none

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
    """Return whether the process that waited for these nodes was killed, or its machine restarted.
    ``False`` if unknown, as on another machine: not every shared file system passes on locks.
    """
    path = lock_file(cluster)
    if not path.exists():
        return False
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        with lock.acquire(timeout=0):
            return path.exists()
    except (OSError, NotImplementedError, Timeout):
        return False


def forget_waiting(cluster: str) -> None:
    """Remove the locks of the processes that have waited."""
    for path in launches_folder().glob(f"{cluster}.*.lock"):
        path.unlink(missing_ok=True)


def gone_error(cluster: str) -> RefusedError:
    """Make the error for a launch whose waiting process is gone."""
    return RefusedError(
        f"nothing starts on the nodes of {cluster}: the process that waited for them was killed",
        kind=Kind.NOT_STARTED,
        fix=f"give them back with mntrain stop {cluster}, and launch again",
    )


def lock_file(cluster: str) -> Path:
    """Return the lock file of the process that waits, on this machine."""
    return launches_folder() / f"{cluster}.{socket.gethostname()}.lock"
