"""The daemon's command lines, checked: whatever is wrong with one is one line."""

from __future__ import annotations

import argparse
import ipaddress
import re
import socket
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args
from urllib.parse import urlsplit

from jupyter_mntrain.agent.machine.capacities import parse_link_capacity
from jupyter_mntrain.agent.machine.ports import LAST_PORT
from jupyter_mntrain.agent.membership.addresses import Reach
from jupyter_mntrain.agent.membership.node_id import NODE_NAME_LIMIT, checked_name
from jupyter_mntrain.agent.membership.state import Settings, find, nodes_directory, own_state
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import DEFAULT_PORT
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.node import Capacity
from jupyter_mntrain.trust.joining.token import Token, read_token

PROGRAM = "mntrain agent"
Action = Literal["join", "run", "leave", "install-service", "remove-service"]
T = TypeVar("T")


class Options(Record, frozen=True):
    """What an agent is told at its start.

    Args:
        state: directory of the node's id, keys and jobs.
        token: the invitation to join with.
        stays: whether it goes on running once it has joined.
    """

    action: Action
    state: Path
    settings: Settings
    token: Token | None = None
    stays: bool = True

    @property
    def reach(self) -> Reach:
        told = self.settings
        return Reach(listen=told.listen, advertised=told.advertised, port=told.port)

    @property
    def capacities(self) -> dict[str, Capacity]:
        """By interface name."""
        return dict(parse_link_capacity(text) for text in self.settings.link_capacities)


def parse_options(argv: Sequence[str]) -> Options:
    """Raises SpecError for anything that cannot work, TrustError for what is no token."""
    words = list(argv)
    if not words or (words[0] not in get_args(Action) and words[0] not in ("-h", "--help")):
        said = f"unknown action {words[0]!r}" if words else "missing action"
        raise SpecError(said, fix=f"use {PROGRAM} join TOKEN, {PROGRAM} run, or {PROGRAM} leave")
    arguments = _parser().parse_args(words)
    name = arguments.name and checked_name("node name", arguments.name, NODE_NAME_LIMIT)
    state = (arguments.state_dir or _state(name)).absolute()
    action: Action = arguments.action
    if action in ("leave", "install-service", "remove-service"):
        return Options(action=action, state=state, settings=_settings(arguments, name, state))
    settings = _settings(arguments, name, state)
    if not 0 < settings.port <= LAST_PORT:
        raise SpecError(f"--port {settings.port} is not a port", fix=f"use 1 to {LAST_PORT}")
    for text in settings.link_capacities:
        parse_link_capacity(text)
    if action == "run":
        return Options(action=action, state=state, settings=settings)
    token = read_token(arguments.token)
    if token.role != "node":
        raise SpecError(
            "this token is for a driver: another notebook machine",
            fix="use it with mntrain driver join TOKEN; invite nodes with mntrain invite",
        )
    stays = not arguments.no_run
    return Options(action=action, state=state, settings=settings, token=token, stays=stays)


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SpecError(message, fix=f"see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(prog=PROGRAM, description="Run this machine as a node of a cluster.")
    actions = parser.add_subparsers(dest="action", required=True)
    join = actions.add_parser("join", help="join with a token from: mntrain invite; then run")
    join.add_argument("token", metavar="TOKEN")
    join.add_argument("--no-run", action="store_true", help="join, and run later")
    run = actions.add_parser("run", help="run, as a node of the cluster that was joined")
    leave = actions.add_parser("leave", help="forget the cluster")
    install = actions.add_parser(
        "install-service", help="start it at boot with systemd; running jobs survive restarts"
    )
    remove = actions.add_parser("remove-service", help="remove that service; running jobs continue")
    for one in (join, run):
        _running_options(one)
    for one in (join, run, leave, install, remove):
        one.add_argument("--name", help=f"name of this node ({_own_name()})")
        one.add_argument("--state-dir", type=Path, help="where its id, keys and jobs are kept")
    return parser


def _running_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        action="append",
        metavar="IP",
        help="own address to listen on, repeatable; default: all",
    )
    parser.add_argument(
        "--address",
        action="append",
        metavar="HOST[:PORT]",
        help="how others reach this node, where its own interfaces do not say: in a container, "
        "over a VPN; repeatable",
    )
    parser.add_argument("--port", type=int, help=f"({DEFAULT_PORT})")
    parser.add_argument(
        "--link-capacity",
        action="append",
        metavar="IFACE=RATE",
        help="a link's capacity, like eth1=1gbit; measured if omitted",
    )
    parser.add_argument("--python", help="interpreter that ranks run under (this one)")


def _state(name: str | None) -> Path:
    return nodes_directory() / name if name else own_state(_own_name())


def _settings(arguments: argparse.Namespace, name: str | None, state: Path) -> Settings:
    """What is told now, or else was when this node joined, or else is usual."""
    membership = find(state)
    kept = membership.settings if membership else _usual(name)

    def told(option: str, before: T) -> T:
        value = getattr(arguments, option, None)
        return before if value is None else value

    port = told("port", kept.port)
    listen: Any = told("listen", None)
    addresses: Any = told("address", None)
    return Settings(
        name=name or kept.name,
        listen=_unique(map(_own_address, listen)) if listen else kept.listen,
        advertised=_unique(_reached_at(a, port) for a in addresses)
        if addresses
        else kept.advertised,
        port=port,
        link_capacities=tuple(told("link_capacity", kept.link_capacities)),
        python=told("python", kept.python),
    )


def _usual(name: str | None) -> Settings:
    return Settings(
        name=name or _own_name(),
        listen=(),
        advertised=(),
        port=DEFAULT_PORT,
        link_capacities=(),
        python=sys.executable,
    )


def _own_name() -> str:
    """The host's own name, without what cannot stand in a node's."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:NODE_NAME_LIMIT]
    return name.strip("-._") or "node"


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _own_address(text: str) -> str:
    """An address to listen on, exactly."""
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        raise SpecError(
            f"--listen {text} is not an IPv4 address",
            fix="give this machine's own, like 192.168.1.11",
        ) from None
    if address.is_unspecified or address.is_multicast:
        raise SpecError(
            f"--listen {text} is not the address of one machine",
            fix="omit it to listen on all addresses, or pass --listen once for each",
        )
    return str(address)


def _reached_at(text: str, port: int) -> str:
    """``host:port`` as others are told."""
    try:
        parts = urlsplit(f"//{text}")
        host, given = parts.hostname, parts.port
    except ValueError:
        host, given = None, None
    if not host or parts.path or parts.query or host in ("0.0.0.0", "::"):  # noqa: S104
        raise SpecError(
            f"--address {text} is not an address others can connect to",
            fix="use a HOST or HOST:PORT of this machine",
        )
    return f"{host}:{given or port}"
