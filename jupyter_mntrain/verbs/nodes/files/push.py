"""``push``: copies a model or data set to nodes, which pass it on to one another."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import msgspec

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.launch.files.names import LargeName, is_large_name, parse_large_name
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.show.tables.kept.files import pushed_text
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, joined_cluster

FAILED = 1
"""Exit code: a node does not have it."""


class PushVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "path",
            metavar="PATH",
            completes="file",
            help="file or folder here; with --from, what that node has, like models:llama",
        )
        parser.argument(
            "nodes", nargs="*", metavar="NODE", completes="node", help="default: all nodes"
        )
        parser.option(
            "--to",
            metavar="ROOT:NAME",
            help="its name on the nodes; default: models: and the name of the folder",
        )
        parser.option(
            "--from", metavar="NODE", completes="node", dest="source", help="node that has it"
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        name, path = _what(context, args)
        files = joined_cluster(context, args).files
        with context.screen.progress() as progress:
            pushed = files.push(name, args.nodes, path=path, source=args.source, progress=progress)
        return Outcome(
            pushed_text(pushed),
            msgspec.to_builtins(pushed),
            exit_code=FAILED if pushed.failed else 0,
        )


def _what(context: Context, args: Namespace) -> tuple[LargeName, Path | None]:
    """Return its name on the nodes, and its path here unless it is on one of them."""
    if args.source:
        if args.to:
            raise SpecError(
                "--to and --from cannot be used together", fix="a node keeps its own name"
            )
        return parse_large_name(args.path), None
    path = context.directory / in_home(args.path)
    if not path.exists():
        is_name = is_large_name(args.path)
        fix = "say which node has it: --from NODE" if is_name else "check the path"
        raise SpecError(f"{path}: there is no such file or folder on this machine", fix=fix)
    return parse_large_name(args.to or f"models:{path.resolve().name}"), path
