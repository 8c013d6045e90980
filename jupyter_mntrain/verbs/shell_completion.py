"""Shell completion: answers the shell's question through argcomplete."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from argcomplete.finders import CompletionFinder

from jupyter_mntrain.cluster.default import default_cluster
from jupyter_mntrain.verbs.completion import Completer
from jupyter_mntrain.verbs.known_names import KeptNames

VARIABLE = "_ARGCOMPLETE"
"""Set by the shell when it asks."""


class Finder(CompletionFinder):
    """Argcomplete's parsing, quoting and output, with our completions."""

    def collect_completions(
        self,
        active_parsers: Sequence[Any],  # noqa: ARG002 - argcomplete's signature
        parsed_args: argparse.Namespace,
        cword_prefix: str,
    ) -> list[str]:
        words = parsed_args.words or []
        found = Completer(KeptNames(_cluster(words))).explained(words, cword_prefix)
        self._display_completions = found
        return list(found)


def answer() -> NoReturn:
    """Print the completions at the shell's cursor, and exit."""
    parser = argparse.ArgumentParser(add_help=False, prefix_chars="\0")  # all words are words
    parser.add_argument("words", nargs="*")
    Finder()(parser)
    raise AssertionError("argcomplete exits")


def _cluster(words: Sequence[str]) -> str:
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, _, value = word.partition("=")
        if name == "--cluster":
            return value or following
    return default_cluster(os.environ)[0]
