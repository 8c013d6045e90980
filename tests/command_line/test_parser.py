"""Parser: bad input is an error of ours, with its fix; it never prints or exits."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable

import pytest

from jupyter_mntrain.command_line.parser import (
    HelpWanted,
    Parser,
    bounded_float,
    bounded_int,
    check_choice,
    typed,
)
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from tests.wording import says

CHOICES = {"join": "join a cluster", "leave": "leave it"}


@pytest.fixture
def parser() -> Parser:
    made = Parser("mntrain try", "Something to parse.")
    made.argument("target", metavar="TARGET", completes="recipe")
    made.option("--steps", "-s", type=bounded_int(1, 100), metavar="N")
    made.option("--node", metavar="NAME", completes="node")
    made.repeatable("--member", "-m", metavar="MEMBER")
    made.flag("--wait")
    return made


def parsed(parser: Parser, line: str) -> Namespace:
    return parser.parse(line.split(), Namespace())


def refused(parser: Parser, line: str) -> SpecError:
    with pytest.raises(SpecError) as error:
        parsed(parser, line)
    assert error.value.problem.kind is Kind.BAD_COMMAND
    assert error.value.problem.fix
    assert "\n" not in str(error.value)
    return error.value


def test_options_stand_before_and_after_the_positional(parser: Parser) -> None:
    for line in ("--steps 3 a.toml --wait", "--wait -s 3 a.toml"):
        args = parsed(parser, line)
        assert (args.target, args.steps, args.wait) == ("a.toml", 3, True)


@pytest.mark.parametrize(
    "line", ["a.toml --steps 3 one two", "a.toml one --steps 3 two", "--steps 3 a.toml one two"]
)
def test_an_option_stands_between_positionals(line: str) -> None:
    parser = Parser("mntrain try")
    parser.argument("target")
    parser.argument("nodes", nargs="*")
    parser.option("--steps", type=bounded_int(1, 100))
    args = parsed(parser, line)
    assert (args.target, args.nodes, args.steps) == ("a.toml", ["one", "two"], 3)


def test_what_is_not_given_has_its_default(parser: Parser) -> None:
    args = parsed(parser, "a.toml")
    assert (args.steps, args.node, args.member, args.wait) == (None, None, [], False)


def test_a_value_may_begin_with_a_minus(parser: Parser) -> None:
    args = parsed(parser, "a.toml --node -5m --member -.5 -m -1")
    assert (args.node, args.member) == ("-5m", ["-.5", "-1"])
    assert parsed(parser, "--node=-x a.toml").node == "-x"


def test_a_repeatable_option_adds_up(parser: Parser) -> None:
    assert parsed(parser, "a.toml -m x --member y:1 -m x").member == ["x", "y:1", "x"]
    assert parsed(parser, "a.toml").member == [], "the next command starts again"


def test_what_the_namespace_holds_stays_where_no_word_changes_it(parser: Parser) -> None:
    args = parser.parse(["a.toml", "--steps", "3"], Namespace(steps=7, cluster="lab"))
    assert (args.steps, args.cluster) == (3, "lab")


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("", "TARGET"),
        ("a.toml --steps", "--steps"),
        ("a.toml --steps many", "'many' is not a whole number from 1 to 100"),
        ("a.toml --steps 101", "'101' is not a whole number from 1 to 100"),
        ("a.toml --wait=now", "--wait"),
        ("a.toml b.toml", "'b.toml' is not expected here"),
        ("a.toml --st 3", "no such option '--st'"),
        ("a.toml --steps -5", "'-5' is not a whole number from 1 to 100"),
        ("a.toml -s -5m", "'-5m' is not a whole number from 1 to 100"),
        ("a.toml --steps --wait", "--steps"),
        ("a.toml -s", "its value is missing"),
    ],
)
def test_bad_input_is_one_line_and_no_exit(
    parser: Parser, line: str, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says(cause, str(refused(parser, line)))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("word", "fix"),
    [
        ("--stpes", "use --steps"),
        ("--stpes=3", "use --steps"),
        ("--wiat", "use --wait"),
        ("--membr", "use --member"),
        ("--xyzzy", "see mntrain try --help"),
    ],
)
def test_a_misspelled_option_is_answered_with_the_one_it_resembles(
    parser: Parser, word: str, fix: str
) -> None:
    assert says(fix, refused(parser, f"a.toml {word}").problem.fix)


@pytest.mark.wording
@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("a.py conf.py --lr=3 --size 4", "a.py -- conf.py --lr=3 --size 4"),
        ("--steps 2 a.py x --wait -m y z", "--steps 2 a.py --wait -m y -- x z"),
    ],
)
def test_a_script_s_own_arguments_are_led_behind_the_dashes(
    parser: Parser, line: str, fix: str
) -> None:
    parser.takes_arguments = True
    expected = f"a script's own arguments go after --: mntrain try {fix}"
    assert refused(parser, line).problem.fix == expected


@pytest.mark.parametrize("line", ["--xyzzy 3 a.py", "a.toml train.steps=3"])
def test_what_is_no_script_s_is_not(parser: Parser, line: str) -> None:
    parser.takes_arguments = True
    assert says("see mntrain try --help", refused(parser, line).problem.fix)


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_is_raised_with_its_text(
    parser: Parser, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(HelpWanted, match="Something to parse") as wanted:
        parsed(parser, f"--steps 3 {word}")
    assert "--member" in str(wanted.value)
    assert capsys.readouterr() == ("", "")


def test_completion_knows_every_option_and_its_value(parser: Parser) -> None:
    assert parser.flags == {"--help", "-h", "--wait"}
    assert parser.value_options["--node"] == "node"
    assert parser.value_options["-s"] is parser.value_options["--member"] is None
    assert parser.positionals == ["recipe"]


@pytest.mark.parametrize(
    ("convert", "text", "value"),
    [
        (bounded_int(1, 100), "1", 1),
        (bounded_int(1, 100), "100", 100),
        (bounded_int(-5, 5), "-5", -5),
        (bounded_float(0, 1), "0", 0.0),
        (bounded_float(0, 1), "1e0", 1.0),
        (bounded_float(0, 1), ".25", 0.25),
    ],
)
def test_a_number_may_lie_on_its_bounds(
    convert: Callable[[str], float], text: str, value: float
) -> None:
    assert convert(text) == value


@pytest.mark.parametrize(
    ("convert", "text"),
    [(bounded_int(1, 100), text) for text in ("0", "101", "-1", "1.5", "", "٣", "1_0", "9" * 99)]
    + [(bounded_float(0, 1), text) for text in ("-0.1", "1.01", "nan", "inf", "1e999", "", "half")],
)
def test_a_number_out_of_bounds_or_none_at_all_is_refused(
    convert: Callable[[str], float], text: str
) -> None:
    with pytest.raises(ArgumentTypeError):
        convert(text)


def test_more_digits_than_python_reads_are_refused() -> None:
    with pytest.raises(ArgumentTypeError):
        bounded_int(1, 100)("9" * 5000)


def test_an_error_of_a_converter_passes_through_as_it_is(parser: Parser) -> None:
    def rate(text: str) -> float:
        if text == "fast":
            raise SpecError("'fast' is not a rate", kind=Kind.BAD_SPEC, fix="write 1gbit")
        return float(text)

    parser.option("--rate", type=typed(rate))
    with pytest.raises(SpecError) as error:
        parsed(parser, "a.toml --rate fast")
    assert error.value.problem.kind is Kind.BAD_SPEC
    refused(parser, "a.toml --rate slow")


@pytest.mark.parametrize(
    ("name", "fix"), [("jion", "use join"), ("xyzzy", "use one of join, leave"), (None, "use one")]
)
def test_a_choice_that_is_none_is_answered_with_those_there_are(name: str | None, fix: str) -> None:
    assert check_choice("leave", CHOICES, "mntrain agent", "action") == "leave"
    with pytest.raises(SpecError) as error:
        check_choice(name, CHOICES, "mntrain agent", "action")
    assert error.value.problem.kind is Kind.BAD_COMMAND
    assert says(fix, error.value.problem.fix)
