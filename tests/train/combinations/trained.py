"""The trainer's side: its public recipe, its journal's losses, and the batches that it reads."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import multiprocessing
from transformers.utils import logging

from jupyter_mntrain.model.environment import METRICS_VARIABLE
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train import TrainResult, parse_recipe, train
from jupyter_mntrain.train.data.batches import Batches
from jupyter_mntrain.train.loop import Trainer
from jupyter_mntrain.train.prepare import prepare
from jupyter_mntrain.train.world import World
from tests.train.combinations.cases import SEEN_STEPS, Combination, write
from tests.train.forked import CONTEXT, told_by, world_of

MOST_RANKS = 3

Batch = tuple[Any, Any, Any]
"""Inputs, labels and positions of some sequences, as numpy has them."""


class Told(NamedTuple):
    """What one rank has read and logged.

    Attributes:
        losses: of each step, from its journal.
        batches: of each step.
        refused: why it did not train.
    """

    losses: tuple[float, ...] = ()
    batches: tuple[Batch, ...] = ()
    refused: str = ""


def trainings(
    wanted: Sequence[Combination], folder: Path
) -> Iterator[tuple[Combination, Mapping[int, Sequence[Told]]]]:
    """Train all of them on 1, 2 and 3 ranks, in processes that stay.

    Yields:
        Each combination, and what each rank has told, by the number of ranks.
    """
    for one in wanted:
        write(one, folder)
    pipes = [CONTEXT.Pipe(duplex=False) for _ in range(MOST_RANKS)]
    arguments = (folder, wanted, [theirs for _, theirs in pipes])
    ranks = multiprocessing.start_processes(
        _run, arguments, MOST_RANKS, join=False, daemon=True, start_method="forkserver"
    )
    for _, theirs in pipes:
        theirs.close()
    told = [told_by(ranks, ours) for ours, _ in pipes]
    for one in wanted:
        yield (
            one,
            {
                count: [next(told[rank]) for rank in range(count)]
                for count in range(1, MOST_RANKS + 1)
            },
        )
    while not ranks.join():
        pass


def readings(
    wanted: Sequence[Combination], folder: Path
) -> Iterator[tuple[Combination, Mapping[int, Sequence[Told]]]]:
    """What one rank reads of them, without a training, in this process."""
    with patch.dict(os.environ, {"XDG_CACHE_HOME": str(folder / "cache")}):
        for one in wanted:
            write(one, folder)
            yield one, {1: [_told(one, folder, rank=0)]}


def _run(
    rank: int, folder: Path, wanted: Sequence[Combination], pipes: Sequence[Connection]
) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        "LOCAL_RANK": str(rank),
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(folder / f"cache-{rank}"),
    }
    quiet()
    sys.stdout = (folder / f"rank-{rank}.log").open("w")
    for number, one in enumerate(wanted):
        for count in range(rank + 1, MOST_RANKS + 1):
            place = folder / f"{number}-on-{count}"
            with world_of(rank, count, place):
                metrics = place.with_suffix(".metrics")
                pipes[rank].send(_told(one, folder, rank=rank, metrics=metrics))


def quiet() -> None:
    """Leave out what transformers says of each model."""
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _told(one: Combination, folder: Path, *, rank: int, metrics: Path | None = None) -> Told:
    """What a rank reads and, with a directory for its journal, what it logs of its training."""
    batches: list[Batch] = []
    if metrics is not None:
        os.environ |= {METRICS_VARIABLE: str(metrics), "RANK": str(rank)}
    try:
        recipe = parse_recipe(one.recipe(folder))
        train(recipe, made_by=partial(_Watched if metrics else _Reader, batches))
    except Exception as error:  # noqa: BLE001  # a difference of this line, whatever it is
        return Told(refused=f"{type(error).__name__}: {error}")
    if metrics is None:
        return Told((), tuple(batches))
    lines = (metrics / f"rank-{rank}.ndjson").read_text().splitlines()
    samples = [json.loads(line) for line in lines]
    return Told(tuple(one["loss"] for one in samples if one["kind"] == "step"), tuple(batches))


class _Watched(Trainer):
    """The trainer, whose batches are written down before its first step."""

    def __init__(self, batches: list[Batch], *arguments: Any) -> None:
        super().__init__(*arguments)
        _write_down(self.batches, batches)


class _Reader(Trainer):
    """Reads all that the trainer does, and trains nothing."""

    def __init__(self, batches: list[Batch], recipe: Recipe, world: World, _: Recorder) -> None:
        _write_down(prepare(recipe, world).batches, batches)

    def run(self) -> TrainResult:
        return TrainResult(0, 1, 0, (), (), (), {})


def _write_down(read: Batches, batches: list[Batch]) -> None:
    for step in range(SEEN_STEPS):
        batch = read.batch(step)
        batches.append(tuple(one.numpy() for one in (batch.inputs, batch.labels, batch.positions)))
