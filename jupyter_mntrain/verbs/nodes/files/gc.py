"""``gc``: deletes files that no job uses from nodes, and the models and data sets named."""

from __future__ import annotations

from argparse import Namespace

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.launch.files.names import parse_large_name
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.ids import JobId, is_job_id
from jupyter_mntrain.show.tables.kept.files import by_node, cleaned_text
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, joined_cluster


class GcVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "names",
            nargs="*",
            metavar="ROOT:NAME|JOB",
            help="models and data sets to delete as well, like models:llama, and ended jobs "
            "whose files are deleted while their records stay; mntrain du lists them",
        )
        parser.repeatable(
            "--node",
            "-n",
            metavar="NODE",
            completes="node",
            help="only there; repeatable; default: all",
        )
        parser.flag("--yes", help="delete; without it, only say what would be deleted")
        parser.flag("--dry-run", help="only say what would be deleted, as without --yes")

    def run(self, context: Context, args: Namespace) -> Outcome:
        if args.yes and args.dry_run:
            raise SpecError("--yes and --dry-run cannot be used together", fix="use one")
        names = [
            JobId(text) if is_job_id(text) else parse_large_name(text)
            for text in dict.fromkeys(args.names)
        ]
        cluster = joined_cluster(context, args)
        with context.screen.progress() as progress:
            found = cluster.files.clean(
                names, args.node or (), is_trial=not args.yes, progress=progress
            )
        again = " ".join(["gc", *args.names, *(f"--node {one}" for one in args.node or ())])
        text = cleaned_text(found, "" if args.yes else f"{context.program} {again} --yes")
        return Outcome(text, {"is_done": args.yes, **by_node("cleaned", found)})
