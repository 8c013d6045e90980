"""Checkpoint records: the checkpoints that a run has saved, and those that a node has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import isfinite
from typing import Any, Final, Literal

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId

FORMAT = 1

BEST: Final = "best"

MOST_STEPS: Final = 100_000_000
"""Most steps of a run."""

WantedStep = int | Literal["best"]
"""Which checkpoint of a run: of this step, or the one with the lowest evaluation loss."""


class RunFigures(Record, frozen=True):
    """Figures of a run after some of its steps, for its model card.

    Args:
        steps: finished.
        data: what became of the data, in lines.
        loss: of the last step; ``None`` if none was made.
        evaluations: the last loss and the lowest one, by finished steps.
        tokens_per_s: of the last attempt.
        world_size: its ranks.
    """

    steps: int
    data: tuple[str, ...] = ()
    loss: float | None = None
    evaluations: dict[int, float] = {}
    tokens_per_s: float | None = None
    world_size: int = 0

    def after(self, earlier: RunFigures | None) -> RunFigures:
        """Return the figures, completed by those of an earlier attempt of the run."""
        if earlier is None:
            return self
        known = {step: loss for step, loss in earlier.evaluations.items() if step <= self.steps}
        return msgspec.structs.replace(
            self,
            loss=earlier.loss if self.loss is None else self.loss,
            evaluations=last_and_lowest(known | self.evaluations),
        )


def last_and_lowest(losses: Mapping[int, float]) -> dict[int, float]:
    """Return the last and the lowest finite loss, by finished steps."""
    finite = {step: loss for step, loss in losses.items() if isfinite(loss)}
    if not finite:
        return {}
    return {step: finite[step] for step in (min(finite, key=finite.__getitem__), max(finite))}


class Manifest(Record, frozen=True):
    """Contents of a checkpoint; a directory without a manifest is not one.

    Args:
        step: finished steps.
        attempt: number in its run of the attempt that saved it; a resumed attempt may save a step
            again.
        shard_bytes: size of each rank's shard, by rank.
        digests: hashes of what must be unchanged to resume: model, batches.
        hosts: node of each rank, for messages.
        recipe: the settings that it was trained with, by section and field, without defaults;
            ``None`` if an older version saved it.
        evaluation_loss: after its step; ``None`` if nothing was evaluated then.
        figures: for the card of its model; ``None`` if an older version saved it.
        checksums: of each rank's shard, by rank; none if an older version saved it.
    """

    step: int
    attempt: int
    shard_bytes: tuple[int, ...]
    digests: dict[str, str] = {}
    hosts: tuple[str, ...] = ()
    recipe: dict[str, Any] | None = None
    evaluation_loss: float | None = None
    figures: RunFigures | None = None
    format: int = FORMAT
    checksums: tuple[str, ...] = ()

    @property
    def world_size(self) -> int:
        return len(self.shard_bytes)

    @property
    def age(self) -> tuple[int, int]:
        """Sort key of a run's checkpoints, the newest last, by attempt before step.

        After a restart from step 400, step 600 of the attempt before is obsolete, even if a node
        that was away brings it back.
        """
        return self.attempt, self.step


def best_first(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the evaluated checkpoints, the lowest loss first; of equal ones the older first."""
    known = [(one.evaluation_loss, one.age, one) for one in manifests]
    ranked = ((loss, age, one) for loss, age, one in known if loss is not None)
    return [one for _, _, one in sorted(ranked, key=lambda each: each[:2])]


class HeldCheckpoint(Record, frozen=True):
    """A checkpoint, as one node has it.

    Args:
        shards: ranks whose complete shard is here.
        saved_s: Unix time by this node's clock.
        is_pinned: it is not deleted to make room for newer ones.
    """

    manifest: Manifest
    shards: tuple[int, ...]
    saved_s: float
    is_pinned: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(self.manifest.shard_bytes[rank] for rank in self.shards)


class UnfinishedSave(Record, frozen=True):
    """A save that was interrupted here; it counts if another node published it.

    Args:
        shard_bytes: by rank.
    """

    step: int
    attempt: int
    shard_bytes: dict[int, int]


class NodeCheckpoints(Record, frozen=True):
    """The checkpoints of a run that one node has.

    Args:
        directory: the run's checkpoint directory on the node.
        other_bytes: size of what else is in it: a script's own checkpoints, the model, curves.
        is_there: whether the node has this directory; told only of one that a person named.
    """

    run: JobId
    directory: str
    checkpoints: tuple[HeldCheckpoint, ...] = ()
    unfinished: tuple[UnfinishedSave, ...] = ()
    other_bytes: int = 0
    is_there: bool = True


class RunCheckpoint(Record, frozen=True):
    """A checkpoint of a run, merged from all nodes.

    Args:
        size_bytes: of all shards, once.
        saved_s: Unix time.
        world_size: ranks that saved it.
        nodes: ranks whose shard a node has, by the node's name.
        missing: ranks whose shard no node that answers has.
        missing_on: nodes that saved those.
        evaluation_loss: after its step, if it was evaluated then.
        is_best: no other checkpoint of the run has a lower one.
    """

    step: int
    attempt: int
    size_bytes: int
    saved_s: float
    world_size: int
    nodes: dict[str, tuple[int, ...]]
    missing: tuple[int, ...] = ()
    missing_on: tuple[str, ...] = ()
    is_pinned: bool = False
    evaluation_loss: float | None = None
    is_best: bool = False

    @property
    def age(self) -> tuple[int, int]:
        """Sort key, equal to that of its manifest."""
        return self.attempt, self.step

    @property
    def is_whole(self) -> bool:
        return not self.missing

    def fewest_nodes(self) -> tuple[str, ...]:
        """Return few nodes that together have all available shards; a single one if it has all."""
        chosen: list[str] = []
        left = {rank for ranks in self.nodes.values() for rank in ranks}
        while left:
            best = max(self.nodes, key=lambda name: len(left.intersection(self.nodes[name])))
            chosen.append(best)
            left.difference_update(self.nodes[best])
        return tuple(chosen)

    def missing_without(self, nodes: Collection[str]) -> dict[str, tuple[int, ...]]:
        """Return the shards that none of ``nodes`` has, by a node that has them; ``""``: none has.

        Args:
            nodes: names of the nodes that take part.
        """
        had = {rank for node in nodes for rank in self.nodes.get(node, ())}
        lacking: dict[str, tuple[int, ...]] = {}
        for rank in sorted(set(range(self.world_size)) - had):
            holder = next((name for name, ranks in self.nodes.items() if rank in ranks), "")
            lacking[holder] = (*lacking.get(holder, ()), rank)
        return lacking


class RunCheckpoints(Record, frozen=True):
    """The checkpoints of a run on all of its nodes.

    Args:
        checkpoints: the newest first.
        directories: of each node that answered, by its name.
        other_bytes: size of what else is in them.
        silent: nodes of the run that do not answer.
    """

    run: JobId
    checkpoints: tuple[RunCheckpoint, ...] = ()
    directories: dict[str, str] = {}
    other_bytes: dict[str, int] = {}
    silent: tuple[str, ...] = ()


class SavedStep(Record, frozen=True):
    """A checkpoint of ``step`` steps that became complete at ``time_s``, Unix time, or with a
    ``problem`` could not be saved. ``is_scheduled``: nobody had requested it, as its ranks report.
    """

    step: int
    time_s: float
    is_scheduled: bool = False
    problem: Problem | None = None
