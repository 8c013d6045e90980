"""Script arguments: argparse as the script would build it; silence where its text does not tell."""

from __future__ import annotations

import ast

import pytest

from jupyter_mntrain.doctor.script.script_arguments import parsed

PARSER = """
import argparse

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--style", default="ring")
parser.add_argument("--steps", type=int, default=100_000)
group = parser.add_argument_group("more")
group.add_argument("--fast", action="store_true")
parser.add_argument("--mode", choices=("a", "b"))
parser.add_argument("--size", type=size)

if __name__ == "__main__":
    options = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--bogus",), "unrecognized arguments: --bogus"),
        (("--steps", "many"), "argument --steps: invalid int value: 'many'"),
        (("--style",), "argument --style: expected one argument"),
        (("--mode", "c"), "argument --mode: invalid choice"),
    ],
)
def test_what_argparse_would_not_take_is_told(words: tuple[str, ...], error: str):
    found = parsed(ast.parse(PARSER), words)
    assert found is not None
    assert error in found.error


def test_what_it_takes_is_known():
    found = parsed(ast.parse(PARSER), ("--style", "reduce", "--fast", "--steps", "7"))
    assert found is not None
    assert (found.error, found.name) == ("", "options")
    assert (found.values["style"], found.values["steps"]) == ("reduce", 7)
    assert found.values["fast"] is True


def test_a_type_of_its_own_takes_what_it_takes():
    found = parsed(ast.parse(PARSER), ("--size", "3 parsecs"))
    assert found is not None
    assert found.error == ""


def but(old: str, new: str) -> str:
    assert old in PARSER
    return PARSER.replace(old, new)


@pytest.mark.parametrize(
    "text",
    [
        "import argparse",
        but("parser.parse_args()", "parser.parse_known_args()[0]"),
        but("parser.parse_args()", "parser.parse_args(words)"),
        but("options =", "add_more(parser)\n    options ="),
        but('"--mode", choices=("a", "b")', "name"),
        but("group = parser", "for name in names:\n    parser.add_argument(name)\ngroup = parser"),
        but("description=__doc__", "parents=[other]"),
        PARSER + "\nother = argparse.ArgumentParser()\n",
        but("options =", "commands = parser.add_subparsers()\n    options ="),
    ],
)
def test_of_a_parser_that_its_text_does_not_tell_nothing_is_said(text: str):
    assert parsed(ast.parse(text), ("--bogus",)) is None


def test_help_is_no_mistake():
    assert parsed(ast.parse(PARSER), ("--help",)) is None
