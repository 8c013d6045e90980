"""``checkpoints``: lists what a run has saved; deletes, pins, copies and exports."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser, bounded_int
from jupyter_mntrain.model.api import CheckpointAction
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.checkpoint import MOST_STEPS
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables.kept.checkpoints import checkpoint_table
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, find_job, job_argument, wanted_step

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

ACTIONS: tuple[tuple[CheckpointAction, str], ...] = (
    ("delete", "delete the checkpoint of this step on all nodes"),
    ("pin", "keep the checkpoint of this step: newer ones do not replace it"),
    ("unpin", "let newer ones replace it again"),
)
WHAT = ("delete", "pin", "unpin", "copy", "export")


class CheckpointsVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        for action, text in ACTIONS:
            parser.option(f"--{action}", type=bounded_int(1, MOST_STEPS), metavar="STEP", help=text)
        parser.option(
            "--copy",
            metavar="PATH",
            help="copy one to this directory on the nodes, and verify every shard; resume --from "
            "PATH starts from it",
        )
        parser.option(
            "--export",
            metavar="DIR",
            help="write one as a Hugging Face model directory on a node that has it",
        )
        parser.option(
            "--step",
            type=wanted_step,
            metavar="STEP|best",
            help="which one to copy or export; best has the lowest evaluation loss; default: the "
            "newest complete one",
        )
        parser.flag(
            "--mixed-versions",
            help="copy or export although versions of torch, Python or others differ between nodes",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        asked = [what for what in WHAT if getattr(args, what)]
        if len(asked) > 1:
            names = ", ".join(f"--{one}" for one in asked)
            raise SpecError(f"only one at a time: {names}", fix="use one")
        if asked and not args.job:
            raise SpecError(f"--{asked[0]}: no job given", fix="name the job of the checkpoint")
        if args.step is not None and asked not in (["copy"], ["export"]):
            raise SpecError("--step says what to copy or export", fix="add --copy or --export")
        if args.mixed_versions and asked not in (["copy"], ["export"]):
            cause = "--mixed-versions is for nodes that copy or export"
            raise SpecError(cause, fix="add --copy or --export")
        job = find_job(context, args)
        if args.copy or args.export:
            return _kept(context, args, job)
        action = next((one for one, _ in ACTIONS if one in asked), None)
        if action is None:
            listed = job.checkpoints()
        else:
            listed = job.change_checkpoint(getattr(args, action), action)
        table = checkpoint_table(listed, now_s=context.clock(), program=context.program)
        data = msgspec.to_builtins(listed) | {"job_id": job.id}
        return Outcome(table, data, job=job)


def _kept(context: Context, args: Namespace, job: Job) -> Outcome:
    checkpoints = context.cluster(args).checkpoints(job.id)
    keep = checkpoints.copy if args.copy else checkpoints.export
    with context.screen.progress() as progress:
        kept = keep(
            args.copy or args.export,
            step=args.step,
            mixed_versions=args.mixed_versions,
            progress=progress,
        )
    text = Text.assemble(
        "copied" if args.copy else "exported",
        f" step {formats.count(kept.step)} of run {kept.run} to ",
        (kept.path, "bold"),
        f" on {', '.join(kept.nodes)}",
    )
    if args.copy:
        hint = f"{context.program} resume {job.id} --from {kept.path}"
        text.append(f"\n  every shard was read back and compared; start from it: {hint}", "dim")
    return Outcome(text, msgspec.to_builtins(kept), job=job)
