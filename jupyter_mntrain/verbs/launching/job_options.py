"""Job options: what runs, where, in which environment, and what happens after a failure."""

from __future__ import annotations

from jupyter_mntrain.command_line.parser import Parser, bounded_int, typed
from jupyter_mntrain.launch.project.stage import LIMIT_BYTES
from jupyter_mntrain.model.api import LAST_PORT
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.quantities import parse_duration, parse_size, size_text
from jupyter_mntrain.model.records.job import SESSION
from jupyter_mntrain.plan.rates import parse_bit_rate

MOST_RESTARTS = 1000
MOST_NODES = 1000
HIGHEST_PRIORITY = 1000
SHORTEST_TIMEOUT_S, LONGEST_TIMEOUT_S = 10.0, 86400.0
"""The limits of a recipe's ``train.timeout_s``."""


def job_options(parser: Parser, *, has_target: bool = True) -> None:
    """Add the options that describe a job, in the order in which the help lists them.

    Args:
        has_target: whether it is named here what to run.
    """
    everywhere = "every node with all idle GPUs, or one process each"
    if has_target:
        _target(parser)
    _what_runs(parser)
    _where(parser, default=everywhere if has_target else "those of the job")
    _surroundings(parser)
    _when_it_fails(parser)


def session_options(parser: Parser) -> None:
    """Add the options of a session's ranks: those of a job, but for what it runs."""
    _files(parser)
    _python(parser)
    _name_option(parser)
    _where(parser, default="every node with all idle GPUs, or one process each")
    _surroundings(parser)
    parser.set_defaults(
        target=None,
        module=SESSION,
        set=[],
        restarts=0,
        on_stall=None,
        on_nan=None,
        collective_timeout=None,
        priority=None,
        queue_limit=None,
        lost_limit=None,
    )


def _target(parser: Parser) -> None:
    parser.argument(
        "target",
        nargs="?",
        metavar="RECIPE.toml|SCRIPT.py|JOB.toml|JOB|NAME",
        completes="recipe",
        help="what to run: a recipe, a script, an exported job file, an earlier job by its id, or "
        "a built-in recipe by its name (see: recipes); arguments of a script go after --, "
        "and {out} in them is the job's folder for results on each node: see pull",
    )


def _what_runs(parser: Parser) -> None:
    parser.repeatable(
        "--set",
        metavar="SECTION.FIELD=VALUE",
        completes="field",
        help="override a field of the recipe; repeatable",
    )
    parser.option(
        "--module",
        metavar="NAME",
        help="run a module, as python -m NAME: of the project (default: this folder, if it has "
        "it), of --workdir, or installed on the nodes",
    )
    _files(parser)
    _python(parser)
    _name_option(parser)


def _name_option(parser: Parser) -> None:
    parser.option("--name", type=typed(_name), metavar="NAME", help="name of the job")


def _files(parser: Parser) -> None:
    parser.option(
        "--project",
        metavar="DIR",
        completes="file",
        help="send the files of a folder, binary ones too, and run in them; without those that "
        ".gitignore or .mntrainignore name, and those that a node has already. Default: the "
        "script's own folder, if it imports from it",
    )
    parser.flag("--no-project", help="send only the script, whatever it imports")
    parser.option(
        "--project-limit",
        type=typed(parse_size),
        metavar="SIZE",
        help=f"refuse larger projects; default: {size_text(LIMIT_BYTES)}",
    )
    parser.repeatable(
        "--file",
        metavar="PATH",
        completes="file",
        help="a file or folder to send, with its path from here as its name; repeatable",
    )
    parser.option(
        "--workdir",
        metavar="PATH",
        help="run in this folder, which every node has: a shared file system. The target is then "
        "a path in it, or a file from here that is sent",
    )


def _python(parser: Parser) -> None:
    parser.option(
        "--python",
        metavar="PATH|conda:NAME|uv:DIR",
        help="interpreter of the ranks on every node: its path, a conda environment by its name or "
        "path, or a uv project's .venv; it needs torch, for a recipe jupyter-mntrain, too. "
        "Default: the one that each agent was started with",
    )


def _where(parser: Parser, *, default: str) -> None:
    parser.repeatable(
        "--member",
        "-m",
        metavar="HOST:N[:IFACE]",
        completes="member",
        help="a node, its number of processes (or its GPUs: HOST:gpu0,2) and its interface; "
        f"repeatable, in rank order; default: {default}",
    )
    parser.option(
        "--head", metavar="NODE", completes="node", help="node that hosts the rendezvous, rank 0"
    )
    parser.option(
        "--port",
        type=bounded_int(1, LAST_PORT),
        metavar="PORT",
        help="rendezvous port on the head; default: free",
    )
    parser.option(
        "--min-nodes",
        type=bounded_int(1, MOST_NODES),
        metavar="N",
        help="on restart, continue without unreachable nodes as long as at least N remain; to "
        "survive the loss of the head, N must be more than half of all nodes; default: wait for "
        "all",
    )
    parser.flag(
        "--mixed-versions",
        help="start although versions of torch, Python or others differ between nodes",
    )
    parser.option(
        "--link-capacity",
        type=typed(_capacity),
        metavar="RATE",
        help="capacity of each link, like 1gbit or 940mbit; default: measured",
    )


def _surroundings(parser: Parser) -> None:
    parser.repeatable(
        "--env",
        "-e",
        type=typed(_variable),
        metavar="NAME[=VALUE]",
        help="variable for every rank's environment; without a value it is taken from this "
        "program's environment and never shown, as is right for tokens; {out} in it is the job's "
        "folder for results; repeatable",
    )
    parser.repeatable(
        "--torchrun",
        metavar="ARG",
        help="option for torchrun, written --torchrun=--ARG; repeatable",
    )
    parser.flag(
        "--debug",
        help="find an error: NCCL and torch log what they do, and a recipe's trainer names the "
        "operation that produced NaN; slow. --env and --set take precedence",
    )


def _when_it_fails(parser: Parser) -> None:
    parser.option(
        "--restarts",
        type=bounded_int(0, MOST_RESTARTS),
        metavar="N",
        help="restart a failed job up to N times, from its newest checkpoint; default: 0",
    )
    parser.option(
        "--on-stall",
        choices=("report", "abort"),
        help="when a job makes no progress: report it (default), or abort the attempt, so that "
        "--restarts starts it again",
    )
    parser.option(
        "--on-nan",
        choices=("stop", "report"),
        help="when the loss is NaN or infinite: stop the job as failed, or report it and go on; "
        "default: train.on_nan of a recipe, report for a script",
    )
    parser.option(
        "--collective-timeout",
        type=typed(_timeout),
        metavar="DURATION",
        help="how long a script's ranks wait for a silent one before they fail, like 2min; "
        "default: torch's, 10 min for NCCL, 30 for Gloo. A timeout that the script gives itself "
        "wins; a recipe has train.timeout_s",
    )
    parser.option(
        "--priority",
        type=bounded_int(-HIGHEST_PRIORITY, HIGHEST_PRIORITY),
        metavar="N",
        help="position in the queue, -1000 to 1000, higher first; default: 0",
    )
    parser.option(
        "--queue-limit",
        type=typed(parse_duration),
        metavar="DURATION",
        help="end a job that still waits in the queue after this time, like 2h; default: it waits",
    )
    parser.option(
        "--lost-limit",
        type=typed(parse_duration),
        metavar="DURATION",
        help="end a job whose next attempt needs a node that has not answered for this time; "
        "default: it waits",
    )


def _variable(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not name or any(c.isspace() or c == "\0" for c in name):
        raise ValueError(f"{name!r} is not the name of a variable; write NAME=VALUE, or NAME")
    return name, value if equals else None


def _timeout(text: str) -> float:
    seconds = parse_duration(text)
    if not SHORTEST_TIMEOUT_S <= seconds <= LONGEST_TIMEOUT_S:
        raise ValueError(
            f"{text!r} is not between 10 s and a day; ranks must also join within this time"
        )
    return seconds


def _capacity(text: str) -> float:
    try:
        return parse_bit_rate(text)
    except SpecError:
        raise ValueError(f"{text!r} is not a rate; write it like 1gbit or 940mbit") from None


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError(
            "a name needs at least one letter; without --name the job gets its default name"
        )
    return text
