"""``agent``: runs this machine as a node."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from typing import NoReturn

from jupyter_mntrain.command_line.agent import ACTIONS, Action, add_arguments
from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.command_line.systems import check_node_system
from jupyter_mntrain.verbs.verb import Context, Verb, VerbGroup


class AgentAction(Verb):
    """An action of ``mntrain agent``.

    It replaces this process: an agent runs for months and does not need what a command loads.
    """

    uses_cluster = False

    def __init__(self, action: Action) -> None:
        self._action = action
        self.name = action
        self.help = ACTIONS[action]

    def add_arguments(self, parser: Parser) -> None:
        add_arguments(self._action, parser)

    def run(self, context: Context, args: Namespace) -> NoReturn:  # noqa: ARG002 - of all verbs
        check_node_system()
        said_before = [f"--{name}" for name in ("json", "traceback") if getattr(args, name)]
        words = [*args.words, *(word for word in said_before if word not in args.words)]
        sys.stdout.flush()
        # -P: like the command itself, it must not import modules from the current directory.
        os.execv(  # noqa: S606 - no shell is wanted
            sys.executable,
            [sys.executable, "-P", "-m", "jupyter_mntrain.agent", self._action, *words],
        )


class AgentVerb(VerbGroup):
    uses_cluster = False
    terminal_only = "an agent runs on its own on each node, not inside a notebook"
    usage = "agent join"
    actions = {action: AgentAction(action) for action in ACTIONS}
