"""Arguments of ``mntrain agent``: its actions and their options, for the command and the agent
alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from jupyter_mntrain.command_line.parser import Parser, bounded_duration, bounded_int, typed
from jupyter_mntrain.command_line.token_input import add_token_arguments
from jupyter_mntrain.model.api import DEFAULT_PORT, LAST_PORT
from jupyter_mntrain.model.quantities import parse_duration

SHORTEST_S, LONGEST_S = 0.1, 1e8

PROGRAM = "mntrain agent"
DESCRIPTION = "Run this machine as a node of a cluster."
Action = Literal[
    "join", "run", "drain", "resume", "offer", "leave", "install-service", "remove-service", "read"
]
ACTIONS: dict[Action, str] = {
    "join": "join a cluster with a token from mntrain invite, then run",
    "run": "run as a node of the cluster that it joined",
    "drain": "take no new jobs on this machine; running ones continue",
    "resume": "take jobs again after drain",
    "offer": "show or change what this machine offers: hours, GPUs, memory",
    "leave": "leave the cluster: forget its keys and certificates",
    "install-service": "start the agent now and at boot; jobs survive restarts",
    "remove-service": "remove the service; running jobs continue",
    "read": "let drivers here read the records of agents that are gone",
}


def add_arguments(action: Action, parser: Parser) -> None:
    """Add the options of an action."""
    if action == "read":
        parser.argument(
            "directory",
            type=Path,
            metavar="DIRECTORY",
            help="folder of the allocation: see --slot of join",
        )
        return
    if action == "join":
        add_token_arguments(parser)
        parser.flag("--no-run", help="join only; run it later")
        parser.flag(
            "--service",
            help="join, then install and start the service, which outlives this login",
        )
        parser.option(
            "--timeout",
            type=bounded_duration(SHORTEST_S, LONGEST_S),
            metavar="DURATION",
            help="give up if no driver admits this node within this time, like 2m; default: when "
            "the token expires",
        )
    if action in ("join", "install-service"):
        parser.flag(
            "--without-systemd", help="run the service without systemd, even where it is available"
        )
    if action == "install-service":
        parser.flag("--restart", help="restart a running agent; its jobs continue")
    if action == "run":
        parser.flag(
            "--wait-to-join",
            help="if this machine has not joined a cluster, wait until it has, instead of exiting; "
            "for services",
        )
    if action in ("join", "run"):
        _running_options(parser)
    if action == "drain":
        _drain_options(parser)
    if action == "offer":
        _offer_options(parser)
    parser.option("--name", metavar="NAME", help="name of this node; default: the host's name")
    parser.option(
        "--state-dir",
        type=Path,
        metavar="DIRECTORY",
        completes="file",
        help="where its id, keys and jobs are stored",
    )


def _running_options(parser: Parser) -> None:
    parser.repeatable(
        "--listen",
        metavar="IP",
        help="address of this machine to listen on; repeatable; default: all",
    )
    parser.repeatable(
        "--address",
        metavar="HOST[:PORT]",
        help="address at which others reach this node, if no interface has it: in a container or "
        "over a VPN; repeatable",
    )
    parser.option(
        "--slot",
        type=Path,
        metavar="DIRECTORY/NAME",
        completes="file",
        help="folder of this agent in a scheduler's allocation, for its state and address; the "
        "agent takes its name from it, listens on a free port, and ends its jobs when it is told "
        "to end",
    )
    parser.option(
        "--idle",
        type=typed(parse_duration),
        metavar="DURATION",
        help="with --slot: end once no agent of the allocation has had a job for this long, "
        "like 2m; default: run until told to end",
    )
    parser.option(
        "--port",
        type=bounded_int(1, LAST_PORT),
        metavar="PORT",
        help=f"port to listen on; default: {DEFAULT_PORT}",
    )
    parser.repeatable(
        "--link-capacity",
        metavar="IFACE=RATE",
        help="capacity of a link, like eth1=1gbit; default: measured",
    )
    parser.repeatable(
        "--root",
        metavar="NAME=PATH",
        help="folder of large files that mntrain push and pull use, like models=/data/models; "
        "repeatable; default: models and data in its state directory",
    )
    parser.option(
        "--python",
        metavar="FILE",
        completes="file",
        help="Python interpreter of the ranks; default: this one",
    )


def _drain_options(parser: Parser) -> None:
    parser.flag("--now", help="end the running jobs, too")
    parser.option(
        "--until",
        metavar="TIME",
        help="take jobs again at this time, like 18:00, or after a while, like 2h; default: after "
        "mntrain agent resume",
    )
    parser.option(
        "--reason", metavar="TEXT", default="", help="reason, shown to those who use the node"
    )
    parser.flag("--off", help="the same as mntrain agent resume")


def _offer_options(parser: Parser) -> None:
    parser.option(
        "--hours",
        metavar="TIMES",
        help='when jobs may start, like "Mon-Fri 19:00-07:00, Sat-Sun 00:00-24:00", in this '
        "machine's local time, or always",
    )
    parser.flag(
        "--strict", help="end jobs that still run when the hours end; default: they continue"
    )
    parser.option("--gpus", metavar="LIST", help="GPUs by id, like 0,1; or all, or none")
    parser.option(
        "--memory", metavar="SIZE", help="memory of each of these GPUs, like 20GiB, or all"
    )
    parser.flag("--all", "-a", help="offer everything at all times again")
