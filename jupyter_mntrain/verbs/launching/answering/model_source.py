"""Model source: a checkpoint of a job, or a Hugging Face directory on a node."""

from __future__ import annotations

import os
from argparse import Namespace

import msgspec

from jupyter_mntrain.command_line.parser import Parser, bounded_int
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.recipe.stored import RECIPE_FILE
from jupyter_mntrain.verbs.launching.answering.generate import (
    changed_words,
    spec_beside,
    step_option,
    step_words,
)
from jupyter_mntrain.verbs.launching.answering.written_model import refuse_script
from jupyter_mntrain.verbs.verb import (
    Context,
    find_job,
    joined_cluster,
    node_option,
    reachable_nodes,
)

LARGEST_GPU = 1023


def add_model_arguments(parser: Parser) -> None:
    """Add the arguments that select the model and where it runs."""
    parser.argument(
        "model",
        metavar="JOB|DIR",
        completes="job",
        help="a job whose checkpoint is loaded, or a Hugging Face directory on a node, as a path "
        "with a /",
    )
    step_option(parser)
    node_option(parser, "the node that has the directory")
    parser.option(
        "--gpu",
        type=bounded_int(0, LARGEST_GPU),
        metavar="INDEX",
        help="compute on this GPU of the node; default: on its CPUs, as a job may need the GPUs",
    )
    parser.flag(
        "--mixed-versions",
        help="start although versions of torch, Python or others differ between nodes",
    )


def answering_spec(
    context: Context, args: Namespace, module: str, what: str, words: tuple[str, ...] = ()
) -> JobSpec:
    """Return the job that loads the model.

    Args:
        module: of ours.
        what: it does, for its name: that of the verb.
        words: more arguments of the module.

    Raises:
        SpecError: the job runs no recipe, or it is not known which node has the directory.
    """
    if _is_directory(args.model):
        if args.step is not None:
            cause = "--step is for a job's checkpoints: a directory has one model"
            raise SpecError(cause, fix="omit --step")
        spec = _beside_directory(context, args, module, what, words)
    else:
        if args.node is not None:
            cause = "--node is for directories: a job's checkpoint is where it ran"
            raise SpecError(cause, fix="omit --node")
        job = find_job(context, Namespace(**{**vars(args), "job": args.model}))
        refuse_script(context, args, job, what)
        view, stored = job.view(), job.spec()
        where = ("--checkpoint-of", view.run, "--recipe", RECIPE_FILE, *changed_words(stored))
        entry = (module, *where, *step_words(job, args.step), *words)
        spec = spec_beside(view, stored, entry, what, mixed_versions=args.mixed_versions)
    return spec if args.gpu is None else _with_gpu(spec, args.gpu)


def _is_directory(text: str) -> bool:
    return os.sep in text or text.startswith(("~", "."))


def _beside_directory(
    context: Context, args: Namespace, module: str, what: str, words: tuple[str, ...]
) -> JobSpec:
    path = args.model
    if not path.startswith(("/", "~")):
        path = str((context.directory / path).resolve())
    node = args.node
    if node is None:
        cluster = joined_cluster(context, args)
        names = [one.name for one in reachable_nodes(context, cluster)]
        if len(names) != 1:
            cause = f"it is not known which node has {path}"
            raise SpecError(cause, fix=f"name it: --node {' | '.join(names) or 'NODE'}")
        [node] = names
    return JobSpec(
        entry=("-m", module, "--directory", path, *words),
        participants=(Participant(node=node),),
        name=f"{what} {os.path.basename(path)}"[:60],  # noqa: PTH119 - of another machine
        mixed_versions=args.mixed_versions,
    )


def _with_gpu(spec: JobSpec, gpu: int) -> JobSpec:
    """Return the job with a GPU on the head, which holds the model."""
    head: Participant = msgspec.structs.replace(spec.participants[0], gpus=(gpu,))
    changed: JobSpec = msgspec.structs.replace(spec, participants=(head, *spec.participants[1:]))
    return changed
