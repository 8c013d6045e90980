"""Refusal: what is said of a job that fits nowhere, with the smallest change that fits. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.plan import LinkSpeed
from jupyter_mntrain.plan.choosing.devices import Chain, make_chain, participants
from jupyter_mntrain.plan.choosing.priced import Task
from jupyter_mntrain.plan.choosing.rare_meetings import with_shards
from jupyter_mntrain.plan.choosing.room import Shortfall
from jupyter_mntrain.plan.choosing.search import fits
from jupyter_mntrain.recipe.combinations import check_memory
from jupyter_mntrain.recipe.memory import shown_bytes
from jupyter_mntrain.recipe.sections import OptimizerKind, Recipe

MOST_ADDED: Final = 4
"""Ranks that are tried besides those there are."""

_OPTIMIZERS: Final[tuple[OptimizerKind, ...]] = ("adamw-8bit", "adamw-4bit", "adafactor")


class _Change(NamedTuple):
    what: str
    task: Task


def refusal(task: Task, chain: Chain, lack: Shortfall | None) -> RecipeError:
    """Return the error of a job that does not fit: which rank, what it needs and has, and the
    smallest change that would fit.
    """
    if lack is None:
        cause = "no split of the layers among these ranks is possible"
        return RecipeError(cause, fix="use fewer ranks, or a model with more layers")
    rank, device = chain.places[lack.place].smallest
    needed, limit = (shown_bytes(round(size)) for size in (lack.needed_bytes, lack.limit_bytes))
    cause = f"rank {rank} needs {needed} of memory and has {limit} ({device.name})"
    for change in _changes(task, chain):
        with suppress(RecipeError):
            tried = change.task
            order = range(len(participants(tried.devices)))
            changed = make_chain(tried.devices, tried.links, tried.recipe, order)
            if fits(change.task, changed):
                return RecipeError(cause, fix=change.what, node=device.node)
    fix = "use a smaller model, shorter sequences, or more nodes"
    return RecipeError(cause, fix=fix, node=device.node)


def _changes(task: Task, chain: Chain) -> Iterator[_Change]:
    """From what costs least to what changes most."""
    recipe, opened = task.recipe, task.opened
    for name, what in (
        ("pipeline.split", "leave pipeline.split out: another split fits"),
        ("pipeline.in_flight", "leave pipeline.in_flight out: fewer in flight fit"),
        ("memory.checkpointing", 'use memory.checkpointing = "full"'),
        ("pipeline.microbatches", "leave pipeline.microbatches out: smaller microbatches fit"),
        ("pipeline.schedule", "leave pipeline.schedule out: another schedule fits"),
    ):
        if name not in opened:
            yield _Change(what, _opening(task, {name}))
    everything = _opening(task, {"pipeline.split", "pipeline.microbatches", "memory.checkpointing"})
    if everything.opened != opened:
        what = "leave pipeline.split, pipeline.microbatches and memory.checkpointing out"
        yield _Change(what, everything)
    # Sharded replicas learn the same; shards in place of a pipeline send much more.
    has_replicas = recipe.data_parallel.replicas > 1
    if has_replicas:
        yield from _sharded(everything, "replicas")
    if recipe.precision == "float32-master":
        yield _Change(
            'use optimizer.precision = "stochastic-rounding"',
            _with_optimizer(everything, recipe, precision="stochastic-rounding"),
        )
    if recipe.optimizer.kind == "adamw":
        for kind in _OPTIMIZERS:
            yield _Change(
                f'use optimizer.kind = "{kind}"', _with_optimizer(everything, recipe, kind=kind)
            )
    if not has_replicas:
        yield from _sharded(everything, "a pipeline")
    yield from _more_ranks(everything, chain)


def _sharded(task: Task, replaced: str) -> Iterator[_Change]:
    if len(task.devices) < 2:
        return
    for tried in with_shards(task):
        section = tried.recipe.data_parallel
        what = f"use data_parallel.shards = {section.shards} in place of {replaced}"
        if section.reshard_after_forward:
            what += ", with reshard_after_forward = true"
        with suppress(RecipeError):
            check_memory(tried.recipe)
            yield _Change(what, tried)


_ANY_LINK = LinkSpeed(bytes_per_s=1e8, source="assumed")
"""To a node that there is not: how fast it is does not decide whether a job fits."""


def _more_ranks(task: Task, chain: Chain) -> Iterator[_Change]:
    """Like the device with most memory, on nodes of their own."""
    width = task.recipe.data_parallel.width
    largest = max(task.devices, key=lambda one: one.memory_bytes or 0.0)
    known = len(task.devices)

    def links(sender: int, receiver: int) -> LinkSpeed:
        if max(sender, receiver) < known:
            return task.links(sender, receiver)
        return next(iter(chain.links.values()), _ANY_LINK)

    for more in range(1, MOST_ADDED + 1):
        added = tuple(
            msgspec.structs.replace(largest, node=f"{largest.node} {number + 1}")
            for number in range(more)
            for _ in range(width)
        )
        count = more * width
        what = f"add {count} more rank{'s' * (count > 1)} like that of {largest.node}"
        yield _Change(
            what, msgspec.structs.replace(task, devices=(*task.devices, *added), links=links)
        )


def _opening(task: Task, names: set[str]) -> Task:
    pipeline = task.recipe.pipeline
    if "pipeline.in_flight" in names:
        pipeline = msgspec.structs.replace(pipeline, in_flight="auto")
    recipe = msgspec.structs.replace(task.recipe, pipeline=pipeline)
    return msgspec.structs.replace(task, recipe=recipe, opened=task.opened | names)


def _with_optimizer(task: Task, recipe: Recipe, **changes: str) -> Task:
    section = msgspec.structs.replace(recipe.optimizer, **changes)
    return msgspec.structs.replace(
        task, recipe=msgspec.structs.replace(task.recipe, optimizer=section)
    )
