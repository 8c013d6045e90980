"""``logs``: what every rank prints, from all nodes in one place."""

from __future__ import annotations

import argparse
import time

from rich.text import Text

from jupyter_mntrain.cluster import LogLine
from jupyter_mntrain.model.job import TERMINAL
from jupyter_mntrain.verbs.jobs import _OneJob
from jupyter_mntrain.verbs.verb import Context, Outcome

FOLLOW_INTERVAL_S = 0.5
FOLLOW_WINDOW = 2000
"""Lines looked at per turn; a job that prints more in half a second is cut, and says so."""


class Logs(_OneJob):
    name = "logs"
    help = "what the ranks print, merged or of one rank or node"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--rank", type=int, help="only this rank")
        parser.add_argument("--node", help="only this node")
        parser.add_argument("--tail", type=int, default=50, metavar="N", help="last N lines (50)")
        parser.add_argument("--follow", action="store_true", help="go on until the job ends")

    def run(self, context: Context, arguments: argparse.Namespace) -> Outcome:
        job = self.job(context, arguments)
        lines = job.logs(rank=arguments.rank, node=arguments.node, tail=arguments.tail)
        if arguments.follow and not arguments.json:
            context.show(_as_text(lines))
            self._follow(context, arguments, lines)
            return Outcome(data=[], view="")
        data = [{"node": line.node, "rank": line.rank, "text": line.text} for line in lines]
        return Outcome(data=data, view=_as_text(lines) if lines else "nothing printed yet")

    def _follow(
        self, context: Context, arguments: argparse.Namespace, seen: tuple[LogLine, ...]
    ) -> None:
        job = self.job(context, arguments)
        while True:
            is_over = job.view().state in TERMINAL
            now = job.logs(rank=arguments.rank, node=arguments.node, tail=FOLLOW_WINDOW)
            new = _after(seen, now)
            if new:
                context.show(_as_text(new))
                seen = now
            if is_over:
                return
            time.sleep(FOLLOW_INTERVAL_S)


def _after(seen: tuple[LogLine, ...], now: tuple[LogLine, ...]) -> tuple[LogLine, ...]:
    """Lines of ``now`` behind those of ``seen``, per node: each node's log only grows."""
    new: list[LogLine] = []
    for node in dict.fromkeys(line.node for line in now):
        old = [line for line in seen if line.node == node]
        own = [line for line in now if line.node == node]
        overlap = next(
            (n for n in range(min(len(old), len(own)), 0, -1) if old[-n:] == own[:n]), None
        )
        if overlap is None and old:
            overlap = next((i + 1 for i in range(len(own) - 1, -1, -1) if own[i] == old[-1]), 0)
        new += own[overlap or 0 :]
    return tuple(new)


def _as_text(lines: tuple[LogLine, ...]) -> Text:
    def tag(line: LogLine) -> str:
        return f"[{line.node} rank {line.rank}]" if line.rank is not None else f"[{line.node}]"

    return Text("\n".join(f"{tag(line)} {line.text}" for line in lines))
