"""Command parsing: turns words into a verb and its arguments, with the common options."""

from __future__ import annotations

import argparse
import shlex
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jupyter_mntrain import __version__
from jupyter_mntrain.command_line.parser import (
    COLUMNS,
    HelpWanted,
    Parser,
    bad_command,
    check_choice,
    menu_parser,
    output_options,
)
from jupyter_mntrain.model.text.foreign import is_unicode
from jupyter_mntrain.verbs.table import HEADINGS, RENAMED, TABLE

if TYPE_CHECKING:
    from jupyter_mntrain.verbs.verb import Verb


class Command(NamedTuple):
    """A verb and its parsed arguments.

    Args:
        arguments: the words after ``--``, for a script.
        outdated: what was typed by an old name, in words.
    """

    verb: Verb
    args: Namespace
    arguments: tuple[str, ...]
    outdated: tuple[str, ...] = ()


def split_line(line: str) -> list[str]:
    """Split a magic's line into words, quoted as in a shell.

    Raises:
        SpecError: a quote is not closed.
    """
    try:
        return shlex.split(line)
    except ValueError as error:
        reason = str(error).lower()
        raise bad_command(f"cannot parse the line: {reason}", fix="close the quote") from None


def parse(argv: Sequence[str], *, program: str) -> Command:
    """Parse the words after ``mntrain`` or ``%mntrain``.

    Raises:
        SpecError: a word is unknown, missing or malformed.
        HelpWanted: ``--help`` or no word at all was given.
    """
    for word in argv:
        if not is_unicode(word):
            raise bad_command(
                f"{word!r} is not valid Unicode", fix="rename the file, or type the word again"
            )
    # By hand: argparse loses what follows -- if options stand between positionals.
    at = argv.index("--") if "--" in argv else len(argv)
    words, arguments = list(argv[:at]), tuple(argv[at + 1 :])
    args = Namespace()
    top = top_parser(program)
    top.parse(words, args)
    if args.version:
        raise HelpWanted(f"mntrain {__version__}")
    if args.choice is None:
        raise HelpWanted(top.format_help())
    (args.choice, *args.rest), outdated = _renewed((args.choice, *args.rest))
    if args.choice == "launch":
        _refuse_other_launcher(args.rest, arguments, program)
    elif args.choice not in TABLE:
        _refuse_other_launcher([args.choice, *args.rest], arguments, program)
    verb = TABLE[check_choice(args.choice, TABLE, "mntrain", "verb")]
    if verb.terminal_only and program.startswith("%"):
        raise bad_command(verb.terminal_only, fix=f"in a terminal there: mntrain {verb.usage}")
    while verb.actions:
        verb_parser(verb, program).parse(args.rest, args)
        program = f"{program} {verb.name}"
        verb = verb.actions[check_choice(args.choice, verb.actions, program, "action")]
    args.words = tuple(args.rest)
    del args.choice, args.rest
    parser = verb_parser(verb, program, args.words)
    parsed = parser.parse(args.words, args)
    if arguments and not (verb.takes_cell or verb.takes_arguments):
        raise bad_command(
            f"{verb.name} takes no arguments after --", fix=f"leave {arguments[0]!r} out"
        )
    return Command(verb, parsed, arguments, (*outdated, *parser.outdated))


def _renewed(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Replace old names in a command by current ones; also return what was outdated."""
    for old, new in RENAMED.items():
        if tuple(words[: len(old)]) == old:
            return (*new, *words[len(old) :]), [f"{' '.join(old)} is now {' '.join(new)}"]
    return words, []


def top_parser(program: str) -> Parser:
    """Return the parser of the common options and the verb's name; other words go to the verb."""
    listed = {
        heading: {name: one.help for name, one in verbs.items()}
        for heading, verbs in HEADINGS.items()
    }
    description = "Train one model across several machines, and watch it."
    parser = menu_parser(program, description, listed, "verb")
    parser.flag("--version", help="show the version of mntrain")
    _global_options(parser)
    return parser


def verb_parser(verb: Verb, program: str, words: Sequence[str] = ()) -> Parser:
    """Return the parser of a verb or of its actions, which also takes the common options.

    Args:
        words: of the command, as far as they are known: some say what others may be.
    """
    name, sentence = f"{program} {verb.name}", f"{verb.help[0].upper()}{verb.help[1:]}."
    if verb.actions:
        listed = {name: action.help for name, action in verb.actions.items()}
        parser = menu_parser(name, sentence, {"actions": listed}, "action")
    else:
        parser = Parser(name, sentence)
        parser.takes_arguments = verb.takes_cell or verb.takes_arguments
        verb.add_arguments(parser)
        verb.add_chosen_arguments(parser, words)
        if verb.explains and {"--help", "-h"} & set(words):
            _explain(parser, verb.explains)
    add = _global_options if verb.uses_cluster else output_options
    parser.fold(add, f"{program.partition(' ')[0]} --help")
    return parser


def _explain(parser: Parser, figures: Sequence[str]) -> None:
    from jupyter_mntrain.metrics.definitions import told_figures

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(["figures:", *told_figures(figures, COLUMNS)])


def _global_options(parser: Parser) -> None:
    _cluster_options(parser)
    output_options(parser)


def _refuse_other_launcher(words: Sequence[str], arguments: Sequence[str], program: str) -> None:
    from jupyter_mntrain.verbs.launching.other_launchers import refuse_other_launcher

    refuse_other_launcher(words, arguments, program)


def _cluster_options(parser: Parser) -> None:
    parser.option(
        "--cluster",
        metavar="NAME",
        completes="cluster",
        help="name of the cluster; default: $MNTRAIN_CLUSTER",
    )
    parser.repeatable(
        "--agent",
        metavar="HOST[:PORT]",
        help="an agent that multicast does not reach; repeatable; default: $MNTRAIN_AGENTS",
    )
    parser.option(
        "--allocation",
        type=Path,
        metavar="DIRECTORY",
        completes="file",
        help="directory of an allocation, in which its agents are found, and their records once "
        "they have ended; default: $MNTRAIN_ALLOCATION",
    )
