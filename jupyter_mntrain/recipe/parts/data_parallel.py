"""The section of data parallelism, and what replicas that meet rarely exclude. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from jupyter_mntrain.model._record import UserRecord
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.parts.results import EvaluationSection

BLOCK, SCALE_BYTES = 1024, 4
"""Values that are sent as int8 with a scale in common, and its bytes."""

SENT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "int8": 1 + SCALE_BYTES / BLOCK}
"""Bytes per value at a meeting of replicas."""

OF_MEETINGS = (
    *("outer_learning_rate", "outer_momentum", "sync_dtype"),
    *("sync_fragments", "sync_delay"),
)
"""Fields that nothing reads where replicas sum gradients in every step."""


class DataParallelSection(UserRecord, frozen=True):
    """Data parallelism: ``replicas`` x ``shards`` pipelines, each on its own part of every batch.

    Ranks of a node get the same stage first, so that gradients are summed within a node and only
    activations cross the network. ``replicas`` hold the same weights. ``shards`` ranks
    shard weights and optimizer state (FSDP2), and gather the weights to compute: of one node where
    it has enough, else over the network. With ``reshard_after_forward``, each layer's weights are
    gathered for each pass and dropped after it, so that less memory is needed and more is sent.

    With ``sync_every`` above 0, each replica trains alone, and all average what they learned after
    every so many steps, and after the last one (DiLoCo, arXiv 2311.08105): for replicas with a slow
    network between them. The ranks of a replica then follow each other, so that nodes hold whole
    ones. SGD with Nesterov momentum, by ``outer_learning_rate`` and ``outer_momentum``, takes the
    mean of the differences to the weights of the last meeting, which are sent in ``sync_dtype``:
    as ``int8``, with a scale for every :data:`BLOCK` of them.

    With ``sync_fragments`` above 1, the weights meet in so many fragments one after another, each
    once in ``sync_every`` steps (arXiv 2501.18512). With ``sync_delay`` above 0, an average is made
    behind computing, and taken so many steps after the differences were.
    """

    replicas: Annotated[int, Meta(ge=1, le=1024)] = 1
    shards: Annotated[int, Meta(ge=1, le=1024)] = 1
    reshard_after_forward: bool = False
    sync_every: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    outer_learning_rate: Annotated[float, Meta(gt=0.0, le=10.0)] = 0.7
    outer_momentum: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.9
    sync_dtype: Literal["float32", "bfloat16", "int8"] = "float32"
    sync_fragments: Annotated[int, Meta(ge=1, le=1024)] = 1
    sync_delay: Annotated[int, Meta(ge=0, le=1_000_000)] = 0

    @property
    def width(self) -> int:
        """Number of pipelines."""
        return self.replicas * self.shards

    @property
    def meets_rarely(self) -> bool:
        """Whether replicas train apart between meetings; else they sum gradients in every step."""
        return self.sync_every > 0

    @property
    def fragment_steps(self) -> int:
        """Steps from the meeting of one fragment to that of the next; 0 without rare meetings."""
        return self.sync_every // self.sync_fragments

    def fragment_due(self, step: int) -> int | None:
        """Number of the fragment that meets after ``step`` steps, if one does."""
        if not (self.meets_rarely and step) or step % self.fragment_steps:
            return None
        return (step // self.fragment_steps - 1) % self.sync_fragments

    @property
    def sent_bytes(self) -> float:
        """Bytes per value that replicas average at a meeting."""
        return SENT_BYTES[self.sync_dtype]

    @property
    def sums_gradients(self) -> bool:
        """Whether pipelines sum gradients in every step."""
        return self.shards > 1 or (self.replicas > 1 and not self.meets_rarely)

    @property
    def given(self) -> str:
        """Its sizes, as a recipe names them."""
        sizes = {"replicas": self.replicas, "shards": self.shards}
        return " x ".join(f"data_parallel.{name} = {n}" for name, n in sizes.items() if n > 1)


def check_meetings(section: DataParallelSection, evaluation: EvaluationSection) -> None:
    """Refuse a single replica that meets others, an outer optimizer without meetings, and
    evaluations between them.

    Raises:
        RecipeError: naming the field and what to change.
    """
    every, usual = section.sync_every, DataParallelSection()
    of_meetings = [one for one in OF_MEETINGS if getattr(section, one) != getattr(usual, one)]
    given = f"data_parallel.sync_every = {every}"
    if section.replicas == 1 and (section.meets_rarely or of_meetings):
        fields = (["sync_every"] if section.meets_rarely else []) + of_meetings
        cause = f"data_parallel.{fields[0]}: a single replica has no other to meet"
        fix = f"set data_parallel.replicas, for example to 2, or leave {_listed(fields)} out"
        raise RecipeError(cause, fix=fix)
    if not section.meets_rarely:
        if of_meetings:
            cause = (
                f"data_parallel.{of_meetings[0]}: replicas sum gradients in every step, because "
            )
            cause += "data_parallel.sync_every is 0"
            fix = f"set sync_every, for example to 50, or leave {_listed(of_meetings)} out"
            raise RecipeError(cause, fix=fix)
        return
    _check_fragments(section)
    between = evaluation.interval_steps
    if between % every:
        cause = f"evaluation.interval_steps = {between}: with {given} the replicas have different "
        cause += "weights between meetings"
        nearest = max(1, round(between / every)) * every
        raise RecipeError(cause, fix=f"use a multiple of {every}, for example {nearest}")


def _check_fragments(section: DataParallelSection) -> None:
    """Refuse fragments that do not share the steps evenly, and averages that are taken later than
    the next fragment meets.
    """
    every, fragments, delay = section.sync_every, section.sync_fragments, section.sync_delay
    given = f"data_parallel.sync_every = {every}"
    if every % fragments:
        cause = f"data_parallel.sync_fragments = {fragments}: {given} is no multiple of it, and "
        cause += "fragments meet at equal intervals"
        nearest = max(1, round(every / fragments)) * fragments
        fitting = max(one for one in range(1, fragments) if every % one == 0)
        raise RecipeError(cause, fix=f"use {fitting} fragments, or sync_every = {nearest}")
    if delay >= section.fragment_steps:
        cause = f"data_parallel.sync_delay = {delay}: the next fragment meets "
        cause += f"{section.fragment_steps} step{'s' * (section.fragment_steps > 1)} later, with "
        cause += f"{given} and sync_fragments = {fragments}"
        raise RecipeError(cause, fix=f"use at most {section.fragment_steps - 1}")


def _listed(fields: Sequence[str]) -> str:
    *others, last = fields
    return f"{', '.join(others)} and {last}" if others else last
