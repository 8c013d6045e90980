"""Written model: the Hugging Face directory that a script's job wrote and verbs can load."""

from __future__ import annotations

import re
import shlex
from argparse import Namespace
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from jupyter_mntrain.families.directories import has_tokenizer
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import TRAINER
from jupyter_mntrain.recipe.stored import RECIPE_FILE
from jupyter_mntrain.verbs.verb import Context, joined_cluster

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

_WEIGHTS = re.compile(r"(pytorch_)?model.*\.(safetensors|bin)")
_NUMBERS = re.compile(r"\d+")


class _Written(NamedTuple):
    """A model that a job wrote: its directory, its node, and whether a tokenizer is included."""

    directory: str
    node: str
    has_tokenizer: bool


def refuse_script(context: Context, args: Namespace, job: Job, verb: str) -> None:
    """Refuse a job without a checkpoint of the built-in trainer; suggest a model that it wrote.

    Args:
        verb: that loads a directory.

    Raises:
        SpecError: it is such a job.
    """
    spec = job.spec()
    if spec.entry[:3] == ("-m", TRAINER, RECIPE_FILE):
        return
    command = f"{context.program} {verb}"
    model = _where(context, args, job)
    if model is None:
        fix = f"name the Hugging Face directory that its script saved: {command} DIR --node NODE"
    else:
        fix = f"load what its script saved: {command} {shlex.quote(model.directory)} "
        fix += f"--node {model.node}"
        if not model.has_tokenizer:
            fix += ", after copying its tokenizer into it: the script saved none"
    raise SpecError(
        f"job {job.id} runs {' '.join(spec.entry[:2])}, not a recipe of the built-in trainer",
        fix=fix,
        kind=Kind.BAD_COMMAND,
    )


def _where(context: Context, args: Namespace, job: Job) -> _Written | None:
    """Return the newest model that the job wrote; ``None`` if that is not known."""
    try:
        with context.screen.progress() as progress:
            written = joined_cluster(context, args).files.of_job(job.view(), progress=progress)
    except MntrainError:
        return None
    for node, held in written.nodes.items():
        paths = {one.path for one in held.files}
        if (model := model_folder(paths)) is not None:
            there = PurePosixPath(model)
            names = [one.name for one in map(PurePosixPath, paths) if one.parent == there]
            return _Written(str(PurePosixPath(held.path) / model), node, has_tokenizer(names))
    return None


def model_folder(paths: Collection[str]) -> str | None:
    """Return the folder with a Hugging Face model among the files that a job wrote.

    That is the outermost one, such as a Trainer's ``output_dir``, else the checkpoint with the
    highest number.
    """
    folders = {str(one.parent) for one in map(PurePosixPath, paths) if one.name == "config.json"}
    models = {
        str(one.parent)
        for one in map(PurePosixPath, paths)
        if _WEIGHTS.fullmatch(one.name) and str(one.parent) in folders
    }

    def order(folder: str) -> tuple[int, list[int], str]:
        numbers = [-int(one) for one in _NUMBERS.findall(PurePosixPath(folder).name)]
        return len(PurePosixPath(folder).parts), numbers, folder

    return min(models, key=order, default=None)
