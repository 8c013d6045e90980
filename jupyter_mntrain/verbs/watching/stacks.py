"""``stacks``: shows which line each rank is executing."""

from __future__ import annotations

from argparse import Namespace

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.show.stacks import ShownStack, shown_stacks
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, find_job, job_argument, rank_option


class StacksVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        rank_option(parser, "only this rank, with all threads")

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = find_job(context, args)
        view, answers = job.view(), job.stacks(rank=args.rank)
        shown = shown_stacks(view, answers, args.rank)
        lines: list[RenderableType] = []
        if shown.problem is not None:
            lines.append(problem_text(shown.problem, mark="⚠", style="yellow"))
        lines += [problem_text(one, mark="⚠", style="yellow") for one in shown.silent]
        for stack in shown.ranks:
            lines += _stack_lines(stack, with_threads=args.rank is not None)
        if shown.nothing:
            lines.append(Text(shown.nothing))
        if shown.nothing and view.state in TERMINAL:
            lines.append(Text(f"  log: {context.program} logs {job.id}", "dim"))
        data = [
            {"node": node, **msgspec.to_builtins(stack)}
            for node, said in answers.items()
            if not isinstance(said, MntrainError)
            for stack in said
        ]
        return Outcome(Group(*lines), data, job=job)


def _stack_lines(stack: ShownStack, *, with_threads: bool) -> list[RenderableType]:
    threads = [stack.threads] if with_threads and stack.threads else []
    return [Text(stack.said, "bold"), *(Text(one, "dim") for one in (*threads, stack.text))]
