"""The command line of ``mntrain agent``: its actions and what each takes, light enough for both."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from jupyter_mntrain.command_line.parser import Parser, bounded_int
from jupyter_mntrain.model.api import DEFAULT_PORT, LAST_PORT

PROGRAM = "mntrain agent"
DESCRIPTION = "Run this machine as a node of a cluster."
Action = Literal["join", "run", "leave", "install-service", "remove-service"]
ACTIONS: dict[Action, str] = {
    "join": "join a cluster with a token from mntrain invite, then run",
    "run": "run as a node of the cluster that was joined",
    "leave": "forget the cluster",
    "install-service": "start it at boot with systemd; running jobs survive restarts",
    "remove-service": "remove that service; running jobs continue",
}


def add_arguments(action: Action, parser: Parser) -> None:
    """What an action takes."""
    if action == "join":
        parser.argument("token", metavar="TOKEN", help="from: mntrain invite")
        parser.option("--no-run", action="store_true", help="join, and run later")
    if action in ("join", "run"):
        _running_options(parser)
    parser.option("--name", metavar="NAME", help="name of this node (the host's)")
    parser.option(
        "--state-dir",
        type=Path,
        metavar="DIRECTORY",
        completes="file",
        help="where its id, keys and jobs are kept",
    )


def _running_options(parser: Parser) -> None:
    parser.option(
        "--listen",
        action="append",
        metavar="IP",
        help="own address to listen on, repeatable; default: all",
    )
    parser.option(
        "--address",
        action="append",
        metavar="HOST[:PORT]",
        help="how others reach this node, where its own interfaces do not say: in a container, "
        "over a VPN; repeatable",
    )
    parser.option(
        "--port",
        type=bounded_int(1, LAST_PORT),
        metavar="PORT",
        help=f"port to listen on ({DEFAULT_PORT})",
    )
    parser.option(
        "--link-capacity",
        action="append",
        metavar="IFACE=RATE",
        help="a link's capacity, like eth1=1gbit; measured if omitted",
    )
    parser.option(
        "--python", metavar="FILE", completes="file", help="interpreter of the ranks (this one)"
    )
