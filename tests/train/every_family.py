"""Every family on 1, 2 and 3 stages, all weights and adapters, against transformers and peft.

    python -m tests.train.every_family [--only FAMILY] [--steps 4]

One world of three ranks, started once, runs them all: those without a stage wait. Each row is one
training, its losses compared after every step with those of the whole model in one process. Ends
with 1 if anything differs by more than tests/train/equality_cases.py allows.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch import multiprocessing
from transformers.utils import logging

from jupyter_mntrain.families import families
from jupyter_mntrain.families.presets import FAMILIES
from jupyter_mntrain.recipe.sections import AdaptersSection, Recipe
from tests.train.equality import placed, run_case
from tests.train.equality_cases import LAYERS, NO_ADAPTERS, Outcome, case, for_one_process
from tests.train.families import write_model
from tests.train.forked import CONTEXT, told_by, world_of
from tests.train.reference import train_references

MOST_STAGES = 3
MICROBATCHES = 2 * MOST_STAGES
STEPS = 4
KINDS: dict[str, tuple[str, AdaptersSection]] = {
    "full": ("best-fit", NO_ADAPTERS),
    "LoRA": ("auto", AdaptersSection(rank=4, alpha=16.0)),
    "LoRA-whole": (
        "auto",
        AdaptersSection(rank=4, alpha=16.0, train_whole=("embedding", "head")),
    ),
    "QLoRA": ("auto", AdaptersSection(rank=4, alpha=16.0, quantize_base="nf4")),
}
"""Packed documents, and one long text; embedding and head whole next to adapters; the last of all
families but those whose weights are transposed."""

WIDTH = 9


def recipe_of(family: str, stages: int, kind: str, steps: int) -> Recipe:
    """With the same batches on any number of stages: they share what they are compared with."""
    packing, adapters = KINDS[kind]
    made = case(
        family,
        "eager-zero-bubble" if stages > 1 else "1f1b",
        "even",
        1,
        stages,
        tied=True,
        packing=packing,
        adapters=adapters,
        layers=LAYERS,
    )
    return replace(
        made,
        pipeline=replace(made.pipeline, microbatches=MICROBATCHES),
        train=replace(made.train, steps=steps, batch_size=2 * MICROBATCHES),
    )


def main(words: Sequence[str] | None = None) -> int:
    arguments = _arguments(words)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        ours, theirs = CONTEXT.Pipe(duplex=False)
        wanted = (Path(name), arguments.only or [*families()], arguments.steps, theirs)
        ranks = multiprocessing.start_processes(
            _run, wanted, MOST_STAGES, join=False, start_method="forkserver"
        )
        theirs.close()
        for row in told_by(ranks, ours):
            print(row, flush=True)
        passed = Path(name, "passed").exists()
    print(f"{time.monotonic() - begun:.0f} s: {'equal' if passed else 'NOT EQUAL'}")
    return int(not passed)


def _run(rank: int, folder: Path, names: Sequence[str], steps: int, told: Connection) -> None:
    """All of one rank; the first tells the table's rows."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    warnings.simplefilter("ignore")  # of transformers and peft, in each training
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with world_of(rank, MOST_STAGES, folder / "all") as world:
        if world.is_head:
            for family in names:
                if family not in FAMILIES:
                    write_model(family, folder / family)
        dist.barrier()
        recipes = {
            (stages, family, kind): placed(recipe_of(family, stages, kind, steps), folder)
            for stages in range(1, MOST_STAGES + 1)
            for family in names
            for kind in KINDS
            if not (KINDS[kind][1].quantizes and families()[family].transposed)
        }
        references = train_references(recipes.values(), world)
    if rank == 0:
        titles = (f"{one:>{WIDTH}}" for one in ("loss", "gradient", "weight", "reloaded"))
        told.send(f"{'family':12} stages kind {' '.join(titles)}")
    passed = True
    for stages in range(rank + 1, MOST_STAGES + 1):
        with world_of(rank, stages, folder / f"{stages}") as world:
            for (wanted, family, kind), recipe in recipes.items():
                if wanted == stages:
                    outcome = run_case(recipe, world, references[for_one_process(recipe)])
                    passed &= not outcome.beyond()
                    if world.is_head:
                        told.send(f"{family:12} {stages:6} {kind} {_shown(outcome)}")
    if rank == 0 and passed:
        (folder / "passed").touch()


def _shown(outcome: Outcome) -> str:
    figures: tuple[Any, ...] = (
        max(outcome.loss_error, outcome.trained_loss_error),
        outcome.gradient_error,
        outcome.trained_weight_error,
        outcome.reloaded_error,
    )
    beyond = ", ".join(f"{name} {value:.1e}" for name, value in outcome.beyond().items())
    shown = " ".join(f"{one:{WIDTH}.1e}" for one in figures)
    return f"{shown} BEYOND: {beyond}, worst {outcome.worst}" if beyond else shown


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=[*families()], help="repeatable")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each training")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
