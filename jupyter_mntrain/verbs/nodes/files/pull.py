"""``pull``: copies what a job wrote, or a model or data set of a node, to this machine."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path, PurePosixPath

import msgspec

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.launch.files.names import parse_large_name
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.show.tables.kept.files import (
    pulled_files_text,
    pulled_text,
    written_data,
    written_table,
)
from jupyter_mntrain.verbs.new_file import new_place
from jupyter_mntrain.verbs.verb import (
    Context,
    Outcome,
    Verb,
    joined_cluster,
    named_job,
    node_option,
    rank_option,
)


class PullVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "what",
            metavar="JOB[:PATH]|NODE:ROOT:NAME",
            completes="job",
            help="what a job wrote in the folder that it runs in, from all of its nodes, like "
            "j-0123abcd:outputs/model.pt; or a model or data set, like node1:models:llama",
        )
        parser.argument(
            "to",
            nargs="?",
            metavar="PATH",
            completes="file",
            help="its name here; default: its name, in this folder",
        )
        node_option(parser, "of a job, only what this node has")
        rank_option(parser, "of a job, only what the node of this rank has")
        parser.flag("--list", help="fetch nothing; say what the job wrote, and where")

    def run(self, context: Context, args: Namespace) -> Outcome:
        node, colon, text = args.what.partition(":")
        if node.startswith("j-") or not colon:
            return _pulled_of_job(context, args, node, text)
        if args.node or args.rank is not None or args.list:
            raise SpecError("--node, --rank and --list are for a job's files", fix="leave them out")
        if not (node and colon and ":" in text):
            raise SpecError(
                f"{args.what!r} names nothing on a node",
                fix="use JOB, JOB:PATH, or NODE:ROOT:NAME like node1:models:llama; mntrain du "
                "lists what is where",
            )
        name = parse_large_name(text)
        to = new_place(context.directory, args.to or Path(name.name).name)
        files = joined_cluster(context, args).files
        with context.screen.progress() as progress:
            pulled = files.pull(node, name, to, progress=progress)
        return Outcome(pulled_text(pulled), msgspec.to_builtins(pulled), path=Path(pulled.path))


def _pulled_of_job(context: Context, args: Namespace, job_id: str, path: str) -> Outcome:
    """Copy what a job wrote.

    Args:
        path: in the folder that it runs in; empty for all.
    """
    job = named_job(context, args, job_id)
    path = path.rstrip("/").removeprefix("./")
    files = joined_cluster(context, args).files
    if args.list:
        with context.screen.progress() as progress:
            written = files.of_job(
                job.view(), path, node=args.node, rank=args.rank, progress=progress
            )
        data = {**written_data(written), **msgspec.to_builtins(written)}
        return Outcome(written_table(written), data, job=job)
    to = new_place(context.directory, args.to or PurePosixPath(path).name or job.id)
    with context.screen.progress() as progress:
        pulled = files.pull_job(
            job.view(), to, path, node=args.node, rank=args.rank, progress=progress
        )
    text, data = pulled_files_text(pulled), msgspec.to_builtins(pulled)
    return Outcome(text, data, job=job, path=Path(pulled.path))
