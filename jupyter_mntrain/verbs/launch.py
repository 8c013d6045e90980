"""``launch`` and ``dry-run``: the same options, with and without doing it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence

import msgspec
from rich.console import Group
from rich.text import Text

from jupyter_mntrain.verbs.spec import build_spec, member_names, read_source
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb


class Launch(Verb):
    name = "launch"
    help = "start a recipe or a script on several nodes, on all or on none"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_launch_arguments(parser)
        parser.add_argument(
            "--wait", action="store_true", help="stay; 0 only if every rank succeeds"
        )
        parser.add_argument("--dry-run", action="store_true", help="show, do not start")

    def nodes_wanted(self, arguments: argparse.Namespace) -> Sequence[str]:
        return member_names(arguments.member)

    def run(self, context: Context, arguments: argparse.Namespace) -> Outcome:
        if arguments.dry_run:
            return dry_run(context, arguments)
        spec = build_spec(context, arguments, read_source(context, arguments.target))
        job = context.cluster.launch(spec, submitted_by=context.user)
        view = job.view()
        nodes = ", ".join(f"{p.node} ({p.nproc})" for p in view.attempt.placements)
        said = (
            f"job {job.id} started on {nodes}. 'attach {job.id}' shows it, 'stop {job.id}' ends it."
        )
        data = {"job_id": job.id, "state": view.state}
        return Outcome(data=data, view=said, job=job, wait=arguments.wait)


class DryRun(Verb):
    name = "dry-run"
    help = "the exact command and environment of every node; nothing is started"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_launch_arguments(parser)

    def nodes_wanted(self, arguments: argparse.Namespace) -> Sequence[str]:
        return member_names(arguments.member)

    def run(self, context: Context, arguments: argparse.Namespace) -> Outcome:
        return dry_run(context, arguments)


def dry_run(context: Context, arguments: argparse.Namespace) -> Outcome:
    """What :class:`Launch` would run on each node."""
    spec = build_spec(context, arguments, read_source(context, arguments.target))
    commands = context.cluster.dry_run(spec)
    parts: list[Text] = []
    for command in commands:
        lines = [f"# {command.node}, in {command.directory}"]
        lines += [f"export {k}={shlex.quote(v)}" for k, v in sorted(command.environment.items())]
        lines.append(_folded(command.argv))
        # Whole lines, to be copied: never wrapped, never styled.
        parts.append(Text("\n".join(lines) + "\n", no_wrap=True, overflow="ignore"))
    return Outcome(data=msgspec.to_builtins(commands), view=Group(*parts))


def _folded(argv: Sequence[str]) -> str:
    """One option per line, so that no line is wider than a notebook."""
    return " \\\n    ".join([shlex.join(argv[:3]), *(shlex.quote(word) for word in argv[3:])])


def add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", nargs="?", metavar="RECIPE.toml|SCRIPT.py", help="what every rank runs"
    )
    parser.add_argument(
        "--member",
        action="append",
        default=[],
        metavar="HOST:N[:IFACE]",
        help="N processes on HOST over IFACE, repeatable; default every reachable node with all "
        "its idle GPUs, or one process each where there are none",
    )
    parser.add_argument("--head", metavar="HOST", help="participant that hosts the rendezvous")
    parser.add_argument("--port", type=int, help="rendezvous port on the head; default a free one")
    parser.add_argument("--name", help="name of the job, for people")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.FIELD=VALUE", help="change a recipe"
    )
    parser.add_argument(
        "--file", action="append", default=[], metavar="PATH", help="send another small file along"
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="for every rank"
    )
    parser.add_argument(
        "--torchrun", action="append", default=[], metavar="ARG", help="pass on to torchrun"
    )
    parser.add_argument(
        "--link-capacity", metavar="RATE", help="what the links carry, like 1gbit; default measured"
    )
