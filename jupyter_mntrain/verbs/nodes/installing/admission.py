"""Admission: asks a waiting machine to join if multicast does not find it."""

from __future__ import annotations

import time
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jupyter_mntrain.model.errors import MntrainError

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

MULTICAST_S = 3.0
"""After this long a machine that joins is also asked at its ssh name: multicast may not reach
it."""
INTERVAL_S = 0.5
"""Interval of looking for the node that was installed, and of asking it."""


def admit(running: Future[Any], cluster: Cluster, address: str) -> None:
    """Ask an address to join, once multicast had its time, until the joining command ends.

    Args:
        address: ``host:port`` at which the machine waits.
    """
    deadline = time.monotonic() + MULTICAST_S
    while not running.done():
        if time.monotonic() > deadline:
            # It may not listen yet, or multicast was quicker.
            with suppress(MntrainError):
                cluster.discovery.add(address)
        time.sleep(INTERVAL_S)
