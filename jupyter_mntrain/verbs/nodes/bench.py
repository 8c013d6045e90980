"""``bench``: times collectives and messages between nodes, as training sends them."""

from __future__ import annotations

from argparse import Namespace
from typing import Final

import msgspec
from rich.console import Group
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser, typed
from jupyter_mntrain.model.quantities import parse_size, size_text
from jupyter_mntrain.model.records.doctor.benchmark import LARGEST_BYTES, BenchReport
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.show.tables.benchmark import benchmark_table, heading
from jupyter_mntrain.verbs.launching.launch import skip_doctor_option, submitter
from jupyter_mntrain.verbs.new_file import force_flag, output_option
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, joined_cluster
from jupyter_mntrain.verbs.watching.picture_file import picture_path, write_picture

SLOW: Final = 1
"""Exit code: it failed, or something is slower than it should be."""

SMALLEST_BYTES, MOST_BYTES = 1 << 10, 1 << 33


class BenchVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "nodes",
            nargs="*",
            metavar="HOST[:N[:IFACE]]",
            completes="member",
            help="only these (default: all nodes, with all their idle GPUs)",
        )
        parser.option(
            "--largest",
            type=typed(_message_size),
            default=LARGEST_BYTES,
            metavar="SIZE",
            help="largest message; default: 64 MiB",
        )
        parser.option(
            "--python",
            metavar="PYTHON",
            help="interpreter on the nodes, as for launch; default: the agents' own",
        )
        skip_doctor_option(parser)
        output_option(parser, metavar="FILE.png", help="write the picture to this file")
        force_flag(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        path = None
        if args.output is not None:
            path = picture_path(context, args.output, may_replace=args.force)
        cluster = joined_cluster(context, args)
        with context.screen.progress() as progress:
            participants = cluster.participants(args.nodes, progress=progress)
            report = cluster.benchmark.run(
                participants,
                largest_bytes=args.largest,
                python=args.python,
                submitted_by=submitter(context),
                is_checked=not args.skip_doctor,
                progress=progress,
            )
        data = msgspec.to_builtins(report)
        if report.failure is not None:
            text = problem_text(report.failure, before="benchmark failed: ")
            text.append(f"\nIts log: {context.program} logs {report.job_id}", "dim")
            return Outcome(text, data, exit_code=SLOW)
        shown = [benchmark_table(report)]
        is_shown = context.screen.shows_pictures and not args.json
        png = _draw(report) if path is not None or is_shown else None
        if path is not None and png is not None:
            write_picture(path, png)
            shown.append(Text(f"wrote {path}"))
        return Outcome(
            Group(*shown),
            data,
            exit_code=SLOW if report.problems else 0,
            picture=png if is_shown else None,
            picture_text=heading(report),
        )


def _message_size(text: str) -> int:
    """Convert a word to a valid message size.

    Raises:
        ValueError: it is none.
    """
    size = parse_size(text)
    if not SMALLEST_BYTES <= size <= MOST_BYTES:
        ends = f"{size_text(SMALLEST_BYTES)} to {size_text(MOST_BYTES)}"
        raise ValueError(f"{text!r} is not a size of {ends}")
    return size


def _draw(report: BenchReport) -> bytes:
    # matplotlib takes half a second
    from jupyter_mntrain.show.picture.benchmark_picture import benchmark_picture

    return benchmark_picture(report)
