"""``logs``: shows the output of the ranks."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser, bounded_int
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.show.log_follower import LogFollower
from jupyter_mntrain.show.log_lines import last_lines, log_text, written_line
from jupyter_mntrain.verbs.new_file import force_flag, new_file, output_option
from jupyter_mntrain.verbs.verb import (
    Context,
    Outcome,
    Verb,
    find_job,
    job_argument,
    node_option,
    rank_option,
)
from jupyter_mntrain.verbs.watching.following import detached_outcome

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

FOLLOW_EVERY_S = 1.0
"""Interval between reads of `logs --follow`."""
DEFAULT_TAIL = 50
MOST_LINES = 1_000_000
LAUNCHER_WINDOW = 200
"""Lines to ask for beyond, for each node: more than a torchrun prints at its end."""


class LogsVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        rank_option(parser, "only this rank")
        node_option(parser, "only this node")
        parser.option(
            "--tail",
            "-t",
            type=bounded_int(0, MOST_LINES),
            metavar="LINES",
            help=f"number of last lines of ranks; default: {DEFAULT_TAIL}; torchrun's come after",
        )
        parser.flag("--follow", "-f", help="follow until the job has ended")
        output_option(parser, help="write all lines into a file")
        force_flag(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = find_job(context, args)
        if args.output is not None:
            return self._write(context, job, args)
        if args.follow:
            return self._follow(context, job, args)
        tail = _tail(args)
        window = tail + LAUNCHER_WINDOW * len(job.view().attempt.placements)
        found = job.logs(rank=args.rank, node=args.node, tail=window if tail else 0)
        lines = last_lines(found, tail)
        shown = log_text(lines, is_cut=len(lines) < len(found)) if lines or tail else ""
        return Outcome(shown, [msgspec.to_builtins(line) for line in lines], job=job)

    def _write(self, context: Context, job: Job, args: Namespace) -> Outcome:
        if args.follow:
            raise SpecError("--output and --follow cannot be used together", fix="leave one out")
        if args.tail is not None:
            raise SpecError("--output writes all lines, not a --tail", fix="leave one out")
        pieces = job.whole_log(rank=args.rank, node=args.node)
        path = context.directory / in_home(args.output)
        count = 0
        with new_file(path, args.output, may_replace=args.force) as file:
            for piece in pieces:
                file.write("".join(map(written_line, piece)).encode())
                count += len(piece)
        said = Text.assemble((job.id, "bold"), f": {count:,} lines written to {args.output}")
        return Outcome(said, {"job_id": job.id, "file": args.output, "count": count}, job=job)

    def _follow(self, context: Context, job: Job, args: Namespace) -> Outcome:
        follower = LogFollower()
        window = max(_tail(args), LogFollower.WINDOW_LINES)
        is_first = True
        try:
            while True:
                has_ended = job.view().state in TERMINAL
                lines = follower.news(job.logs(rank=args.rank, node=args.node, tail=window))
                if is_first:
                    lines, is_first = last_lines(lines, _tail(args)), False
                if lines:
                    context.screen.say(log_text(lines))
                if has_ended:
                    return Outcome(data={"job_id": job.id, "state": job.view().state}, job=job)
                context.sleep(FOLLOW_EVERY_S)
        except KeyboardInterrupt:
            return detached_outcome(context, job)


def _tail(args: Namespace) -> int:
    return DEFAULT_TAIL if args.tail is None else int(args.tail)
