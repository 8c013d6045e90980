"""Verbs behind both the magic and the command line."""

from jupyter_mntrain.command_line.parser import HelpWanted, Parser
from jupyter_mntrain.verbs.command import (
    Command,
    group_parser,
    parse,
    split_line,
    top_parser,
    verb_parser,
)
from jupyter_mntrain.verbs.context import Clusters, Context, connect
from jupyter_mntrain.verbs.run import run, run_words
from jupyter_mntrain.verbs.table import TABLE
from jupyter_mntrain.verbs.verb import Outcome, Verb

__all__ = [
    "TABLE",
    "Clusters",
    "Command",
    "Context",
    "HelpWanted",
    "Outcome",
    "Parser",
    "Verb",
    "connect",
    "group_parser",
    "parse",
    "run",
    "run_words",
    "split_line",
    "top_parser",
    "verb_parser",
]
