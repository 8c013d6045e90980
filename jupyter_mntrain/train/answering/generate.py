"""Generation: ``python -m …train.answering.generate`` continues a text from a checkpoint.

Runs next to the job, on the CPUs of its nodes; ranks that hold shards send them to rank 0.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_mntrain.model import tunables

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch.distributed.elastic.multiprocessing.errors import record

from jupyter_mntrain.families.directories import CONFIG
from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.model.environment import CHECKPOINT_VARIABLE, RUN_VARIABLE
from jupyter_mntrain.model.errors import MntrainError, RecipeError
from jupyter_mntrain.recipe.parse import load_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.problem_file import leave_with
from jupyter_mntrain.telemetry.progress import ProgressWriter
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train.checkpoint.export import DESCRIPTION, load_whole
from jupyter_mntrain.train.checkpoint.places import directory_of
from jupyter_mntrain.train.checkpoint.resuming import FoundCheckpoint, find_newest
from jupyter_mntrain.train.data.chat import ChatWriter
from jupyter_mntrain.train.data.tokens import read_tokenizer, text_ids
from jupyter_mntrain.train.model.decoder import materialize, whole_model
from jupyter_mntrain.train.model.held_memory import too_large
from jupyter_mntrain.train.world import World, agree, join_world

TIMEOUT_S = tunables.seconds("train.generate_timeout_s")


@record
def main(argv: list[str] | None = None) -> None:
    """Generate, and record a :class:`~jupyter_mntrain.model.records.metrics.RankText`."""
    arguments = _parser().parse_args(argv)
    recipe = load_recipe(arguments.recipe, arguments.set)
    with Recorder() as recorder, join_world("cpu", TIMEOUT_S) as world:
        directory = checkpoints_of(arguments.run, recipe, os.environ)
        found = saved_of(world, directory, arguments.run, arguments.step)
        model = load_saved(world, directory, found, recipe, recorder.progress)
        if model is None:
            return
        splits = recipe.data.split_special_tokens
        written = write(model, directory / DESCRIPTION, arguments, splits_special=splits)
        recorder.wrote(found.manifest.step, arguments.prompt, written)
        print(written, flush=True)  # noqa: T201 - the job's log is this process's output


def checkpoints_of(run: str, recipe: Recipe, environment: Mapping[str, str]) -> Path:
    """Return the directory of another run's checkpoints on this node.

    Raises:
        RecipeError: the recipe names none, and this process is not part of a job.
    """
    own = environment.get(CHECKPOINT_VARIABLE)
    theirs: dict[str, str] = {}
    if own is not None:
        runs, name = Path(own).parents[1], Path(own).name
        theirs[CHECKPOINT_VARIABLE] = str(runs / run / name)
    found = directory_of(recipe, {**environment, **theirs, RUN_VARIABLE: run})
    if found is None:
        raise RecipeError("no checkpoint directory was given", fix="launch it with mntrain")
    return found


def saved_of(world: World, directory: Path, run: str, step: int | None = None) -> FoundCheckpoint:
    """Find a checkpoint of a run. Collective.

    Args:
        step: default: the newest.

    Raises:
        RecipeError: there is none.
    """
    found = find_newest(world, CheckpointDirectory(directory), step=step, finishes=False)
    if found is None and step is not None:
        cause = f"run {run} has no checkpoint {step} here"
        raise RecipeError(cause, fix=f"see mntrain checkpoints {run}")
    if found is None:
        raise RecipeError(f"run {run} has no checkpoint yet", fix=f"save one: mntrain save {run}")
    return found


def load_saved(
    world: World, directory: Path, found: FoundCheckpoint, recipe: Recipe, progress: ProgressWriter
) -> Any:
    """Load the model of a checkpoint on rank 0; ``None`` on the others. Collective.

    Args:
        recipe: of the run.

    Raises:
        RecipeError: the directory lacks what describes the model, or it is too large.
    """
    here = (directory / DESCRIPTION / "config.json").is_file()
    error = None
    if world.is_head and not here:
        cause = f"{directory / DESCRIPTION} does not exist"
        error = RecipeError(cause, fix="launch the job again")
    agree(world, error)
    stage = whole_model(directory / DESCRIPTION) if world.is_head else None
    size = 0 if stage is None else sum(one.nbytes for one in stage.weights().values())
    agree(world, too_large(size))
    weights = load_whole(
        world,
        CheckpointDirectory(directory),
        found,
        stage,
        () if stage is None else stage.weights(),
        recipe,
        progress,
    )
    if stage is None:
        return None
    if lacking := [name for name in stage.weights() if name not in weights]:
        cause = f"checkpoint {found.manifest.step} in {directory} has no {lacking[0]}, which the "
        cause += f"{CONFIG} next to it requires"
        raise RecipeError(cause, fix="resume the job: it writes the config again")
    return materialize(stage, weights, world.device).causal.eval()


def write(
    model: Any, description: Path, arguments: argparse.Namespace, *, splits_special: bool
) -> str:
    """Continue the prompt, taken as it is or as the user's turn in a chat.

    Args:
        splits_special: read special tokens in it as text.
    """
    tokenizer = read_tokenizer(description)
    if arguments.chat:
        if tokenizer.chat_template is None:
            raise RecipeError("this model has no chat template", fix="omit --chat")
        writer = ChatWriter(tokenizer, None, answers_only=False, splits_special=splits_special)
        ids = writer.asks([{"role": "user", "content": arguments.prompt}], "the text")
    else:
        ids = text_ids(tokenizer, arguments.prompt, splits_special=splits_special)
    given = torch.tensor([ids], dtype=torch.int64)
    torch.manual_seed(arguments.seed)
    with torch.no_grad():
        written = model.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=arguments.tokens,
            **sampling(arguments.temperature, arguments.top_p),
            pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
        )
    return str(tokenizer.decode(written[0, given.shape[1] :], skip_special_tokens=True))


def sampling(temperature: float, top_p: float) -> dict[str, Any]:
    """Return the sampling settings of transformers' ``generate``; at temperature 0 it is greedy."""
    if temperature > 0:
        return {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": 0}
    return {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jupyter_mntrain.train.answering.generate")
    parser.add_argument("run", help="run whose checkpoint is used")
    parser.add_argument("recipe", help="the recipe of its job")
    parser.add_argument("prompt")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE")
    parser.add_argument("--step", type=int, help="of the checkpoint; default: the newest")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chat", action="store_true")
    return parser


if __name__ == "__main__":
    try:
        main()
    except MntrainError as error:
        leave_with(error)
