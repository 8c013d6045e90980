"""``attach``, ``plot``, ``stacks``, ``logs``: watching a job."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser, typed
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.records.job import TERMINAL, RankStack
from jupyter_mntrain.show.log_follower import LogFollower
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import caught_up_history, find_job
from jupyter_mntrain.verbs.variables import refuse_variable, variable_option
from jupyter_mntrain.verbs.verb import Outcome, Verb
from jupyter_mntrain.verbs.watching.following import detached_outcome, follow, status_outcome
from jupyter_mntrain.verbs.watching.jobs import job_argument

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job, LogLine

FOLLOW_EVERY_S = tunables.seconds("verbs.follow_interval_s")
DEFAULT_TAIL = 50
THEMES = ("auto", "light", "dark")


class AttachVerb(Verb):
    name = "attach"
    help = "show a job live, with its full history"

    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        parser.option("--wait", action="store_true", help="return once the job has ended")
        variable_option(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        refuse_variable(context, args)
        job = find_job(context, args)
        if args.wait or not context.screen.in_background:
            return follow(context, args, job)
        context.screen.show(job)
        return Outcome(data=status_outcome(context, args, job).data if args.json else None, job=job)


class PlotVerb(Verb):
    name = "plot"
    help = "draw the current picture of a job"

    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        parser.option("--out", "-o", metavar="FILE.png", completes="file", help="write it there")
        parser.option(
            "--theme", choices=THEMES, default="auto", help="auto is transparent and fits both"
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        if not args.out and not context.screen.in_background:
            raise SpecError("plot: a terminal shows no pictures", fix="pass a file: -o FILE.png")
        path = context.directory / Path(args.out).expanduser() if args.out else None
        if path is not None and not path.parent.is_dir():
            raise SpecError(f"{path.parent}: no such directory", fix="create it, or choose another")
        job = find_job(context, args)
        png = _draw(context, job, args.theme)
        data = {"job_id": job.id, "bytes": len(png), "file": str(path) if path else None}
        if path is None:
            return Outcome(data=data, job=job, picture=png)
        try:
            path.write_bytes(png)
        except OSError as error:
            cause = f"{path}: cannot be written: {error.strerror}"
            raise SpecError(cause, fix="choose another file") from None
        return Outcome(
            Text(f"wrote {path}"),
            data,
            job=job,
            picture=png if context.screen.in_background else None,
        )


class StacksVerb(Verb):
    name = "stacks"
    help = "show every rank's current stack, for jobs that hang"

    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        parser.option("--rank", type=int, metavar="R", help="only this rank, with all its threads")

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = find_job(context, args)
        lines: list[RenderableType] = []
        data = []
        for node, said in job.stacks().items():
            if isinstance(said, MntrainError):
                lines.append(problem_text(said.problem, mark="⚠", style="yellow"))
                continue
            for stack in said:
                if args.rank in (None, stack.rank):
                    lines += _stack_lines(node, stack, with_threads=args.rank is not None)
                    data.append({"node": node, **msgspec.to_builtins(stack)})
        if not data:
            what = "no rank" if args.rank is None else f"no rank {args.rank}"
            lines.append(Text(f"{what} of {job.id} is on a reachable node"))
        return Outcome(Group(*lines), data, job=job)


def _stack_lines(node: str, stack: RankStack, *, with_threads: bool) -> list[RenderableType]:
    where = f", {stack.where}" if stack.where else ""
    text = Text.assemble((f"rank {stack.rank}", "bold"), f" on {node}: {stack.doing}{where}")
    if not stack.text:
        return [text, Text("  No stack: it uses no Recorder, or cannot answer now.", "dim")]
    threads = stack.text.strip().split("\n\n")
    shown = threads if with_threads else threads[-1:]
    return [text, *(Text(thread, "dim") for thread in shown)]


class LogsVerb(Verb):
    name = "logs"
    help = "show the ranks' output, merged over nodes"

    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        parser.option("--rank", "-r", type=typed(_number), metavar="RANK", help="only this rank")
        parser.option("--node", "-n", metavar="NODE", completes="node", help="only this node")
        parser.option(
            "--tail",
            "-t",
            type=typed(_number),
            default=DEFAULT_TAIL,
            metavar="LINES",
            help=f"number of last lines, default {DEFAULT_TAIL}",
        )
        parser.option("--follow", "-f", action="store_true", help="follow until the job has ended")

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = find_job(context, args)
        if args.follow:
            return self._follow(context, job, args)
        lines = job.logs(rank=args.rank, node=args.node, tail=args.tail)
        return Outcome(log_text(lines), [msgspec.to_builtins(line) for line in lines], job=job)

    def _follow(self, context: Context, job: Job, args: Namespace) -> Outcome:
        follower = LogFollower()
        window = max(args.tail, LogFollower.WINDOW_LINES)
        is_first = True
        try:
            while True:
                has_ended = job.view().state in TERMINAL
                lines = follower.news(job.logs(rank=args.rank, node=args.node, tail=window))
                if is_first:
                    lines, is_first = lines[len(lines) - min(args.tail, len(lines)) :], False
                if lines:
                    context.screen.say(log_text(lines))
                if has_ended:
                    return Outcome(data={"job_id": job.id, "state": job.view().state}, job=job)
                context.sleep(FOLLOW_EVERY_S)
        except KeyboardInterrupt:
            return detached_outcome(context, job)


def log_text(lines: tuple[LogLine, ...] | list[LogLine]) -> Group | Text:
    """Every line with its node and rank in front. ANSI colors of the ranks are kept."""
    if not lines:
        return Text("no line yet", style="dim")
    parts = []
    for line in lines:
        who = f"{line.node} r{line.rank}" if line.rank is not None else f"{line.node} torchrun"
        text = Text.assemble((f"{who} │ ", "cyan"), no_wrap=True, overflow="ignore")
        parts.append(text.append_text(Text.from_ansi(line.text)))
    return Group(*parts)


def _draw(context: Context, job: Job, theme: str) -> bytes:
    from jupyter_mntrain.show.picture import Picture  # matplotlib takes half a second

    history = caught_up_history(context, job)
    picture = Picture(program=context.program, theme=theme)
    return picture.draw(job.series(), history.view, now_s=context.clock())


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not a whole number from 0")
    return int(text)
