"""``panel``: opens the submit panel, or prints it as text."""

from __future__ import annotations

from argparse import Namespace

import msgspec

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import reachable_nodes
from jupyter_mntrain.verbs.verb import Outcome, Verb


class OpenPanelVerb(Verb):
    name = "panel"
    help = "choose nodes, GPUs and networks by clicking, and launch"
    takes_arguments = True

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "target",
            nargs="?",
            metavar="RECIPE.toml|SCRIPT.py|PRESET",
            completes="recipe",
            help="what to start with; default: the recipe launched last, or the first one here",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        from jupyter_mntrain.verbs.panel.panel import Panel
        from jupyter_mntrain.verbs.panel.text import form_text

        panel = Panel(context, args, target=args.target)
        reason = "" if args.json else context.screen.open_panel(panel)
        if reason is None:
            return Outcome(data={"panel": panel.target.label})
        reachable_nodes(context, panel.cluster)
        form = panel.form()
        if panel.look(form):
            form = panel.form()
        text = form_text(panel, form, reason)
        return Outcome(text, msgspec.to_builtins(form) | {"command": panel.command(form)})
