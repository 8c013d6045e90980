"""``panel``: opens the submit panel, or prints it as text."""

from __future__ import annotations

from argparse import Namespace

import msgspec

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, reachable_nodes


class OpenPanelVerb(Verb):
    takes_arguments = True

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "target",
            nargs="?",
            metavar="RECIPE.toml|SCRIPT.py|PRESET",
            completes="recipe",
            help="what to start with; default: the recipe launched last, or the first one here",
        )
        parser.option(
            "--resume",
            metavar="JOB",
            completes="job",
            help="an ended job to resume, on the nodes and with the settings that you choose",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        from jupyter_mntrain.verbs.panel.panel import Panel
        from jupyter_mntrain.verbs.panel.text import form_text

        if args.target and args.resume:
            raise SpecError(
                f"panel takes either {args.target!r} or --resume {args.resume}, not both",
                fix="leave one of them out",
            )
        panel = Panel(context, args, target=args.target, resumes=args.resume)
        reason = "" if args.json else context.screen.open_panel(panel)
        if reason is None:
            return Outcome(data={"panel": panel.target.label})
        reachable_nodes(context, panel.cluster)
        form = panel.form()
        if panel.look(form):
            form = panel.form()
        if (examine := panel.examination(form)) is not None:
            examine()
            form = panel.form()
        text = form_text(panel, form, reason)
        data = msgspec.to_builtins(form) | {"command": panel.command(form)}
        if panel.resume is not None:
            data["resume"] = {"label": panel.resume.label, "text": panel.resume.text}
        return Outcome(text, data)
