"""Slots: the files by which an allocation's agents and drivers find one another.

An allocation has a directory on a shared file system::

    allocation.json    what its source knows: when it ends, which slots are gone, and why
    save               there once its jobs shall save and end, before it does
    again              there once a job has done that, and goes on when nodes are granted again
    used               written whenever an agent has a job: its time is that of the last use
    slurm-0/slot.json  written by the agent: where it is reached
    slurm-0/…          the rest of the agent's state directory

The records are the file format that agents, sources and drivers agree on.

A slot keeps its name when another machine takes it over. Every file is replaced as a whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.sources.source import Allocation

T = TypeVar("T")

SLOT_FILE = "slot.json"
ALLOCATION_FILE = "allocation.json"
SAVE_FILE, AGAIN = "save", "again"
"""The file, and what it holds if the allocation is queued again afterwards."""
USE_FILE = "used"
RELAY_FILE, ASK_FILE = "status-relay", "ask"
"""The first is there while a program inside the allocation tells what the source knows; an agent
that is told to end makes the second, to be told why at once."""

AgentState = Literal["joining", "up", "gone"]


class SlotFile(Record, frozen=True):
    """An agent's slot in an allocation, as the agent reports it.

    Args:
        slot: its name in the allocation, and the node's.
        node_id: whom the certificate at these addresses must name.
        addresses: ``host:port``, the most likely to work first.
        hostname: of the machine that has the slot now.
        state: ``joining`` until a driver has admitted it; ``gone`` once it has ended.
        written_s: Unix time.
        joining: id of the invitation that it waits with; empty once it has joined.
        problem: why it is gone.
    """

    slot: str
    node_id: NodeId
    addresses: tuple[str, ...]
    hostname: str
    state: AgentState
    written_s: float
    joining: str = ""
    problem: Problem | None = None


class AllocationFile(Record, frozen=True):
    """What an allocation's scheduler knows and its agents cannot.

    Args:
        ends_s: Unix time at which it is over at the latest.
        ending: why it ends now or has ended; its kind says how. ``None`` until then.
        is_canceled: whether a person ended it: then its jobs have not failed.
        comes_back: whether it is queued again, and its jobs go on then.
        gone: slots that were taken from it, by name, each with why.
    """

    ends_s: float | None = None
    ending: Problem | None = None
    is_canceled: bool = False
    comes_back: bool = False
    gone: dict[str, Problem] = {}

    def why_gone(self, slot: str) -> Problem | None:
        """Return why a slot is no longer available; ``None`` if nothing is known."""
        return self.gone.get(slot) or self.ending


def told_of(allocation: Allocation) -> AllocationFile:
    """Make the file that informs the agents of an allocation."""
    gone = {
        slot.name: slot.problem
        for slot in allocation.slots
        if slot.problem is not None and slot.state in ("down", "gone")
    }
    is_canceled = allocation.outcome == "canceled"
    return AllocationFile(
        ends_s=allocation.ends_s, ending=allocation.problem, is_canceled=is_canceled, gone=gone
    )


class SlotSpoken(Record, frozen=True):
    """The address at which a local program serves an ended agent's records, as it prints it."""

    slot: str
    node_id: NodeId
    address: str


def write_slot(directory: Path, slot: SlotFile) -> None:
    """Write the file that says where a slot's agent can be reached.

    Args:
        directory: of the allocation.
    """
    write_atomically(directory / slot.slot / SLOT_FILE, msgspec.json.encode(slot))


def read_slot(directory: Path, slot: str) -> SlotFile | None:
    """Read a slot of an allocation; ``None`` if there is none of that name, or its agent has not
    started yet.
    """
    return _read(directory / slot / SLOT_FILE, SlotFile)


def read_slots(directory: Path) -> tuple[SlotFile, ...]:
    """Read the slots of an allocation whose agents have started, in the order of their numbers."""
    found = [_read(path, SlotFile) for path in directory.glob(f"*/{SLOT_FILE}")]
    return tuple(sorted(filter(None, found), key=lambda one: (len(one.slot), one.slot)))


def write_allocation(directory: Path, allocation: AllocationFile) -> None:
    """Write what the scheduler knows now, for the agents of an allocation.

    That a person ended it stays: whoever did so knows before the source does.
    """
    if read_allocation(directory).is_canceled:
        allocation = msgspec.structs.replace(allocation, is_canceled=True)
    write_atomically(directory / ALLOCATION_FILE, msgspec.json.encode(allocation))


def read_allocation(directory: Path) -> AllocationFile:
    """Read what the scheduler knows of an allocation; the default if there is no such file."""
    return _read(directory / ALLOCATION_FILE, AllocationFile) or AllocationFile()


def _read(path: Path, kind: type[T]) -> T | None:
    """Read a file; ``None`` if it is missing or not one of ours."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None
