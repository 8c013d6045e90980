"""Parser: the argparse dialect of the magic, command line and agent. It never prints or exits."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NoReturn, TypeVar

from jupyter_mntrain.model.errors import SpecError, shortened
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.text.spelling import use_nearest

NO_VALUE = "expected one argument"
_MISSING = re.compile("the following arguments are required: (.*)")
_NO_CHOICE = re.compile(r"(.*): invalid choice: (.*) \(choose from (.*)\)")
"""What argparse says."""

_MINUS = re.compile(r"-[\d.]")
"""Begins a negative number or time: no option does."""

COLUMNS = 72
"""That a line at the end of a help has."""

MOST_PIECES = 8
"""Words of a path with spaces that are looked at."""

K = TypeVar("K", bound=str)

Completion = Literal[
    "address",
    "cluster",
    "field",
    "file",
    "job",
    "member",
    "node",
    "recipe",
    "running-job",
    "setting",
]
"""What a value names, for completion."""

Values = Completion | Sequence[str] | None
"""Of a value: what it names, the words that it may be, or unknown."""


class HelpWanted(Exception):  # noqa: N818 - control flow, not an error
    """``--help`` was given; its text is the help."""


class Parser(argparse.ArgumentParser):
    """Argument parser that raises :class:`SpecError` for bad input and :class:`HelpWanted` for
    ``--help``.
    """

    def __init__(self, prog: str, description: str | None = None) -> None:
        super().__init__(prog=prog, description=description, add_help=False, allow_abbrev=False)
        self.value_options: dict[str, Values] = {}
        """Options that take a value, and its kind."""
        self.flags: set[str] = set()
        self.positionals: list[Values] = []
        """The kind of each positional, in order."""
        self.outdated: list[str] = []
        """What was typed by an old name, in words."""
        self._renamed: dict[str, str] = {}
        self.takes_arguments = False
        """Whether those of a script may follow, after ``--``."""
        self._folded: dict[str, str] | None = None
        self.option("--help", "-h", action=_Help, nargs=0, help="show this help")

    def option(self, *names: str, completes: Completion | None = None, **settings: Any) -> None:
        """Add an option with a value, like ``add_argument``, and remember it for completion."""
        if self._folded is not None:
            self._folded[names[0]] = settings.get("metavar", "")
            settings["help"] = argparse.SUPPRESS
        action = self.add_argument(*names, **settings)
        if action.nargs == 0:
            self.flags.update(names)
        else:
            self.value_options.update(dict.fromkeys(names, completes or settings.get("choices")))

    def flag(self, *names: str, **settings: Any) -> None:
        """Add an option without a value."""
        self.option(*names, action="store_true", **settings)

    def repeatable(self, *names: str, **settings: Any) -> None:
        """Add an option that may be given several times; its values become a list."""
        self.option(*names, action="append", default=[], **settings)

    def argument(self, name: str, *, completes: Completion | None = None, **settings: Any) -> None:
        """Add a positional argument, like ``add_argument``, and remember it for completion."""
        self.add_argument(name, **settings)
        self.positionals.append(completes or settings.get("choices"))

    def renamed(self, *old: str, to: str) -> None:
        """Accept old names of an option, until 1.0, and note in ``outdated`` that they were used.

        Args:
            to: its name; empty where its value now stands alone.
        """
        self._renamed.update(dict.fromkeys(old, to))

    def outdated_value(self, what: str) -> Callable[[str], str]:
        """Return a converter that accepts an obsolete value, until 1.0, and notes its use."""

        def convert(text: str) -> str:
            self.outdated.append(what)
            return text

        return convert

    def fold(self, add: Callable[[Parser], None], shown_by: str) -> None:
        """Add options that the help lists by name only, because another command explains them.

        Args:
            add: adds them.
            shown_by: the command that tells what they do.
        """
        self._folded = {}
        add(self)
        names = ", ".join(f"{name} {value}".strip() for name, value in self._folded.items())
        self._folded = None
        told = textwrap.fill(f"global options: {names}; see {shown_by}", COLUMNS)
        self.epilog = "\n\n".join(filter(None, (self.epilog, told)))

    def parse(self, argv: Sequence[str], namespace: argparse.Namespace) -> argparse.Namespace:
        """Parse all words. Values already in the namespace are kept unless a word changes them.

        Raises:
            SpecError: something is unknown, missing or of the wrong form.
            HelpWanted: ``--help`` was among it.
        """
        words = list(self._attached(argv))
        # Else argparse gives all positionals their words at the first of them, also the optional
        # ones: of "push PATH --from NODE NODE" the last would be left over.
        parse = self.parse_known_args
        if not self._leaves_rest:
            parse = self.parse_known_intermixed_args
            # It takes the usage for a template, in which the % of a magic must be two.
            self.usage = self.usage or self.format_usage().partition(" ")[2].replace("%", "%%")
        args, rest = parse(words, namespace)
        if rest:
            raise self._unknown(rest[0], words)
        return args

    @property
    def _leaves_rest(self) -> bool:
        """Whether the words after a positional are left for another parser."""
        return any(one.nargs == argparse.REMAINDER for one in self._get_positional_actions())

    def _attached(self, argv: Sequence[str]) -> Iterator[str]:
        """Attach each value like ``-5m`` to its option: argparse would take it for an option, and
        report that a value is missing.
        """
        words = iter(argv)
        for typed_word in words:
            word = self._renewed(typed_word)
            if word is None:
                continue
            value = next(words, None) if word in self.value_options else None
            if value is None:
                yield word
            elif word.startswith("--") and self._is_foreign(value):
                raise bad_command(
                    f"{word}: its value is missing",
                    fix=f"attach a value that begins with -: {shlex.quote(f'{word}={value}')}",
                )
            elif _MINUS.match(value):
                yield f"{word}={value}" if word.startswith("--") else f"{word}{value}"
            else:
                yield from (word, value)

    def _renewed(self, word: str) -> str | None:
        """Return the word with the option's current name; ``None`` if the word is to be dropped."""
        name, equals, value = word.partition("=")
        if not name.startswith("--") and name[:2] in self._renamed:  # -oFILE
            name, equals, value = word[:2], "=" if word[2:] else "", word[2:].removeprefix("=")
        if name not in self._renamed:
            return word
        new = self._renamed[name]
        self.outdated.append(f"{name} is now {new}" if new else f"{name} is no longer needed")
        return f"{new}{equals}{value}" if new else value or None

    def _is_foreign(self, word: str) -> bool:
        """Return whether a word looks like an option, but is not one of this parser's."""
        known = self.flags | self.value_options.keys()
        return word.startswith("--") and " " not in word and word.partition("=")[0] not in known

    def _unknown(self, word: str, words: Sequence[str]) -> SpecError:
        if path := _unquoted(words):
            return bad_command(
                f"{shortened(word)!r} is not expected here",
                fix=f"quote a path with a space in it: {shlex.quote(path)}",
            )
        usual = self._with_dashes(words) or self._see_help()
        if not word.startswith("-"):
            return bad_command(f"{shortened(word)!r} is not expected here", fix=usual)
        name = word.partition("=")[0]
        fix = use_nearest(name, [*self.flags, *self.value_options], usual)
        return bad_command(f"no such option {shortened(name)!r}", fix=fix)

    def _with_dashes(self, words: Sequence[str]) -> str:
        """Show how to pass a script its own arguments, after ``--``; empty if there are none."""
        todo, own, theirs = list(words), list[str](), list[str]()
        has_target = False
        while todo and self.takes_arguments:
            word = todo.pop(0)
            name, _, value = word.partition("=")
            if name in self.flags | self.value_options.keys():
                own.append(word)
                has_target = has_target or name == "--module"
                if name in self.value_options and not value:
                    own += todo[:1]
                    del todo[:1]
            elif has_target:
                theirs.append(word)
            elif word.startswith("-") or word.endswith(".toml"):
                return ""  # there is no script that it could be for
            else:
                own.append(word)
                has_target = True
        line = shlex.join([*own, "--", *theirs])
        return f"a script's own arguments go after --: {self.prog} {line}" if theirs else ""

    def error(self, message: str) -> NoReturn:
        said = message.removeprefix("argument ").replace(NO_VALUE, "its value is missing")
        said = _MISSING.sub(r"\1: missing", said)
        if choice := _NO_CHOICE.fullmatch(said):
            option, value, known = choice.groups()
            choices = known.replace("'", "")
            raise bad_command(f"{option}: there is no {value}", fix=f"use one of {choices}")
        raise bad_command(said, fix=self._see_help())

    def _see_help(self) -> str:
        return f"see {self.prog} --help"


def _unquoted(words: Sequence[str]) -> str:
    """Join the path of an existing file that spaces split into several words; empty if there is
    none.
    """
    for begin in range(len(words)):
        path = words[begin]
        for word in words[begin + 1 : begin + MOST_PIECES]:
            path = f"{path} {word}"
            if os.path.exists(path):  # noqa: PTH110 - takes what is no path, too
                return path
    return ""


class _Help(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        raise HelpWanted(parser.format_help())


def bad_command(cause: str, fix: str) -> SpecError:
    """Make the error for a command that cannot be parsed."""
    return SpecError(cause, kind=Kind.BAD_COMMAND, fix=fix)


def typed(check: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap a converter for argparse, so that our errors pass through instead of being reworded."""

    def convert(text: str) -> Any:
        try:
            return check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def bounded_float(low: float, high: float) -> Callable[[str], float]:
    """Return a converter for argparse: a number from ``low`` to ``high``."""

    def convert(text: str) -> float:
        with suppress(ValueError):
            if low <= float(text) <= high:  # not true of NaN
                return float(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low:g} to {high:g}")

    return convert


def bounded_duration(low_s: float, high_s: float) -> Callable[[str], float]:
    """Return a converter for argparse: seconds, as ``90`` or ``90s``, ``30m``, ``2h`` or ``7d``."""
    from jupyter_mntrain.model.quantities import duration_text, parse_duration

    limits = f"{duration_text(low_s) if low_s >= 1 else f'{low_s:g} s'} to {duration_text(high_s)}"

    def convert(text: str) -> float:
        try:
            value_s = float(text) if text[-1:].isdigit() else parse_duration(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if not low_s <= value_s <= high_s:
            raise argparse.ArgumentTypeError(f"{text!r} is out of range; use {limits}")
        return value_s

    return convert


def bounded_int(low: int, high: int) -> Callable[[str], int]:
    """Return a converter for argparse: a whole number from ``low`` to ``high``."""

    def convert(text: str) -> int:
        digits = text.removeprefix("-")
        # Of more digits than 4300 Python makes no number.
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(high))
        if not (is_number and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return convert


def menu_parser(
    program: str, description: str, choices: Mapping[str, Mapping[K, str]], noun: str
) -> Parser:
    """Make a parser for one of ``choices``. Words after it are left to that choice's parser.

    Args:
        choices: one line of help by name, under headings.
        noun: what a choice is called in the help.
    """
    width = max(len(name) for listed in choices.values() for name in listed) + 2
    parts = [
        "\n".join([f"{heading}:", *(f"  {name:{width}}{text}" for name, text in listed.items())])
        for heading, listed in choices.items()
    ]
    parser = Parser(program, "\n\n".join([description, *parts]))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = f"%(prog)s [OPTIONS] {noun.upper()} ..."
    parser.epilog = f"{program} {noun.upper()} --help shows its options."
    parser.argument("choice", nargs="?", metavar=noun.upper(), help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def check_choice(name: str | None, choices: Mapping[K, object], program: str, noun: str) -> K:
    """Return the name if it is one of ``choices``, or raise an error.

    Raises:
        SpecError: it is not; the message says which could have been meant.
    """
    for known in choices:
        if known == name:
            return known
    usual = f"use one of {', '.join(choices)}"
    if name is None:
        raise bad_command(f"{program} needs an {noun}", fix=usual)
    raise bad_command(f"no {noun} {shortened(name)!r}", fix=use_nearest(name, choices, usual))


def output_options(parser: Parser) -> None:
    """Add the options for how results and errors are printed."""
    parser.flag("--json", help="print results and errors as JSON, for programs")
    parser.flag("--traceback", help="show the traceback of an error, here or in a rank")
