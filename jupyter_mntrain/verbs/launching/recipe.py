"""``recipe show``: lists the settings of a recipe before it runs, and where each comes from."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.setting import Setting
from jupyter_mntrain.model.text.spelling import use_nearest
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.recipe.builtin import BUILT_IN, built_in
from jupyter_mntrain.recipe.parse import refuse_both_durations
from jupyter_mntrain.show.tables.data import data_text
from jupyter_mntrain.show.tables.settings import settings_table
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.verb import Outcome, Verb, VerbGroup
from jupyter_mntrain.workload.data_preview import preview_data
from jupyter_mntrain.workload.workload import Workload, from_built_in, from_path

UNTOUCHED = ("default", "auto")
"""Origins of settings that nobody chose."""


class ShowRecipe(Verb):
    name = "show"
    help = "list the settings of a recipe, and where each comes from"
    uses_cluster = False

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "target",
            metavar="RECIPE.toml|NAME",
            completes="recipe",
            help="a recipe, or a built-in one by its name (see: recipes)",
        )
        parser.repeatable(
            "--set",
            metavar="SECTION.FIELD=VALUE",
            completes="field",
            help="as for a launch; repeatable",
        )
        changed_flag(parser)
        parser.flag(
            "--data",
            help="instead, read its data on this machine, and show the first sequences",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        workload = _read(context, args)
        if args.data:
            preview = preview_data(workload, context.directory)
            return Outcome(data_text(preview), msgspec.to_builtins(preview))
        return settings_outcome(workload.settings(), args)


class RecipeVerb(VerbGroup):
    uses_cluster = False
    actions = {"show": ShowRecipe()}


def changed_flag(parser: Parser) -> None:
    parser.flag("--changed", help="only what somebody chose: recipe, panel, --set, options")


def settings_outcome(settings: Sequence[Setting], args: Namespace) -> Outcome:
    """The settings as a table, and as data."""
    chosen = [one for one in settings if not (args.changed and one.origin in UNTOUCHED)]
    if not chosen:
        return Outcome(Text("Nothing was chosen: every setting has its default."), [])
    return Outcome(settings_table(chosen), msgspec.to_builtins(chosen))


def _read(context: Context, args: Namespace) -> Workload:
    refuse_both_durations(args.set)
    path, ours = context.directory / in_home(args.target), built_in(args.target)
    if ours is not None and not path.exists():
        return from_built_in(ours, overrides=args.set)
    if path.suffix == ".py":
        raise SpecError(
            f"{args.target}: a script has no settings of a recipe", fix="name a recipe (.toml)"
        )
    if not path.exists():
        beside = [one.name for one in path.parent.glob("*.toml")]
        known = [*beside, *(one.name for one in BUILT_IN)]
        fix = use_nearest(path.name, known, f"see: {context.program} recipes")
        raise SpecError(f"{args.target}: no such recipe", fix=fix)
    return from_path(path, overrides=args.set)
