"""``logs``: shows the output of the ranks."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

import msgspec
from rich.console import Group
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser, bounded_int
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.model.text.foreign import shown_name, visible
from jupyter_mntrain.show.log_follower import LogFollower
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import RANK, find_job, job_argument
from jupyter_mntrain.verbs.verb import Outcome, Verb
from jupyter_mntrain.verbs.watching.following import detached_outcome

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job, LogLine

FOLLOW_EVERY_S = tunables.seconds("verbs.follow_interval_s")
DEFAULT_TAIL = 50
MOST_LINES = 1_000_000


class LogsVerb(Verb):
    name = "logs"
    help = "show the ranks' output, one node after the other"

    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        parser.option("--rank", "-r", type=RANK, metavar="RANK", help="only this rank")
        parser.option("--node", "-n", metavar="NODE", completes="node", help="only this node")
        parser.option(
            "--tail",
            "-t",
            type=bounded_int(0, MOST_LINES),
            default=DEFAULT_TAIL,
            metavar="LINES",
            help=f"number of last lines of each node; default: {DEFAULT_TAIL}",
        )
        parser.flag("--follow", "-f", help="follow until the job has ended")

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
    """Log lines, each prefixed with its node and rank. ANSI colors of the ranks are kept."""
    if not lines:
        return Text("no output yet", style="dim")
    parts = []
    for line in lines:
        node = shown_name(line.node)
        who = f"{node} r{line.rank}" if line.rank is not None else f"{node} torchrun"
        text = Text.assemble((f"{who} │ ", "cyan"), no_wrap=True, overflow="ignore")
        parts.append(text.append_text(Text.from_ansi(visible(line.text, keeps_color=True))))
    return Group(*parts)
