"""``completion``: prints what a shell needs to complete commands."""

from __future__ import annotations

from argparse import Namespace

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.show.safe_console import verbatim
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb

SHELLS = ("bash", "zsh", "fish")


class CompletionVerb(Verb):
    uses_cluster = False
    terminal_only = "a notebook completes %mntrain by itself"
    usage = "completion bash"

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "shell",
            choices=SHELLS,
            metavar="SHELL",
            help='bash, zsh or fish; in ~/.bashrc or ~/.zshrc: eval "$(mntrain completion bash)", '
            "or zsh; in ~/.config/fish/config.fish: mntrain completion fish | source",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        from argcomplete.shell_integration import shellcode

        script = shellcode([context.program], shell=args.shell)
        return Outcome(verbatim(script), {"shell": args.shell, "script": script})
