"""Keep: ``python -m jupyter_mntrain.train.keep`` copies or exports a checkpoint of another run.

Runs next to the job, on the CPUs of the nodes that have the checkpoint.
"""

from __future__ import annotations

import argparse
import os

from jupyter_mntrain.model.whereabouts import in_home

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from torch.distributed.elastic.multiprocessing.errors import record

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.model.errors import MntrainError, RecipeError
from jupyter_mntrain.recipe.parse import load_recipe
from jupyter_mntrain.telemetry.problem_file import leave_with
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train.answering.generate import checkpoints_of
from jupyter_mntrain.train.checkpoint.keeping import copy_checkpoint, export_checkpoint
from jupyter_mntrain.train.checkpoint.resuming import find_newest
from jupyter_mntrain.train.world import join_world

TIMEOUT_S = 4 * 3600.0
"""Timeout of the ranks that copy or export a checkpoint for each other: the slowest disk counts."""


@record
def main(argv: list[str] | None = None) -> None:
    """Copy or export a checkpoint, as the arguments say."""
    arguments = _parser().parse_args(argv)
    recipe = load_recipe(arguments.recipe, arguments.set)
    path = in_home(arguments.path)
    with Recorder() as recorder, join_world("cpu", TIMEOUT_S) as world:
        source = CheckpointDirectory(checkpoints_of(arguments.run, recipe, os.environ))
        found = find_newest(world, source, step=arguments.step, finishes=False)
        if found is None:
            cause = f"run {arguments.run} has no checkpoint {arguments.step} here any longer"
            raise RecipeError(cause, fix=f"see mntrain checkpoints {arguments.run}")
        if arguments.what == "copy":
            target = CheckpointDirectory(path, found.manifest.attempt)
            copy_checkpoint(world, source, found, target, recorder.progress)
        else:
            export_checkpoint(
                world,
                source,
                found,
                path,
                recipe=recipe,
                run=arguments.run,
                progress=recorder.progress,
            )
        if world.is_head:
            said = {"copy": "copied", "export": "exported"}[arguments.what]
            step = found.manifest.step
            print(f"{said} step {step} of run {arguments.run} to {path}", flush=True)  # noqa: T201 - the job's log


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jupyter_mntrain.train.keep")
    parser.add_argument("what", choices=("copy", "export"))
    parser.add_argument("run", help="whose checkpoint it is")
    parser.add_argument("step", type=int)
    parser.add_argument("path", help="on the nodes")
    parser.add_argument("recipe", help="the recipe of its job")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE")
    return parser


if __name__ == "__main__":
    try:
        main()
    except MntrainError as error:
        leave_with(error)
