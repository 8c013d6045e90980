"""Options of a launch on a scheduler's nodes: common ones, and those a source declares."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from jupyter_mntrain.command_line.parser import Parser, bounded_int, typed
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.quantities import duration_text, parse_duration
from jupyter_mntrain.model.sources.source import NodesRequest, SourceOption, checked_values
from jupyter_mntrain.sources.registry import options_of, sources, title_of

IDLE_S = 120.0
"""An allocation without a job gives its nodes back after this time (--idle). A driver that has
just seen the end of a job may start the next one there."""

ON = "--on"
MOST_NODES = 1000

_CLOCK = re.compile(r"(?:(\d{1,4})-)?(\d{1,4}):([0-5]\d):([0-5]\d)", re.ASCII)
_UNNAMED = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)
_LONGEST_NAME = 40


def common_options(source: str) -> tuple[SourceOption, ...]:
    """Return the options that every source has."""
    idle = duration_text(IDLE_S)
    takes_job = any(option.name == "jobid" for option in options_of(source))
    of_job = ", or those of --jobid" if takes_job else ""
    return (
        SourceOption(
            "nodes", help=f"number of nodes; all are granted together; default: 1{of_job}"
        ),
        SourceOption("gpus", help=f"GPUs per node, like 4, or TYPE:4; default: none{of_job}"),
        SourceOption(
            "time",
            help="maximum time for which the nodes are needed, like 90min or 1-12:00:00; default: "
            f"that of {title_of(source)}",
        ),
        SourceOption(
            "idle",
            help="give the nodes back once no job has run on them for this time, like 1h; until "
            f"then launch --cluster NAME starts more jobs there; default: {idle}",
        ),
    )


def on_option(parser: Parser) -> None:
    """Add the option that names a source."""
    parser.option(
        ON,
        choices=sources(),
        metavar="SOURCE",
        help="get nodes for this job from a scheduler: "
        f"{' or '.join(sources())}; launch --on NAME --help shows what it takes",
    )


def chosen_options(parser: Parser, words: Sequence[str], *, but: Collection[str] = ()) -> bool:
    """Add the options of the source that the words name. Return whether they name one.

    Args:
        but: names of options of all sources to leave out.
    """
    name = _chosen(words)
    if name not in sources():
        return False
    for option in common_options(name):
        if option.name in but:
            continue
        parser.option(option.flag, help=_help(option), **_COMMON[option.name])
    for option in options_of(name):
        parser.repeatable(
            option.flag,
            dest=_destination(option),
            choices=option.choices or None,
            metavar=option.name.upper(),
            help=_help(option),
        )
    return True


def nodes_request(args: Namespace, usual: int = 1) -> NodesRequest:
    """Return the request to a source that the options describe.

    Args:
        usual: number of nodes where they name none.

    Raises:
        SpecError: a value cannot be meant.
    """
    declared = options_of(args.on)
    given = {one.name: getattr(args, _destination(one)) for one in declared}
    return NodesRequest(
        args.on,
        args.nodes or usual,
        gpus=args.gpus,
        time_s=args.time,
        name=_name(args),
        options=checked_values(title_of(args.on), declared, given),
    )


def refuse_with_on(args: Namespace) -> None:
    """Refuse options that contradict getting nodes from a scheduler.

    Raises:
        SpecError: one was given.
    """
    given = {"--cluster": args.cluster, "--agent": args.agent, "--allocation": args.allocation}
    given["--queue"] = getattr(args, "queue", None)
    if getattr(args, "no_wait", False) and args.wait:
        raise SpecError("--wait and --no-wait cannot be used together", fix="use one of them")
    if getattr(args, "no_wait", False) and args.variable:
        fix = "leave one of them out; once the job has started, attach --variable stores it"
        raise SpecError(f"--variable {args.variable}: with --no-wait there is no job yet", fix=fix)
    for name, value in given.items():
        if value:
            fix = f"leave {ON} out to use existing nodes, else {name}"
            raise SpecError(f"{ON} gets new nodes, which form a cluster of their own", fix=fix)


def _chosen(words: Sequence[str]) -> str:
    """Return the value of the last ``--on``."""
    said = [*_said(words)]
    return said[-1] if said else ""


def _said(words: Sequence[str]) -> Iterator[str]:
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, is_attached, value = word.partition("=")
        if name == ON:
            yield value if is_attached else following


def _destination(option: SourceOption) -> str:
    """Return an argparse destination that differs from other options' names."""
    return f"on_{option.name}"


def _help(option: SourceOption) -> str:
    example = f", like {option.example}" if option.example else ""
    choices = f"; one of {', '.join(option.choices)}" if option.choices else ""
    repeatable = "; repeatable" if option.kind == "lines" else ""
    # argparse takes a help for a template.
    return f"{option.help}{example}{choices}{repeatable}".replace("%", "%%")


def _name(args: Namespace) -> str:
    """Return the name for the scheduler's lists: the job's, or that of what is run."""
    text = args.name or args.module or (args.target or "").rpartition("/")[2]
    name = _UNNAMED.sub("-", text.removesuffix(".py").removesuffix(".toml")).strip("-._")
    return name[:_LONGEST_NAME].rstrip("-._") or "mntrain"


def _time(text: str) -> float:
    """Convert a duration, also as schedulers write it: ``HH:MM:SS`` or ``D-HH:MM:SS``."""
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        told_s = parse_duration(text)
    else:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        told_s = float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    if told_s == 0:
        raise ValueError(f"{text!r}: a time must be longer than zero")
    return told_s


_COMMON: dict[str, dict[str, Any]] = {
    "nodes": {"type": bounded_int(1, MOST_NODES), "metavar": "N"},
    "gpus": {"default": "", "metavar": "N"},
    "time": {"type": typed(_time), "metavar": "DURATION"},
    "idle": {"type": typed(parse_duration), "metavar": "DURATION"},
}
"""How the options of all sources are read, by name."""
