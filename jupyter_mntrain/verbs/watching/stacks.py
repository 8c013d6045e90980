"""``stacks``: shows the line at which each rank is."""

from __future__ import annotations

from argparse import Namespace

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.model.records.stall import RankStack
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import RANK, find_job, job_argument
from jupyter_mntrain.verbs.verb import Outcome, Verb


class StacksVerb(Verb):
    name = "stacks"
    help = "show every rank's current stack, for jobs that hang"

    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        parser.option("--rank", type=RANK, metavar="RANK", help="only this rank, with all threads")

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = find_job(context, args)
        lines: list[RenderableType] = []
        data = []
        view = job.view()
        for node, said in job.stacks(rank=args.rank).items():
            if isinstance(said, MntrainError):
                lines.append(problem_text(said.problem, mark="⚠", style="yellow"))
                continue
            for stack in said:
                lines += _stack_lines(node, stack, with_threads=args.rank is not None)
                data.append({"node": node, **msgspec.to_builtins(stack)})
        if not data:
            lines.append(Text(_why_none(view, args.rank, context.program)))
        return Outcome(Group(*lines), data, job=job)


def _why_none(view: JobView, rank: int | None, program: str) -> str:
    if view.state in TERMINAL:
        return f"{view.job_id} has ended; its output: {program} logs {view.job_id}"
    what = "no rank" if rank is None else f"rank {rank}"
    verb = "runs" if rank is None else "does not run"
    return f"{what} of {view.job_id} {verb} on a reachable node now"


def _stack_lines(node: str, stack: RankStack, *, with_threads: bool) -> list[RenderableType]:
    where = f", {stack.where}" if stack.where else ""
    text = Text.assemble((f"rank {stack.rank}", "bold"), f" on {node}: {stack.doing}{where}")
    if not stack.text:
        return [text, Text("  No stack: it uses no Recorder, or cannot answer now.", "dim")]
    threads = stack.text.strip().split("\n\n")
    shown = threads if with_threads else threads[-1:]
    return [text, *(Text(thread, "dim") for thread in shown)]
