"""``settings``: lists the settings of a job or a recipe, and where each was set."""

from __future__ import annotations

from argparse import Namespace

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.text.spelling import use_nearest
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.recipe.builtin import BUILT_IN, built_in
from jupyter_mntrain.recipe.parse import refuse_both_durations
from jupyter_mntrain.show.tables.data import data_text
from jupyter_mntrain.show.tables.settings import settings_table
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, find_job
from jupyter_mntrain.workload.data_preview import preview_data
from jupyter_mntrain.workload.workload import Workload, from_built_in, from_path

JOB = "j-"
"""Prefix of a job's id."""

UNTOUCHED = ("default", "auto")
"""Origins of settings that nobody chose."""


class SettingsVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "target",
            nargs="?",
            metavar="JOB|RECIPE.toml|NAME",
            completes="recipe",
            help="a job, a recipe, or a built-in one by its name (see: recipes); default: the "
            "newest job",
        )
        parser.repeatable(
            "--set",
            metavar="SECTION.FIELD=VALUE",
            completes="field",
            help="of a recipe, as for a launch; repeatable",
        )
        parser.flag("--changed", help="only what somebody chose: recipe, panel, --set, options")
        parser.flag(
            "--data",
            help="instead, read the data of a recipe on this machine, and show the first sequences",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = None
        if _is_recipe(context, args.target):
            workload = _read(context, args)
            if args.data:
                preview = preview_data(workload, context.directory)
                return Outcome(data_text(preview), msgspec.to_builtins(preview))
            settings = workload.settings()
        elif args.set or args.data:
            option = "--set" if args.set else "--data"
            raise SpecError(f"{option} is for a recipe", fix="name one, or leave it out")
        else:
            job = find_job(context, Namespace(**vars(args), job=args.target))
            settings = job.settings()
        chosen = [one for one in settings if not (args.changed and one.origin in UNTOUCHED)]
        if not chosen:
            return Outcome(Text("Nothing was chosen: every setting has its default."), [], job=job)
        return Outcome(settings_table(chosen), msgspec.to_builtins(chosen), job=job)


def _is_recipe(context: Context, target: str | None) -> bool:
    if target is None:
        return False
    return not target.startswith(JOB) or (context.directory / target).exists()


def _read(context: Context, args: Namespace) -> Workload:
    refuse_both_durations(args.set)
    path, ours = context.directory / in_home(args.target), built_in(args.target)
    if ours is not None and not path.exists():
        return from_built_in(ours, overrides=args.set)
    if not path.exists():
        beside = [one.name for one in path.parent.glob("*.toml")]
        known = [*beside, *(one.name for one in BUILT_IN)]
        fix = use_nearest(path.name, known, f"see: {context.program} recipes")
        raise SpecError(f"{args.target}: no such recipe", fix=fix)
    made = from_path(path, overrides=args.set)
    if made.recipe is None:
        raise SpecError(
            f"{args.target}: a script has no settings of a recipe", fix="name a recipe (.toml)"
        )
    return made
