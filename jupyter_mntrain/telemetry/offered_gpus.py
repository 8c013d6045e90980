"""Offered GPUs: which of a machine's cards ``CUDA_VISIBLE_DEVICES`` lets a process use. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_mntrain.model.sources.allocation_limits import INSTANCE


def visible_gpus(
    value: str | None, uuids: Mapping[int, str], *, is_scheduled: bool = False
) -> frozenset[int]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` lets a process use, by index.

    As CUDA reads it: an entry is an index, or the beginning of one GPU's UUID; the first that is
    neither ends the list (CUDA programming guide, environment variables). A scheduler may number
    the machine's cards while the driver shows only those of the allocation: if it names as many as
    there are, and one that is not among them, it means all of them.

    Args:
        value: of the variable; ``None`` if it is not set.
        uuids: of the GPUs that the driver shows, by index.
        is_scheduled: a scheduler has set the variable.
    """
    if value is None:
        return frozenset(uuids)
    entries = [entry.strip() for entry in value.split(",")]
    if is_scheduled and _are_of_the_machine(entries, uuids):
        return frozenset(uuids)
    found = set()
    for entry in entries:
        if entry.isdecimal():
            meant = [index for index in uuids if index == int(entry)]
        else:
            meant = [index for index, uuid in uuids.items() if entry and uuid.startswith(entry)]
        if len(meant) != 1:
            break
        found.add(meant[0])
    return frozenset(found)


def visible_instances(value: str | None) -> tuple[str, ...]:
    """Return the MIG instances that ``CUDA_VISIBLE_DEVICES`` lets a process use, by UUID.

    CUDA offers a process the first of them only (MIG user guide, CUDA device enumeration).
    """
    entries = map(str.strip, (value or "").split(","))
    return tuple(entry for entry in entries if entry.startswith(INSTANCE))


def _are_of_the_machine(entries: list[str], uuids: Mapping[int, str]) -> bool:
    numbers = {int(entry) for entry in entries if entry.isdecimal()}
    return len(numbers) == len(entries) == len(uuids) and not numbers <= uuids.keys()
