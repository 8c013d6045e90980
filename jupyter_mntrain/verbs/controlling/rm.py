"""``rm``: deletes ended jobs, after listing what that frees and what stays."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.quantities import agreeing
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, named_job

if TYPE_CHECKING:
    from jupyter_mntrain.cluster.launch.record_changes import JobRemoval


class RmVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "jobs", nargs="+", metavar="JOB", completes="job", help="ids, or how they begin"
        )
        parser.flag("--yes", help="delete; without it, only say what would be deleted")
        parser.flag("--checkpoints", help="also the checkpoints of a run whose last job is deleted")

    def run(self, context: Context, args: Namespace) -> Outcome:
        jobs = [named_job(context, args, text) for text in dict.fromkeys(args.jobs)]
        removals = [job.plan_removal() for job in jobs]  # all of them, before any is deleted
        if args.yes:
            removals = [job.remove(with_checkpoints=args.checkpoints) for job in jobs]
        text = Text("\n").join(
            _words(one, is_done=args.yes, with_checkpoints=args.checkpoints) for one in removals
        )
        if not args.yes:
            words = " ".join([*(job.id for job in jobs), *(["--checkpoints"] * args.checkpoints)])
            text.append(f"\nnothing is deleted yet; to do it: {context.program} rm {words} --yes")
        return Outcome(text, _data(removals, is_done=args.yes))


def _words(one: JobRemoval, *, is_done: bool, with_checkpoints: bool) -> Text:
    where = ", ".join(node.node for node in one.nodes) or "no node"
    does = "deleted" if is_done else "would delete"
    text = Text.assemble(
        (one.job_id, "bold"), f": {does} {formats.memory(one.size_bytes)} on {where}"
    )
    for node in one.nodes:
        if node.checkpoints:
            size = formats.memory(node.checkpoints_bytes)
            fate = ("deleted, too" if is_done else "would go, too") if with_checkpoints else "stay"
            text.append(
                f"\n⚠ it is the last job of run {one.run}, whose only checkpoints ({size}) {fate}: "
                f"{node.node}:{node.checkpoints}",
                "yellow",
            )
    if one.silent:
        do = agreeing(one.silent, "does", "do")
        names = ", ".join(one.silent)
        text.append(f"\n⚠ {names} {do} not answer and {agreeing(one.silent, 'keeps', 'keep')} it")
    return text


def _data(removals: Sequence[JobRemoval], *, is_done: bool) -> dict[str, Any]:
    return {
        "is_done": is_done,
        "removals": [msgspec.to_builtins(one) | {"size_bytes": one.size_bytes} for one in removals],
    }
