"""Written model: the Hugging Face directory that a script's job wrote, which verbs can load."""

from __future__ import annotations

import re
import shlex
from argparse import Namespace
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import TRAINER
from jupyter_mntrain.recipe.stored import RECIPE_FILE
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import joined_cluster

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

_WEIGHTS = re.compile(r"(pytorch_)?model.*\.(safetensors|bin)")
_NUMBERS = re.compile(r"\d+")


def refuse_script(context: Context, args: Namespace, job: Job, verb: str) -> None:
    """Refuse a job that has no checkpoint of the built-in trainer, and lead to the model that it
    wrote.

    Args:
        verb: that loads a directory.

    Raises:
        SpecError: it is such a job.
    """
    spec = job.spec()
    if spec.entry[:3] == ("-m", TRAINER, RECIPE_FILE):
        return
    command = f"{context.program} {verb}"
    place = _where(context, args, job)
    if place is None:
        fix = f"name the Hugging Face directory that its script saved: {command} DIR --node NODE"
    else:
        directory, node = place
        fix = f"load what its script saved: {command} {shlex.quote(directory)} --node {node}"
    raise SpecError(
        f"job {job.id} runs {' '.join(spec.entry[:2])}, not a recipe of the built-in trainer",
        fix=fix,
        kind=Kind.BAD_COMMAND,
    )


def _where(context: Context, args: Namespace, job: Job) -> tuple[str, str] | None:
    """The newest model that the job wrote, and on which node; ``None`` if that is not known."""
    try:
        with context.screen.progress() as progress:
            written = joined_cluster(context, args).files.of_job(job.view(), progress=progress)
    except MntrainError:
        return None
    found = {
        (held.path, node): model
        for node, held in written.nodes.items()
        if (model := model_folder({one.path for one in held.files})) is not None
    }
    (place, node), model = next(iter(found.items()), (("", ""), None))
    return (str(PurePosixPath(place) / model), node) if model is not None else None


def model_folder(paths: Collection[str]) -> str | None:
    """The folder with a Hugging Face model, of files that a job wrote: the one that is not in
    another, as a Trainer's ``output_dir``, else its checkpoint with the highest number.
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
