"""``checkpoints``: lists what a run has saved; deletes and pins."""

from __future__ import annotations

from argparse import Namespace

import msgspec

from jupyter_mntrain.command_line.parser import Parser, bounded_int
from jupyter_mntrain.model.api import CheckpointAction
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.recipe.sections import MOST_STEPS
from jupyter_mntrain.show.tables.checkpoints import checkpoint_table
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import find_job, job_argument
from jupyter_mntrain.verbs.verb import Outcome, Verb

ACTIONS: tuple[tuple[CheckpointAction, str], ...] = (
    ("delete", "delete the checkpoint of this step on all nodes"),
    ("pin", "keep the checkpoint of this step: newer ones do not replace it"),
    ("unpin", "let newer ones replace it again"),
)


class CheckpointsVerb(Verb):
    name = "checkpoints"
    help = "list what a job's run has saved, and where; delete or pin one"

    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        for action, text in ACTIONS:
            parser.option(f"--{action}", type=bounded_int(1, MOST_STEPS), metavar="STEP", help=text)

    def run(self, context: Context, args: Namespace) -> Outcome:
        asked = [(action, getattr(args, action)) for action, _ in ACTIONS if getattr(args, action)]
        if len(asked) > 1:
            raise SpecError("only one of --delete, --pin and --unpin at a time", fix="use one")
        if asked and not args.job:
            raise SpecError(f"--{asked[0][0]}: no job given", fix="name the job of the checkpoint")
        job = find_job(context, args)
        if asked:
            action, step = asked[0]
            listed = job.change_checkpoint(step, action)
        else:
            listed = job.checkpoints()
        table = checkpoint_table(listed, now_s=context.clock(), program=context.program)
        data = msgspec.to_builtins(listed) | {"job_id": job.id}
        return Outcome(table, data, job=job)
