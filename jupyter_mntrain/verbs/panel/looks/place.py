"""Place of a job: checks its files, folder and interpreter before a launch, also on the nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import FoundWorkplace
from jupyter_mntrain.plan.spec_check import check_spec
from jupyter_mntrain.verbs.panel.choices import OF_PLACE, Choices, without
from jupyter_mntrain.workload.built import Built

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

TRUSTED_S = 10.0
"""How long the panel trusts what the nodes have of a job's folder and interpreter, once asked:
looking may take seconds on a cold disk, and something is seldom installed meanwhile."""

Build = Callable[[Choices], Built]
"""Makes the job of these choices, or raises what a launch would."""


class Place(Record, frozen=True):
    """What is known of a job's files, folder and interpreter.

    Args:
        found: what each participant has of it, by the name of its row.
        problem: what is wrong with it, or why the nodes could not be asked.
        field: of :class:`Choices`, that is wrong; empty if the nodes could not be asked.
        project: the files that are sent, and their size, in the words of a launch; empty = none.
        notes: what to tell of these files before the start.
    """

    found: dict[str, FoundWorkplace] = {}
    problem: Problem | None = None
    field: str = ""
    project: str = ""
    notes: tuple[Problem, ...] = ()


class PlaceLook:
    """Checks the place of a job again when it changes, or some time has passed."""

    def __init__(self, cluster: Cluster) -> None:
        self.place: Place | None = None
        self._cluster = cluster
        self._about: object = None
        self._looked_s = 0.0

    def look(self, choices: Choices, build: Build, about: tuple[object, ...], now_s: float) -> bool:
        """Check the place as a launch would; return ``True`` if the answer has changed.

        Args:
            about: what the answer depends on, besides the place; empty: no place was given.
            now_s: Unix time.
        """
        about = about and (*about, *(getattr(choices, name) for name in OF_PLACE))
        if about == self._about and now_s - self._looked_s < TRUSTED_S:
            return False
        before, self._about, self._looked_s = self.place, about, now_s
        self.place = self._seen(choices, build) if about else None
        return before != self.place

    def _seen(self, choices: Choices, build: Build) -> Place | None:
        try:
            _checked(build(without(choices, *OF_PLACE)))
        except MntrainError:
            self._about = None
            return None  # the rest of the form says why
        try:
            built = _checked(build(choices))
        except MntrainError as error:
            return Place(problem=error.problem, field=_guilty(choices, build))
        notes = built.project.notes if built.project else ()
        place = Place(project=built.project_line, notes=notes)
        try:
            found = self._cluster.workplaces(built.spec)
        except MntrainError as error:
            return msgspec.structs.replace(place, problem=error.problem)
        names = [participant.node for participant in built.spec.participants]
        return msgspec.structs.replace(place, found=dict(zip(names, found, strict=False)))


def _checked(built: Built) -> Built:
    check_spec(built.spec)
    return built


def _guilty(choices: Choices, build: Build) -> str:
    """Return the first field without which the job could be built."""
    chosen = [name for name in OF_PLACE if getattr(choices, name).strip()]
    for name in chosen:
        try:
            _checked(build(without(choices, name)))
        except MntrainError:
            continue
        return name
    return chosen[0]
