"""``config``: lists the settings in effect, and where each was set."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.text.spelling import use_nearest
from jupyter_mntrain.model.tunables import DEFAULT, Tunable, all_tunables, config_file
from jupyter_mntrain.show.tables._plain import plain_table
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb


class ConfigVerb(Verb):
    uses_cluster = False

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "setting",
            nargs="?",
            metavar="SECTION[.NAME]",
            completes="setting",
            help="only these, each with its reason",
        )
        parser.flag("--changed", help="only what differs from the default")

    def run(self, context: Context, args: Namespace) -> Outcome:
        chosen = [
            one
            for one in _named(args.setting, context.program)
            if one.source != DEFAULT or not args.changed
        ]
        path = config_file(context.environment)
        settings = [one._asdict() | {"unit": one.unit} for one in chosen]
        data = {"file": str(path), "settings": settings}
        where = f"Set them in {path} or by MNTRAIN_<SECTION>_<NAME>; a restart applies them."
        shown: Sequence[RenderableType]
        if not chosen:
            shown = [Text("Nothing is changed: every setting has its default.\n")]
        else:
            shown = _reasons(chosen) if args.setting else [_table(chosen), Text()]
        return Outcome(Group(*shown, Text(where, style="dim")), data)


def _named(name: str | None, program: str) -> Sequence[Tunable]:
    known = all_tunables()
    if name is None:
        return known
    found = [one for one in known if name in (one.key, one.section)]
    if not found:
        names = [*(one.key for one in known), *(one.section for one in known)]
        fix = use_nearest(name, names, f"see: {program} config")
        raise SpecError(f"no setting {name!r}", fix=fix)
    return found


def _table(chosen: Sequence[Tunable]) -> RenderableType:
    table = plain_table("setting", "value", "set in")
    for one in chosen:
        style = "" if one.source == DEFAULT else "bold"
        table.add_row(Text(one.key, style=style), Text(one.text, style=style), one.source)
    return table


def _reasons(chosen: Sequence[Tunable]) -> list[Text]:
    lines = []
    for one in chosen:
        lines += [
            Text(f"# {one.reason}", style="dim"),
            Text.assemble((one.key, "bold"), f" = {one.text}  ({one.source})\n"),
        ]
    return lines
