"""Begin: what a launch begins with, if a person named a directory of checkpoints on the nodes.

No job of the run that saved them needs to be known any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.launch.checkpoints.directory import step_in
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError, RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.checkpoint import (
    NodeCheckpoints,
    RunCheckpoint,
    RunCheckpoints,
)
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.origin import Origin
from jupyter_mntrain.plan.arrange import find_participants
from jupyter_mntrain.plan.resume import choose_in_directory
from jupyter_mntrain.plan.run_checkpoints import merge_checkpoints
from jupyter_mntrain.recipe.changes.exactness import (
    SettingChange,
    changed_settings,
    exactness_notes,
    refuse_unfit,
)
from jupyter_mntrain.recipe.fitting import keeping
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.recipe.stored import recipe_of


class BeginPlan(Record, frozen=True):
    """A launch that begins with a checkpoint, before it starts.

    Args:
        spec: to launch.
        path: directory that has the checkpoint.
        step: finished steps of it; of a script, which reads the directory itself, only if its
            name says so.
        checkpoint: ``None`` for a script.
        changes: what the recipe changes against the settings that it was saved with.
        notes: what to tell before the start.
    """

    spec: JobSpec
    path: str
    step: int | None
    checkpoint: RunCheckpoint | None = None
    changes: tuple[SettingChange, ...] = ()
    notes: tuple[Problem, ...] = ()

    @property
    def ranks(self) -> tuple[int, int]:
        """That saved the checkpoint, and of the launch."""
        now = self.spec.world_size
        return (now if self.checkpoint is None else self.checkpoint.world_size), now


async def plan_beginning(live: ClusterView, spec: JobSpec, begin: str) -> BeginPlan:
    """Ask the nodes what is in a directory, and check that the job can begin with it.

    Args:
        begin: the directory of a run's checkpoints, or one of them, on the nodes.

    Raises:
        RefusedError: there is no checkpoint, or the job's nodes do not have all of it.
        SpecError: no steps are left, or a setting does not fit the checkpoint.
    """
    path, step = _place_of(begin)
    recipe = recipe_of(spec)
    infos = [view.info for view in live.nodes if view.info]
    names = {info.name for info in find_participants(spec.participants, infos)}
    by_node = await _look(live, path, names)
    if recipe is None:
        return _by_script(spec, path, step, {name: by_node[name] for name in names})
    listed = RunCheckpoints(
        run=JobId(""),
        checkpoints=merge_checkpoints(by_node),
        directories={name: one.directory for name, one in by_node.items()},
    )
    found = choose_in_directory(path, listed, step, names)
    before = _recipe_in(by_node, found)
    _refuse_finished(path, recipe, before, found.step)
    changes: tuple[SettingChange, ...] = ()
    notes: tuple[Problem, ...] = (_SETTINGS_UNKNOWN,)
    if before is not None:
        spec, before = keeping(spec, before)
        recipe = recipe_of(spec) or recipe
        changes = changed_settings(before, recipe, step=found.step)
        refuse_unfit(changes, path)
        notes = exactness_notes(changes)
    origin = Origin(
        is_branch=True,
        step=found.step,
        path=path,
        world_size=found.world_size,
        reached=found.step,
    )
    return BeginPlan(
        spec=msgspec.structs.replace(spec, origin=origin),
        path=path,
        step=found.step,
        checkpoint=found,
        changes=changes,
        notes=notes,
    )


def _refuse_finished(path: str, recipe: Recipe, before: Recipe | None, step: int) -> None:
    """Refuse a recipe that has no steps left after a checkpoint.

    Args:
        before: by which it was saved; it has the number of steps of the same epochs.
    """
    steps = recipe.train.steps
    if before is not None and steps is None and before.train.epochs == recipe.train.epochs:
        steps = before.train.steps
    if steps is not None and step >= steps:
        raise SpecError(
            f"the recipe makes {steps} steps, and the checkpoint in {path} has made {step}",
            fix=f"say how many it is to make in all: --set train.steps={2 * step}",
        )


def _place_of(begin: str) -> tuple[str, int | None]:
    """A directory of checkpoints and a step, from what a person gave: that directory, or a
    checkpoint in it.

    Raises:
        SpecError: it is not an absolute path.
    """
    if not isinstance(begin, str) or not begin.startswith(("/", "~")):
        raise SpecError(
            f"--from {begin}: not an absolute path",
            fix="give the path of a checkpoint directory on the nodes, from / or ~; or begin with "
            "a step of a known run: resume JOB --from STEP",
        )
    directory, _, name = begin.rstrip("/").rpartition("/")
    step = step_in(name)
    return (begin.rstrip("/"), None) if step is None else (directory, step)


async def _look(live: ClusterView, path: str, names: set[str]) -> dict[str, NodeCheckpoints]:
    """What each node that answers has there: others than the job's, so that a refusal can say who
    has the rest. A participant has to answer.
    """
    nodes = [info for info in live.reachable if live.client_at(info.node_id) is not None]

    async def ask(node_id: str, name: str) -> NodeCheckpoints | None:
        client = live.client_at(node_id)  # type: ignore[arg-type]
        if client is None:
            return None
        try:
            return await client.checkpoints_at(path)
        except MntrainError:
            if name in names:
                raise
            return None

    answers = await asyncio.gather(*(ask(info.node_id, info.name) for info in nodes))
    found = {info.name: one for info, one in zip(nodes, answers, strict=True) if one is not None}
    if silent := sorted(names - found.keys()):
        raise RefusedError(
            f"{', '.join(silent)}: does not answer, so what it has in {path} is not known",
            kind=Kind.SILENT,
            fix="start it again, or omit it",
        )
    return found


def _by_script(
    spec: JobSpec, path: str, step: int | None, by_node: Mapping[str, NodeCheckpoints]
) -> BeginPlan:
    """What is in the directory is the script's own affair; only that it is there can be checked."""
    lacking = sorted(name for name, one in by_node.items() if not one.is_there)
    if len(lacking) == len(by_node):
        raise RefusedError(
            f"there is no directory {path} on {', '.join(lacking)}",
            kind=Kind.NO_CHECKPOINT,
            fix="name another with --from, or add the nodes that have it",
        )
    notes = tuple(
        Problem(kind=Kind.NO_CHECKPOINT, cause=f"has no directory {path}", node=name)
        for name in lacking
    )
    origin = Origin(is_branch=True, step=step, path=path, reached=step)
    begun = msgspec.structs.replace(spec, origin=origin)
    return BeginPlan(spec=begun, path=path, step=step, notes=notes)


def _recipe_in(by_node: Mapping[str, NodeCheckpoints], found: RunCheckpoint) -> Recipe | None:
    """The settings that a checkpoint was saved with; ``None`` if this version cannot tell."""
    for listed in by_node.values():
        for held in listed.checkpoints:
            if held.manifest.age == found.age and held.manifest.recipe is not None:
                try:
                    return msgspec.convert(held.manifest.recipe, Recipe)
                except msgspec.ValidationError:  # another version's settings
                    return None
    return None


_SETTINGS_UNKNOWN = Problem(
    kind=Kind.OTHER_LOSSES,
    cause="another version saved this checkpoint, so what the recipe changes is not known; the "
    "ranks check the model and the batches",
)
