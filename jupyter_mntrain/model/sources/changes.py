"""Changes of an allocation: finds what changed between two states of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.sources.allocation import Allocation, Slot, SlotState

ChangeKind = Literal["waits", "granted", "taken", "slot-down", "slot-up", "slot-gone", "ended"]
"""``waits``: for another reason than before. ``taken``: its nodes, and it waits again."""

_OF_A_SLOT: dict[SlotState, ChangeKind] = {"down": "slot-down", "gone": "slot-gone"}


class AllocationChange(Record, frozen=True):
    """A change of an allocation.

    Args:
        slot: that it concerns, by name; empty = all.
        problem: why.
    """

    kind: ChangeKind
    slot: str = ""
    problem: Problem | None = None


def changes(before: Allocation | None, now: Allocation) -> tuple[AllocationChange, ...]:
    """Return what has changed since ``before``, in order; nothing while the state is unknown."""
    if now.state == "unknown" or (before is not None and before.is_over):
        return ()
    return tuple(_changes(before, now))


def _changes(before: Allocation | None, now: Allocation) -> Iterator[AllocationChange]:
    earlier = before.grants if before is not None else 0
    is_held = now.state in ("running", "ending")
    # Between two looks nodes may have been taken, and others granted.
    if earlier and (now.grants > earlier or now.state == "pending") and _held(before):
        yield AllocationChange("taken", problem=now.problem)
    if now.grants > earlier:
        yield AllocationChange("granted")
    if is_held:
        yield from _of_slots(before if now.grants == earlier else None, now)
    if now.waiting is not None and now.waiting.word != _word(before):
        yield AllocationChange("waits", problem=now.waiting.reason)
    if now.is_over:
        yield AllocationChange("ended", problem=now.problem)


def _held(before: Allocation | None) -> bool:
    return before is not None and before.state != "pending"


def _word(before: Allocation | None) -> str:
    return before.waiting.word if before is not None and before.waiting is not None else ""


def _of_slots(before: Allocation | None, now: Allocation) -> Iterator[AllocationChange]:
    known = {slot.name: slot.state for slot in before.slots} if before is not None else {}
    for slot in now.slots:
        change = _of(known.get(slot.name, "up"), slot)
        if change is not None:
            yield AllocationChange(change, slot.name, slot.problem)


def _of(before: SlotState, slot: Slot) -> ChangeKind | None:
    if slot.state == before:
        return None
    if slot.state == "up":
        return "slot-up" if before in _OF_A_SLOT else None
    return _OF_A_SLOT.get(slot.state)
