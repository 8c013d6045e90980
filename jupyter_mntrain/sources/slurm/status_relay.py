"""Status relay: runs inside an allocation, and passes on to its agents what SLURM reports about it.

``python -m jupyter_mntrain.sources.slurm.status_relay FOLDER NODES [ID]``, next to the script that
starts them; without an id the allocation is the job that it runs in. Agents learn by it that a node
was lost, and why they are told to end: a driver need not be there.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from jupyter_mntrain.model.sources.slots import (
    ASK_FILE,
    RELAY_FILE,
    AllocationFile,
    told_of,
    write_allocation,
)
from jupyter_mntrain.model.sources.source import NodeSource, NodesRequest
from jupyter_mntrain.sources.slurm.own_steps import is_step_id
from jupyter_mntrain.sources.slurm.slurm_options import NAME
from jupyter_mntrain.sources.slurm.slurm_source import SlurmSource

TELL_EVERY_S = 15.0
"""Interval at which a program inside of an allocation asks SLURM how it is, for its agents. It
takes SLURM minutes to notice that a node is lost (SlurmdTimeout)."""
ASKED_EVERY_S = 0.5
"""The same once an agent was told to end, which SLURM explains within a moment. Interval of
looking whether one was."""


class StatusRelay:
    """Passes news on to the agents of an allocation.

    Args:
        folder: of the allocation.
    """

    def __init__(self, source: NodeSource, job: str, request: NodesRequest, folder: Path) -> None:
        self._source = source
        self._job = job
        self._is_step = is_step_id(job)
        self._request = request
        self._folder = folder
        self._grants = 0
        self._told = AllocationFile()

    def look(self) -> None:
        """Ask SLURM for the allocation's state, and pass it on if it is news."""
        now = asyncio.run(self._source.look(self._job, self._request))
        if now.state in ("unknown", "pending"):
            return
        self._grants = self._grants or now.grants
        # SLURM counts a restart as soon as it decides on it, while processes still end.
        comes_back = now.grants > self._grants and not self._is_step
        # The batch script ends this program first, so somebody else ends the allocation. A step
        # that SLURM does not list may just have ended.
        is_unexplained = now.state == "ending" and now.outcome is None
        by_person = is_unexplained and not comes_back and not self._is_step
        told = told_of(now)
        told = msgspec.structs.replace(
            told, comes_back=comes_back, is_canceled=told.is_canceled or by_person
        )
        if told != self._told:
            write_allocation(self._folder, told)
            self._told = told

    def wait(self) -> None:
        """Wait for a while, or until shortly after an agent asks why it is told to end."""
        asked = self._folder / ASK_FILE
        # SLURM may not have said why at once: once asked, it asks on.
        was_asked = asked.exists()
        deadline_s = time.monotonic() + (ASKED_EVERY_S if was_asked else TELL_EVERY_S)
        while time.monotonic() < deadline_s and asked.exists() == was_asked:
            time.sleep(ASKED_EVERY_S)


def main(words: Sequence[str]) -> NoReturn:
    folder, nodes, *of = words
    place = Path(folder)
    request = NodesRequest(NAME, int(nodes), name=place.name.rpartition("-")[0])
    allocation = of[0] if of else os.environ["SLURM_JOB_ID"]
    relay = StatusRelay(SlurmSource(place.parent), allocation, request, place)
    (place / RELAY_FILE).touch()
    while True:
        relay.look()
        relay.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
