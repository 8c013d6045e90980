from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_mntrain import verbs
from jupyter_mntrain.command_line.parser import HelpWanted, Parser
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.quantities import parse_duration
from jupyter_mntrain.verbs.command import parse, split_line, verb_parser
from jupyter_mntrain.verbs.table import HEADINGS, TABLE
from jupyter_mntrain.verbs.verb import Verb, VerbGroup
from tests.rows import same_rows
from tests.wording import says


def args_of(line: str):
    return parse(split_line(line), program="%mntrain").args


def test_the_table_has_every_promised_verb():
    promised = (
        "nodes add forget panel launch jobs status attach logs plot stop kill measure "
        "export invite members revoke driver stacks save generate recipes config agent report "
        "resume checkpoints tensorboard settings install upgrade rename note rm history "
        "compare plan trace doctor bench accept push pull du gc chat serve set completion "
        "session cell"
    )
    same_rows(
        TABLE,
        promised.split(),
        "verb '{}' is promised nowhere: add its name to `promised` in tests/verbs/test_command.py",
        "verb '{}' is promised in tests/verbs/test_command.py, and HEADINGS of verbs/table.py has"
        " none of that name: add its class there, or take the name from `promised`",
    )


def kinds(base: type[Verb]) -> set[type[Verb]]:
    return {base}.union(*(kinds(one) for one in base.__subclasses__()))


def test_the_table_has_every_verb():
    for module in pkgutil.walk_packages(verbs.__path__, f"{verbs.__name__}."):
        importlib.import_module(module.name)
    ours = {one for one in kinds(Verb) if one.__module__.startswith(verbs.__name__)}
    listed = {type(one) for verb in TABLE.values() for one in (verb, *verb.actions.values())}
    same_rows(
        {one.__qualname__ for one in ours - {Verb, VerbGroup}},
        {one.__qualname__ for one in listed},
        "class {} is a verb that nobody can call: add it to HEADINGS in verbs/table.py",
        "class {} is in HEADINGS of verbs/table.py, and is no verb of ours: take it out",
    )


def test_the_page_of_commands_names_every_verb():
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z-]+)", row)}
    same_rows(
        TABLE,
        named,
        "verb '{}' has no row in docs/commands.md: add one to the table of its section",
        "docs/commands.md has a row of '{}', which is no verb: remove it",
    )


def test_common_options_stand_before_and_after_the_verb():
    for line in ("--cluster lab --json nodes", "nodes --cluster lab --json"):
        args = args_of(line)
        assert (args.cluster, args.json) == ("lab", True)


def test_typed_in_agents_add_up_from_both_places():
    assert args_of("--agent a:1 nodes --agent b:2").agent == ["a:1", "b:2"]


def test_options_may_stand_on_both_sides_of_the_recipe():
    args = args_of("launch --member a:1 recipe.toml --member b:2:eth0 --wait")
    assert args.target == "recipe.toml"
    assert args.member == ["a:1", "b:2:eth0"]
    assert args.wait


def test_what_follows_two_dashes_is_the_scripts():
    command = parse(["launch", "train.py", "-m", "a:1", "--", "--lr", "3", "--json"], program="x")
    assert command.arguments == ("--lr", "3", "--json")
    assert not command.args.json


def test_quotes_are_a_shells():
    assert args_of('launch r.toml --env "A=two words" --env B --env C=').env == [
        ("A", "two words"),
        ("B", None),
        ("C", ""),
    ]


def test_torchrun_arguments_begin_with_dashes():
    assert args_of("launch r.toml --torchrun=--redirects=1").torchrun == ["--redirects=1"]


def test_rates_are_bytes_per_second_inside():
    assert args_of("launch r.toml --link-capacity 1gbit").link_capacity == 125e6


@pytest.mark.parametrize("line", ["", "--help", "nodes --help", "launch -h", "add --help"])
def test_help_is_text_and_nobody_exits(line):
    with pytest.raises(HelpWanted) as wanted:
        args_of(line)
    assert "%mntrain" in str(wanted.value)


def test_help_lists_every_verb():
    with pytest.raises(HelpWanted) as wanted:
        args_of("--help")
    for name in TABLE:
        assert f"\n  {name} " in str(wanted.value)


def test_what_a_newcomer_needs_stands_first_under_its_heading():
    with pytest.raises(HelpWanted) as wanted:
        args_of("--help")
    first, *others = HEADINGS
    text = str(wanted.value)
    assert [*HEADINGS[first]] == ["invite", "nodes", "launch", "status", "stop"]
    titles = [text.index(f"\n{heading}:\n") for heading in (first, *others)]
    assert titles == sorted(titles)
    assert titles[-1] < text.index("\noptions:\n")


def every_parser() -> Iterator[tuple[str, Parser]]:
    """The parser of each verb and each action, by its command."""
    for verb in TABLE.values():
        for one in verb.actions.values() or (verb,):
            name = f"{verb.name} {one.name}" if one is not verb else verb.name
            yield name, verb_parser(one, name.removesuffix(one.name).strip() or "mntrain")


def test_an_option_has_one_name_everywhere():
    names, takes_value = {}, {}
    for command, parser in every_parser():
        for action in parser._actions:
            for option in action.option_strings:
                known = names.setdefault(option, (command, set(action.option_strings)))
                assert known[1] == set(action.option_strings), f"{command} and {known[0]}"
                kind = takes_value.setdefault(option, (command, action.nargs == 0))
                if option != "--replace":  # a member, or the cluster of that name here
                    assert kind[1] == (action.nargs == 0), f"{option}: {command}, {kind[0]}"
    assert names["-o"][1] == {"--output", "-o"}


def test_a_value_is_named_alike_everywhere():
    for command, parser in every_parser():
        for action in parser._actions:
            kind = getattr(action.type, "__qualname__", "")
            if action.type is parse_duration or "duration" in kind:
                assert action.metavar == "DURATION", f"{command} {action.option_strings}"
            if "--port" in action.option_strings:
                assert action.metavar == "PORT", command


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("agent lend --gpus 0,1", "agent offer --gpus 0,1"),
        ("launch r.toml --out job", "launch r.toml --variable job"),
        ("launch r.toml -o job", "launch r.toml --variable job"),
        ("resume j-1 -ojob", "resume j-1 --variable job"),
        ("plot --out=p.png", "plot --output=p.png"),
        ("tensorboard j-1 --out d", "tensorboard j-1 -o d"),
        ("plan --from j-1", "plan --speeds-of j-1"),
        ("serve j-1 --address 0.0.0.0", "serve j-1 --listen 0.0.0.0"),
        ("measure --member a:1 -m b --links", "measure a:1 b --links"),
        ("--json dry-run r.toml --wait", "--json launch --dry-run r.toml --wait"),
        ("recipe show r.toml --changed", "settings r.toml --changed"),
    ],
)
def test_an_old_name_is_taken_until_1_0_and_told(old, new):
    was, now = (parse(split_line(line), program="mntrain") for line in (old, new))
    told = {"words"}  # as typed
    assert {k: v for k, v in vars(was.args).items() if k not in told} == {
        k: v for k, v in vars(now.args).items() if k not in told
    }
    assert was.outdated
    assert not now.outdated


GLOBAL = ("--cluster", "--agent", "--allocation", "--json", "--traceback")


@pytest.mark.parametrize("line", ["jobs", "launch", "driver", "driver join", "config"])
def test_global_options_are_explained_once(line):
    def shown(line: str) -> str:
        with pytest.raises(HelpWanted) as wanted:
            parse([*line.split(), "--help"], program="mntrain")
        return str(wanted.value)

    assert all(f"\n  {option}" in shown("") for option in GLOBAL)
    assert not any(f"\n  {option}" in shown(line) for option in GLOBAL)
    assert says("global options: ", shown(line))
    assert says("see mntrain --help", shown(line).replace("\n", " "))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("nodse", ["'nodse'", "nodes"]),
        ("zzz", ["'zzz'", "use one of", "launch"]),
        ("nodes --jsno", ["--jsno", "--json"]),
        ("nodes extra", ["'extra'", "is not expected"]),
        ("launch r.toml --port 0", ["--port", "'0'", "65535"]),
        ("launch r.toml --port 70000", ["70000"]),
        ("launch r.toml --port", ["--port", "its value is missing"]),
        ("launch r.toml --env =VALUE", ["NAME=VALUE"]),
        ("launch r.toml --link-capacity fast", ["'fast'", "1gbit"]),
        ("logs --tail many", ["'many'"]),
        ("logs --rank -1", ["-1"]),
        ("history wopr --last -5m", ["--last", "'-5m' is not a duration"]),
        ("jobs --sort age", ["--sort", "'age'", "use one of started, duration, name, state"]),
        ("rename j-1", ["NAME: missing"]),
        ("launch r.toml --name ''", ["--name", "at least one letter"]),
        ("stacks --rank x", ["'x'", "whole number"]),
        ("invite --uses 0", ["--uses", "'0'", "1 to 1000"]),
        ("stop j-1 --grace 2h", ["--grace", "'2h'", "out of range"]),
        ("stop j-1 --grace nan", ["--grace", "'nan'"]),
        ("generate j-1 hi --tokens 0", ["--tokens", "'0'"]),
        ("generate j-1 hi --temperature 11", ["--temperature", "'11'", "0 to 10"]),
        ("generate j-1 hi --seed -1", ["--seed", "'-1'"]),
        ("chat j-1 --temperature 11", ["--temperature", "'11'", "0 to 10"]),
        ("serve j-1 --port 0", ["--port", "'0'"]),
        ("plot --theme pink", ["pink", "dark"]),
        ("add", ["HOST[:PORT]"]),
        ("status -- x", ["status", "'x'"]),
        ('launch "r.toml', ["quote"]),
        ("launch r.toml --wai", ["--wai", "--wait"]),
    ],
)
def test_bad_lines_are_one_line_with_the_thing_and_the_fix(line, told):
    with pytest.raises(SpecError) as caught:
        args_of(line)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert caught.value.fix
    assert all(says(word, message) for word in told)


def test_help_fits_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    actions = [f"{name} {one}" for name, verb in TABLE.items() for one in verb.actions]
    for line in ("", *TABLE, *actions):
        with pytest.raises(HelpWanted) as wanted:
            parse([*line.split(), "--help"], program="mntrain")
        assert max(map(len, str(wanted.value).splitlines())) <= 80, line


@pytest.mark.parametrize("name", list(TABLE))
def test_no_verb_ever_exits_the_interpreter(name):
    takes_many = name in (
        "tensorboard",
        "rm",
        "compare",
        "doctor",
        "bench",
        "measure",
        "push",
        "du",
        "gc",
        "accept",
        "set",
    )
    for words in ([name, "--no-such-option"], [name, "-", "b", "c", *["--no-such"] * takes_many]):
        with pytest.raises(MntrainError):
            parse(words, program="mntrain")
