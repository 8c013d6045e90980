"""What a change does to the losses of a run that is resumed with it, tried on every kind of run.

    python -m tests.train.exactness [--only KIND] [--row WORDS] [--write]

Each kind of run is trained for six steps on two ranks, unbroken. Then it goes on from its third
step, once with each change of each row of tests/train/exactness_rows.py, and its losses are
compared. Ends with 1 if a change does more than was recorded; ``--write`` records what it does, and
writes the table of docs/recipe_checkpoints.md. One world of up to four ranks runs all of it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from math import inf
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import multiprocessing
from transformers.utils import logging

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.model.environment import PEAK_VARIABLE
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train import train
from tests.train.exactness_rows import (
    EQUAL,
    KINDS,
    NONE,
    OTHER,
    OTHER_RANKS,
    PAGE,
    RANKS,
    REFUSED,
    ROWS,
    SAVED,
    STEPS,
    Measured,
    Row,
    Try,
    page_with,
    read_record,
    write_record,
)
from tests.train.forked import CONTEXT, told_by

TIMEOUT_S = 300.0
SETTINGS = (
    *("model.preset=llama-tiny", "model.layers=4", "model.dtype=float32"),
    *("data.source={folder}/text.txt", "data.sequence_length=16", "data.vocabulary_size=300"),
    *("pipeline.microbatches=4", "pipeline.split=even", f"train.steps={STEPS}"),
    *("train.batch_size=8", "train.device=cpu", "optimizer.learning_rate=0.005"),
    *("optimizer.warmup_steps=1", f"checkpoint.interval_steps={SAVED}", "checkpoint.keep=9"),
    *("report.to=[]", "output.at_end=false"),
)
ROUNDING = {"float32": 3e-5, "bfloat16": 2e-2}
"""Most that losses differ by rounding in three steps, of losses near ln(300) = 5.7: a microbatch
that is summed in another order differs by 1e-6 in a step, and by four digits more in bfloat16."""


class Base(NamedTuple):
    """An unbroken run, and a directory with the checkpoint that others go on from."""

    losses: tuple[float, ...]
    kept: Path


def main(words: Sequence[str] | None = None) -> int:
    arguments = _arguments(words)
    begun = time.monotonic()
    kinds = arguments.only or [*KINDS]
    rows = [
        one for one in ROWS if not arguments.row or any(each in one.shown for each in arguments.row)
    ]
    measured: Measured = {one.shown: {} for one in rows}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for text, word in (("text", "bubble"), ("other", "schedule")):
            lines = (f"{word} {n} schedule {n * n} microbatch\n" for n in range(600))
            (folder / f"{text}.txt").write_text("".join(lines))
        ours, theirs = CONTEXT.Pipe(duplex=False)
        wanted = (folder, kinds, rows, theirs)
        ranks = multiprocessing.start_processes(
            _run, wanted, max(RANKS, *OTHER_RANKS), join=False, start_method="forkserver"
        )
        theirs.close()
        for kind, shown, tried in told_by(ranks, ours):
            measured[shown][kind] = cell = _together([found for _, found in tried])
            print(f"{kind}: {shown}: {cell}", flush=True)
            for settings, found in tried:
                print(f"    {found:8} {settings}", flush=True)
    print(f"{time.monotonic() - begun:.0f} s")
    known = read_record()
    if arguments.write:
        record = {
            one.shown: {**known.get(one.shown, {}), **measured.get(one.shown, {})} for one in ROWS
        }
        write_record(record)
        PAGE.write_text(page_with(record), encoding="utf-8")
        return 0
    worse = [
        f"{kind}: {shown}: {cell}, but {known[shown][kind]} when it was recorded"
        for shown, cells in measured.items()
        for kind, cell in cells.items()
        if _is_worse(cell, known[shown][kind])
    ]
    print("\n".join(worse) or "as recorded")
    return int(bool(worse))


def _is_worse(now: str, before: str) -> bool:
    """Whether it is of another kind. Rounding may come to nothing, and be more or less."""
    words = (EQUAL, OTHER, REFUSED, NONE)
    kinds = [one if one.startswith(words) else "rounding" for one in (now, before)]
    return kinds[0] != kinds[1] and kinds != [EQUAL, "rounding"]


def _run(
    rank: int, folder: Path, kinds: Sequence[str], rows: Sequence[Row], told: Connection
) -> None:
    """All of one rank; the first tells the cells."""

    torch.set_num_threads(1)
    # inductor takes half a minute; dynamo and autograd's graphs are as with it.
    torch.compile = partial(torch.compile, backend="aot_eager")
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "LOCAL_RANK": str(rank)}
    os.environ |= {"XDG_CACHE_HOME": str(folder / "cache"), PEAK_VARIABLE: "1000"}
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    for number, kind in enumerate(kinds):
        tries = dict.fromkeys(each for one in rows for each in one.tries)
        cells: dict[Try, str] = {}
        bases: dict[Try, Base | None] = {}
        for size in (RANKS, *OTHER_RANKS):
            if rank >= size:
                continue
            with _world(rank, size, folder / f"store-{number}-{size}"):
                for base in dict.fromkeys(map(_base_of, tries)) if size == RANKS else ():
                    bases[base] = _trained(rank, folder / f"{number}-{len(bases)}", kind, base)
                for each in tries:
                    if each.ranks == size:
                        cells[each] = _cell(rank, folder, kind, each, bases.get(_base_of(each)))
        if rank == 0:
            for one in rows:
                tried = [(" ".join(each.settings), cells[each]) for each in one.tries]
                told.send((kind, one.shown, tried))


def _base_of(one: Try) -> Try:
    """The unbroken run that it is compared with."""
    return one._replace(settings=(), ranks=RANKS)


def _trained(rank: int, folder: Path, kind: str, base: Try) -> Base | None:
    """Train without a break; ``None`` if runs of this kind cannot be like that."""
    unbroken, kept = folder / "unbroken", folder / "kept"
    losses = _losses(kind, base, unbroken)
    if losses is None:
        return None
    if base.ended:
        _losses(kind, base, kept, f"train.steps={SAVED}")
    elif rank == 0:
        shutil.copytree(unbroken, kept)
        for step in {*CheckpointDirectory(kept).manifests()} - {SAVED}:
            shutil.rmtree(CheckpointDirectory(kept).of(step))
    dist.barrier()
    return Base(losses, kept)


def _cell(rank: int, folder: Path, kind: str, one: Try, base: Base | None) -> str:
    """What becomes of a run that goes on with a change."""
    usable = None if base is None or _changes_nothing(folder / kind, kind, one) else base
    decided = [(usable, folder / f"resumed-{time.monotonic_ns()}")]
    dist.broadcast_object_list(decided)  # the first rank's: others have trained no base
    base, place = decided[0]
    if base is None:
        return NONE
    fresh, again = place / "fresh", place / "again"
    if rank == 0:
        shutil.copytree(base.kept, again)
    dist.barrier()
    losses = _losses(kind, one, again)
    if losses is None:
        return NONE if _losses(kind, one, fresh) is None else REFUSED
    pairs = [*zip(losses, base.losses[SAVED:], strict=False)]
    most = max(abs(ours - theirs) for ours, theirs in pairs) if pairs else inf
    precision = "bfloat16" if any("bfloat16" in each for each in KINDS[kind]) else "float32"
    if most == 0:
        return EQUAL
    return f"{most:.0e}".replace("e-0", "e-") if most <= ROUNDING[precision] else OTHER


def _changes_nothing(folder: Path, kind: str, one: Try) -> bool:
    """Whether runs of this kind are like that anyway, or cannot be."""
    if not one.settings:
        return False
    try:
        recipes = [_recipe(kind, each, folder) for each in (one, _base_of(one))]
    except RecipeError:
        return True
    return recipes[0] == recipes[1]


def _losses(kind: str, one: Try, kept: Path, *more: str) -> tuple[float, ...] | None:
    """Train, or go on; ``None`` if it is refused. Collective."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return train(_recipe(kind, one, kept, *more)).losses
    except RecipeError:
        return None


def _recipe(kind: str, one: Try, kept: Path, *more: str) -> Recipe:
    folder = next(each for each in kept.parents if (each / "text.txt").exists())
    every = (*SETTINGS, *KINDS[kind], *one.given, *one.settings, *more)
    words = [each.replace("{folder}", str(folder)).replace("{own}", str(kept)) for each in every]
    return parse_recipe("", [*words, f"checkpoint.directory={kept}"])


def _together(cells: Sequence[str]) -> str:
    """Of a row: the worst of its changes, and whether others of them are refused."""
    taken = [one for one in cells if one not in (NONE, REFUSED)]
    if not taken:
        return REFUSED if REFUSED in cells else NONE
    apart = [one for one in taken if one not in (EQUAL, OTHER)]
    worst = max(apart, key=float) if apart else EQUAL
    worst = OTHER if OTHER in taken else worst
    return f"{worst}; some {REFUSED}" if REFUSED in cells else worst


@contextmanager
def _world(rank: int, size: int, store: Path) -> Iterator[None]:
    """The first ranks, as a world of their own."""
    dist.init_process_group(
        "gloo",
        init_method=store.as_uri(),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    yield
    dist.destroy_process_group()


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=[*KINDS], help="repeatable")
    parser.add_argument("--row", action="append", help="rows that hold these words; repeatable")
    parser.add_argument("--write", action="store_true", help="the record and the page")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
