"""Command parsing: from words to a verb and its arguments, with the options every verb takes."""

from __future__ import annotations

import argparse
import shlex
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.spelling import closest
from jupyter_mntrain.verbs.parser import HelpWanted, Parser
from jupyter_mntrain.verbs.table import TABLE
from jupyter_mntrain.verbs.verb import Verb


@dataclass(frozen=True, slots=True)
class Command:
    """A verb with everything it was given.

    Args:
        arguments: what stood after ``--``, for a script.
    """

    verb: Verb
    args: Namespace
    arguments: tuple[str, ...]


def split_line(line: str) -> list[str]:
    """Words of a magic's line, quoted as in a shell.

    Raises:
        SpecError: a quote is not closed.
    """
    try:
        return shlex.split(line)
    except ValueError as error:
        reason = str(error).lower()
        raise SpecError(f"the line cannot be read: {reason}", fix="close the quote") from None


def parse(argv: Sequence[str], *, program: str) -> Command:
    """Parse the words after ``mntrain`` or ``%mntrain``.

    Raises:
        SpecError: something is unknown, missing or of the wrong form.
        HelpWanted: ``--help``, or nothing at all, was given.
    """
    words, arguments = _split_off_arguments(argv)
    top = top_parser(program)
    args = top.parse(words, Namespace())
    if args.verb is None:
        raise HelpWanted(top.format_help())
    verb = find_verb(args.verb)
    rest = args.rest
    del args.verb, args.rest
    parser = verb_parser(verb, program)
    parsed = parser.parse(rest, args)
    if arguments and not (verb.takes_cell or verb.takes_arguments):
        raise SpecError(f"{verb.name}: takes nothing after --", fix=f"leave {arguments[0]!r} out")
    return Command(verb, parsed, arguments)


def find_verb(name: str) -> Verb:
    """The verb of this name.

    Raises:
        SpecError: there is none; the message says which could have been meant.
    """
    verb = TABLE.get(name)
    if verb is None:
        near = closest(name, TABLE)
        fix = f"did you mean {' or '.join(near)}" if near else f"use one of {', '.join(TABLE)}"
        raise SpecError(f"no verb {name!r}", fix=fix)
    return verb


def top_parser(program: str) -> Parser:
    """Common options, the verb, and what is the verb's own affair."""
    width = max(map(len, TABLE)) + 2
    verbs = "\n".join(f"  {name:{width}}{verb.help}" for name, verb in TABLE.items())
    parser = Parser(program)
    parser.description = "Train one model across several machines, and watch it."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"verbs:\n{verbs}\n\n{program} VERB --help says what a verb takes."
    _common_options(parser, is_first=True)
    parser.argument("verb", nargs="?", metavar="VERB", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def verb_parser(verb: Verb, program: str) -> Parser:
    """A verb's own parser; it takes the common options, too."""
    parser = Parser(f"{program} {verb.name}", description=f"{verb.help[0].upper()}{verb.help[1:]}.")
    verb.add_arguments(parser)
    _common_options(parser, is_first=False)
    return parser


def _common_options(parser: Parser, *, is_first: bool) -> None:
    def default(value: object) -> object:
        # The verb's parser goes over the same namespace: what is left out must not undo.
        return value if is_first else argparse.SUPPRESS

    parser.option(
        "--cluster",
        default=default(None),
        metavar="NAME",
        completes="cluster",
        help="name of the cluster; default: $MNTRAIN_CLUSTER",
    )
    parser.option(
        "--agent",
        action="append",
        default=default(None),
        metavar="HOST[:PORT]",
        help="a node that multicast does not reach; repeatable; default: $MNTRAIN_AGENTS",
    )
    parser.option(
        "--json", action="store_true", default=default(value=False), help="data only, for programs"
    )
    parser.option(
        "--traceback",
        action="store_true",
        default=default(value=False),
        help="show where an error was raised, here or in a rank",
    )


def _split_off_arguments(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """By hand: argparse loses what follows ``--`` if options stand between positionals."""
    words = list(argv)
    if "--" not in words:
        return words, ()
    at = words.index("--")
    return words[:at], tuple(words[at + 1 :])
