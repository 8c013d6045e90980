"""Program: answers the control plane's questions about what a job runs.

Agents, drivers and front ends run any program that torchrun would. Of a script they know its
command alone. A program whose settings mntrain knows, like the built-in trainer with its recipes,
answers more: it is a subclass of :class:`Program` that :data:`PROGRAMS` names. It is imported only
for jobs that run it: an agent at rest has loaded none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final

from jupyter_mntrain.model.api import LeaseGrant
from jupyter_mntrain.model.errors import SpecError, bad_argument
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.doctor.machine import AskedPath
from jupyter_mntrain.model.records.job import TRAINER, JobSpec, Placement
from jupyter_mntrain.model.records.metrics import RankStep
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.records.plan import AchievedRate, DeviceMeasurement, Plan, StepSpans
from jupyter_mntrain.model.records.setting import Setting, SettingChange

PROGRAMS: Final[Mapping[str, str]] = {TRAINER: "jupyter_mntrain.plan.choosing.recipe_program"}
"""Modules that have the class ``JobProgram``, by the module that a job runs."""


class Program:
    """The program of a job. This base class is a script, of which nothing is known.

    Args:
        spec: of the job, with its files.
    """

    is_script: ClassVar[bool] = True
    own_files: ClassVar[frozenset[str]] = frozenset()
    """Names of the spec's files that its settings tell already."""
    changeable: ClassVar[frozenset[str]] = frozenset()
    """Settings that may change while the job runs."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec

    # Settings.

    def settings(self) -> tuple[Setting, ...]:
        """Return the program's settings with their origins, without those of the launch.

        Raises:
            RecipeError: they are not valid.
        """
        return ()

    def with_settings(self, settings: Sequence[str]) -> JobSpec:
        """Return the job with other settings.

        Args:
            settings: ``section.field=value``; the last one of a field counts.

        Raises:
            SpecError: it has no settings, or ``settings`` is no list.
            RecipeError: there is no such field or value.
        """
        if isinstance(settings, str):
            raise bad_argument("settings", settings, f"a list: [{settings!r}]")
        if not settings:
            return self.spec
        raise SpecError(
            f"{settings[0]}: this job runs {' '.join(self.spec.entry[:2])}, not a recipe",
            fix="pass its arguments after --",
        )

    def changed(
        self, settings: Sequence[str], *, step: int, job_id: JobId, told_steps: int | None = None
    ) -> tuple[Program, Program]:
        """Return the program of a running job as it is, and with other settings for the steps after
        ``step``.

        Args:
            told_steps: that the job makes in all, as its ranks have told.

        Raises:
            SpecError, RecipeError: it has none, or cannot run on with these.
        """
        raise SpecError(
            f"job {job_id} runs {' '.join(self.spec.entry[:2])}, not a recipe: its settings are "
            "its own",
            fix=f"stop it, and launch it with other arguments: mntrain stop {job_id}",
        )

    def rate_notes(self, after: Program, *, step: int) -> tuple[str, ...]:
        """Return notes on what a change to another program after ``step`` does to the learning
        rate.
        """
        return ()

    # Nodes and devices.

    def planned(self, infos: Sequence[NodeInfo]) -> tuple[JobSpec, Plan | None]:
        """Return the job with the settings chosen for its devices and links, and the plan that
        chose them. May take a second.

        Args:
            infos: the participants' nodes, in their order.

        Raises:
            RecipeError: a GPU or node lacks what it needs.
        """
        return self.spec, None

    def chosen_as_for(self, other: JobSpec) -> JobSpec:
        """Return the job with the settings chosen for another job that runs the same program."""
        return self.spec

    def refuse_leased(
        self, placements: Sequence[Placement], grants: Sequence[LeaseGrant], *, is_resumed: bool
    ) -> None:
        """Refuse nodes that can no longer run a job as it was planned.

        Args:
            grants: of the leases, in the order of the placements.
            is_resumed: it goes on with weights of an earlier attempt or job.

        Raises:
            RecipeError: a GPU or node lacks what it needs.
        """

    def spans(self, plan: Plan) -> StepSpans | None:
        """Return the step that a job's plan predicted; ``None`` without a prediction."""
        return None

    def achieved(
        self,
        job_id: JobId,
        world_size: int,
        info: NodeInfo,
        placement: Placement,
        steps: Mapping[int, Sequence[RankStep]],
    ) -> Iterator[tuple[DeviceMeasurement, AchievedRate]]:
        """Yield the rates that a job's ranks achieved on a node's devices, with the devices'
        measurements.

        Args:
            world_size: of the attempt.
            steps: by local rank: those that were timed.
        """
        return iter(())

    # Files and checkpoints.

    def asked_paths(self) -> tuple[AskedPath, ...]:
        """Return the paths that the program reads or writes on the nodes."""
        return ()

    def model(self) -> str | None:
        """Return the directory of the model that training starts from, or its name on the hub."""
        return None

    def needs_tokenizer(self) -> bool:
        """Whether the model's directory has to have a tokenizer."""
        return False

    def arguments(self) -> tuple[str, ...]:
        """Return the arguments that make the trainer's other programs read the recipe.

        Raises:
            SpecError: it is a script.
        """
        raise SpecError(
            f"this job runs {' '.join(self.spec.entry[:2])}, not a recipe", fix="name another job"
        )

    def named_directories(self) -> tuple[str | None, str | None]:
        """Return the directories of checkpoints and of their durable copies, as a person named
        them.
        """
        return None, None

    def checkpoint_directory(self, run: str) -> Path | None:
        """Return the folder of a run's checkpoints on this machine; ``None`` for the node's usual
        one.
        """
        return None

    def copies_directory(self, run: str) -> Path | None:
        """Return the folder of the durable copies of a run's checkpoints, if any."""
        return None

    # A run that goes on.

    def saved_by(self, settings: Mapping[str, Any]) -> Program | None:
        """Return the program that saved a checkpoint; ``None`` if this version cannot tell.

        Args:
            settings: as its manifest has them.
        """
        return None

    def going_on_from(self, before: Program) -> tuple[Program, Program]:
        """Return this program, with its open settings taken from its run, and the program that
        trained the run.

        Args:
            before: the run's newest program, or the one that saved the checkpoint.
        """
        return self, before

    def changes_since(self, before: Program, *, step: int) -> tuple[SettingChange, ...]:
        """Return the differences from the program that trained a run, and their effects on losses.

        Args:
            step: finished steps of the checkpoint.
        """
        return ()

    def total_steps(
        self, before: Program | None = None, told_steps: int | None = None
    ) -> int | None:
        """Return the total number of steps; ``None`` if unknown.

        If they are given in epochs, as the ranks of a program with as many epochs, or its own
        manifest, have reported.
        """
        return None


def program_of(spec: JobSpec) -> Program:
    """Return the program that a job runs."""
    if spec.entry[:1] == ("-m",) and len(spec.entry) > 1 and spec.entry[1] in PROGRAMS:
        found: Program | None = import_module(PROGRAMS[spec.entry[1]]).program_of(spec)
        if found is not None:
            return found
    return Program(spec)
