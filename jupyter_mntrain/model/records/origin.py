"""Origin: what a resumed job or a later attempt continues from, and what was changed since."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from jupyter_mntrain.model._record import Record, UserRecord
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId


class Origin(UserRecord, frozen=True):
    """The checkpoint that a resumed job continues from, as the driver found it.

    Args:
        job: the job that was resumed; ``None`` = none: a launch began with the checkpoint at
            ``path``, whichever run saved it.
        run: the run that has the checkpoint, named by its first job; ``None`` as for ``job``.
        is_branch: the job begins a run of its own with that checkpoint; otherwise it continues
            ``run``.
        step: finished steps of the checkpoint; ``None`` for a script whose checkpoints are its own.
        path: of a branch: directory that has the checkpoint on every node; ``None`` = that of
            ``run``.
        attempts: numbers that attempts of the run had, at most: its own follow them.
        world_size: ranks of the run's first attempt.
        reached: the last step that any attempt before finished.
    """

    job: JobId | None = None
    run: JobId | None = None
    is_branch: bool = False
    step: int | None = None
    path: str | None = None
    attempts: Annotated[int, Meta(ge=0)] = 0
    world_size: int | None = None
    reached: int | None = None

    @property
    def place(self) -> str | None:
        """The checkpoint that a person named by its directory; ``None`` if they named a run."""
        if not self.is_branch or self.path is None or self.step is None:
            return self.path if self.is_branch else None
        return f"{self.path}/step-{self.step:08d}"


class ChangedValue(Record, frozen=True):
    """A setting of the recipe before and after a change, in TOML without quotes. ``before`` is
    empty if it had no value.
    """

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name} {self.before or '–'} → {self.after}"


class RunningChange(Record, frozen=True):
    """Settings that somebody changed while a job ran, as its ranks report them.

    Args:
        key: of the request.
        step: finished steps when all ranks took it.
        time_s: Unix time.
        by: user and host, for people.
        total_steps: that the job is to make since then.
        refused: why the ranks did not take it.
    """

    key: str
    step: int
    time_s: float
    by: str = ""
    values: tuple[ChangedValue, ...] = ()
    total_steps: int | None = None
    refused: Problem | None = None

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))


class Earlier(Record, frozen=True):
    """How far the earlier attempts of a run came, as known to the head or driver that starts the
    next.

    Args:
        world_size: ranks of the first attempt.
        step: the last step that any of them finished.
        attempt: the attempt that finished it; ``None`` = one of an earlier job.
        saved_step: step of the newest complete checkpoint.
        changes: of settings, while earlier attempts of the job ran, oldest first.
        failures: why the last attempts of the job failed, oldest first.
        is_early: whether the last of them did so before any progress.
        begun_s: Unix time at which the first attempt of the job started.
    """

    world_size: int
    step: int | None = None
    attempt: int | None = None
    saved_step: int | None = None
    changes: tuple[RunningChange, ...] = ()
    failures: tuple[Problem, ...] = ()
    is_early: bool = False
    begun_s: float | None = None
