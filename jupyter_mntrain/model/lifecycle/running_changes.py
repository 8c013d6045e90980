"""Running changes: applies settings that were changed while a job ran to its spec. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import chain
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.job import (
    Attempt,
    ChangedValue,
    JobSpec,
    JobView,
    PartStatus,
    RunningChange,
)

SET: Final = "--set"
"""Option of the trainer that changes a field of its recipe."""

MOST_CHANGES = 32
"""Changes of an attempt that are remembered, if they are no more than there are settings to change:
every heartbeat carries them.
"""

MOST_SETTINGS = 32


class SettingsRequest(Record, frozen=True):
    """Request that all ranks apply other settings after their current step.

    Args:
        key: idempotency key.
        attempt: number of the attempt.
        settings: ``section.field=value``.
        by: user and host, for people.
    """

    key: Annotated[str, Meta(min_length=1, max_length=64)]
    attempt: int
    settings: Annotated[
        tuple[Annotated[str, Meta(max_length=200)], ...],
        Meta(min_length=1, max_length=MOST_SETTINGS),
    ]
    by: Annotated[str, Meta(max_length=200)] = ""


def with_change(known: Sequence[RunningChange], change: RunningChange) -> tuple[RunningChange, ...]:
    """Add a change, once. If there are too many, drop those that were refused or changed again, the
    oldest first.
    """
    if any(one.key == change.key for one in known):
        return tuple(known)
    kept = [*known, change]
    while len(kept) > MOST_CHANGES and (gone := _first_without_effect(kept)) is not None:
        del kept[gone]
    return tuple(kept)


def earlier_changes(attempt: Attempt) -> tuple[RunningChange, ...]:
    """Return the changes that an attempt started with, oldest first."""
    return attempt.earlier.changes if attempt.earlier else ()


def changes_of_attempt(parts: Sequence[PartStatus]) -> tuple[RunningChange, ...]:
    """Return the changes of an attempt, oldest first, merged as each node reports the same ones."""
    told = sorted(chain(*(part.changes for part in parts)), key=lambda one: one.step)
    none: tuple[RunningChange, ...] = ()
    return reduce(with_change, told, none)


def changes_of(view: JobView) -> tuple[RunningChange, ...]:
    """Return all changes of a job, oldest first."""
    return (*earlier_changes(view.attempt), *changes_of_attempt(view.parts))


def last_values(changes: Sequence[RunningChange]) -> dict[str, ChangedValue]:
    """Return the last change of each setting, by its name."""
    return {value.name: value for change in changes for value in change.values}


def with_changes(spec: JobSpec, changes: Sequence[RunningChange]) -> JobSpec:
    """Return the job with these changes, appended to its ``--set`` options."""
    values = last_values(changes)
    if not values:
        return spec
    words = (word for one in values.values() for word in (SET, f"{one.name}={one.after}"))
    set_in = {name: where for name, where in spec.set_in.items() if name not in values}
    return msgspec.structs.replace(spec, entry=(*spec.entry, *words), set_in=set_in)


def _first_without_effect(changes: Sequence[RunningChange]) -> int | None:
    for place, change in enumerate(changes):
        later = last_values(changes[place + 1 :])
        if all(value.name in later for value in change.values):
            return place
    return None
