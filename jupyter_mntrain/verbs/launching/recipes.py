"""``recipes``: lists the built-in recipes, with the memory that each needs."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import msgspec
from rich.console import Group
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.text.spelling import use_nearest
from jupyter_mntrain.recipe.builtin import BUILT_IN, BuiltIn, built_in
from jupyter_mntrain.show.safe_console import verbatim
from jupyter_mntrain.show.tables._plain import plain_table
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb


class RecipesVerb(Verb):
    uses_cluster = False

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "recipe", nargs="?", metavar="NAME", help="print this one, to copy and change"
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        if args.recipe:
            return _shown(args.recipe, context.program)
        table = plain_table("recipe", "ranks", "memory of each", "for")
        for one in BUILT_IN:
            estimate = one.estimate()
            needs = "little" if estimate is None else f"{estimate.total / 1e9:.1f} GB"
            table.add_row(Text(one.name, style="bold"), str(one.gpus), needs, one.about)
        hint = Text(
            f"{context.program} launch NAME --set model.path=DIRECTORY --set data.source=DIRECTORY "
            f"starts one; {context.program} recipes NAME shows it. Memory is estimated for Llama "
            "3.2 1B and Llama 2 7B, not counting CUDA's own.",
            style="dim",
        )
        return Outcome(Group(table, Text(), hint), [_data(one) for one in BUILT_IN])


def _shown(name: str, program: str) -> Outcome:
    found = built_in(name)
    if found is None:
        fix = use_nearest(name, [one.name for one in BUILT_IN], f"see: {program} recipes")
        raise SpecError(f"there is no built-in recipe {name!r}", fix=fix)
    return Outcome(verbatim(found.text), _data(found))


def _data(one: BuiltIn) -> dict[str, Any]:
    estimate = one.estimate()
    memory = None
    if estimate is not None:
        memory = msgspec.to_builtins(estimate) | {"total_bytes": estimate.total}
    data: dict[str, Any] = msgspec.to_builtins(one)
    data["world_size"] = data.pop("gpus")
    return data | {"estimate": memory}
