"""``history``: shows what a node did, with and without jobs."""

from __future__ import annotations

import csv
import io
from argparse import Namespace
from collections.abc import Iterator

import msgspec

from jupyter_mntrain.command_line.parser import Parser, typed
from jupyter_mntrain.metrics.node_history import LONGEST_S, NodeHistory
from jupyter_mntrain.model.quantities import duration_text, parse_duration
from jupyter_mntrain.show.tables.node_history import SPARK_POINTS, history_table
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, joined_cluster

SHORTEST_S = 10


class HistoryVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument("node", metavar="NODE", completes="node", help="its name or id")
        parser.option(
            "--last",
            metavar="DURATION",
            type=typed(_last),
            default=3600.0,
            help="how long ago it begins, at most 7d; default: 1h",
        )
        parser.flag("--csv", help="print every value, as lines for a spreadsheet")

    def run(self, context: Context, args: Namespace) -> Outcome:
        cluster = joined_cluster(context, args)
        is_whole = args.csv or args.json
        points = {} if is_whole else {"points": SPARK_POINTS}
        with context.screen.progress() as progress:
            found = cluster.usage.history(args.node, last_s=args.last, progress=progress, **points)
        shown = _csv(found) if args.csv else history_table(found, args.last, context.clock())
        return Outcome(shown, msgspec.to_builtins(found))


def _last(text: str) -> float:
    value_s = parse_duration(text)
    if not SHORTEST_S <= value_s <= LONGEST_S:
        least, most = duration_text(SHORTEST_S), "7 d"
        raise ValueError(f"{text!r} is out of range; use {least} to {most}")
    return value_s


def _csv(history: NodeHistory) -> str:
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow(("time_s", "part", "figure", "mean", "low", "high"))
    lines.writerows(_rows(history))
    return written.getvalue().rstrip("\n")


def _rows(history: NodeHistory) -> Iterator[tuple[object, ...]]:
    for part in history.parts:
        for line in part.lines:
            low, high = line.low or line.mean, line.high or line.mean
            for index, values in enumerate(zip(line.mean, low, high, strict=True)):
                if values[0] is not None:
                    time_s = history.begin_s + index * history.step_s
                    yield (f"{time_s:.0f}", part.key or part.kind, line.figure, *values)
