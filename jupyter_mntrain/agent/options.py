"""Agent options: parses and checks the command line of ``mntrain agent``."""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import socket
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from jupyter_mntrain.agent.daemon.owner import Asked, read_asked
from jupyter_mntrain.agent.machine.links.link_book import parse_link_capacity
from jupyter_mntrain.agent.membership.state import Settings, find, nodes_directory, own_state
from jupyter_mntrain.agent.membership.state_directory import NODE_NAME_LIMIT, checked_name
from jupyter_mntrain.command_line.agent import ACTIONS, DESCRIPTION, PROGRAM, Action, add_arguments
from jupyter_mntrain.command_line.parser import Parser, check_choice, menu_parser, output_options
from jupyter_mntrain.command_line.token_input import read_token_text
from jupyter_mntrain.launch.files.names import parse_root
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import HUB_USER_VARIABLE
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.node import Capacity
from jupyter_mntrain.model.whereabouts import current_folder
from jupyter_mntrain.trust.joining.token import Token, read_token

T = TypeVar("T")


class Options(Record, frozen=True):
    """Options with which an agent is started.

    Args:
        state: directory of the node's id, keys and jobs.
        is_slot: whether that is its place in an allocation, with which it ends.
        idle_s: with which it also ends after so long without a job.
        token: the invitation to join with; read from standard input or a file.
        stays: whether it keeps running after it has joined.
        waits_to_join: whether it waits, instead of ending, where it has not joined.
        is_service: whether it is installed as a service then.
        without_systemd: whether that service is no business of systemd.
        is_restarted: whether an agent that runs is restarted.
        patience_s: how long it waits to be admitted; default: as long as the token is valid.
        owner: what the owner says about offering this machine, if that is the action.
    """

    action: Action
    state: Path
    settings: Settings
    is_slot: bool = False
    idle_s: float | None = None
    token: Token | None = None
    stays: bool = True
    waits_to_join: bool = False
    is_service: bool = False
    without_systemd: bool = False
    is_restarted: bool = False
    patience_s: float | None = None
    wants_json: bool = False
    owner: Asked | None = None

    @property
    def capacities(self) -> dict[str, Capacity]:
        """Link capacities by interface name."""
        return dict(parse_link_capacity(text) for text in self.settings.link_capacities)


def parse_options(argv: Sequence[str]) -> Options:
    """Parse the command line of ``python -m jupyter_mntrain.agent``.

    Raises:
        SpecError: an option is invalid.
        TrustError: the token is malformed.
        HelpWanted: ``--help`` was among the words.
    """
    args = menu_parser(PROGRAM, DESCRIPTION, {"actions": ACTIONS}, "action").parse(
        argv, argparse.Namespace()
    )
    action = check_choice(args.choice, ACTIONS, PROGRAM, "action")
    parser = Parser(f"{PROGRAM} {action}", ACTIONS[action])
    add_arguments(action, parser)
    output_options(parser)
    args = parser.parse(args.rest, args)
    if action == "read":
        return Options(
            action=action,
            state=current_folder() / args.directory,
            settings=Settings(name=_own_name(), python=sys.executable),
            wants_json=args.json,
        )
    slot: Path | None = getattr(args, "slot", None)
    if slot is None and getattr(args, "idle", None) is not None:
        raise SpecError("--idle is for agents in an allocation", fix="use it with --slot")
    if slot is not None:
        _refuse_with_slot(args)
        args.name, args.state_dir = (current_folder() / slot).name, slot
    name = args.name and checked_name("node name", args.name, NODE_NAME_LIMIT)
    state = current_folder() / (args.state_dir or _state(name))
    settings = _settings(args, name, state)
    for text in settings.link_capacities:
        parse_link_capacity(text)
    for text in settings.roots:
        parse_root(text)
    return Options(
        action=action,
        state=state,
        is_slot=slot is not None,
        idle_s=getattr(args, "idle", None),
        settings=settings,
        token=_token(read_token_text(args, parser.prog)) if _wants_token(action, args) else None,
        stays=not (getattr(args, "no_run", False) or getattr(args, "service", False)),
        waits_to_join=getattr(args, "wait_to_join", False),
        is_service=getattr(args, "service", False),
        without_systemd=getattr(args, "without_systemd", False),
        is_restarted=getattr(args, "restart", False),
        patience_s=getattr(args, "timeout", None),
        wants_json=args.json,
        owner=read_asked(action, args),
    )


def _refuse_with_slot(args: argparse.Namespace) -> None:
    if args.name or args.state_dir:
        raise SpecError(
            "--slot gives the node its name and its state directory",
            fix="omit --name and --state-dir",
        )


def _wants_token(action: Action, args: argparse.Namespace) -> bool:
    """Return whether a token is needed. A restarted slot is a member already, and its token may be
    gone.
    """
    if action != "join":
        return False
    is_back = args.slot is not None and find(args.slot) is not None
    return not (is_back and args.token_file is not None and not args.token_file.exists())


def _token(text: str) -> Token:
    token = read_token(text)
    if token.role != "node":
        raise SpecError(
            "this token is for a driver: another notebook machine",
            fix="use it with mntrain driver join; invite nodes with mntrain invite",
        )
    return token


def _state(name: str | None) -> Path:
    return nodes_directory() / name if name else own_state(_own_name())


def _settings(arguments: argparse.Namespace, name: str | None, state: Path) -> Settings:
    """Return settings from the options, else from when this node joined, else the defaults."""
    membership = find(state)
    usual = Settings(name=name or _own_name(), python=sys.executable)
    kept = membership.settings if membership else usual

    def told(option: str, before: T) -> T:
        value = getattr(arguments, option, None)
        return before if value is None else value

    # A slot's port is free on the machine that has it now.
    port = told("port", 0 if getattr(arguments, "slot", None) else kept.port)
    listen: Any = told("listen", None)
    addresses: Any = told("address", None)
    return Settings(
        name=name or kept.name,
        listen=_unique(map(_own_address, listen)) if listen else kept.listen,
        advertised=_unique(_reached_at(a, port) for a in addresses)
        if addresses
        else kept.advertised,
        port=port,
        link_capacities=tuple(told("link_capacity", ()) or kept.link_capacities),
        roots=tuple(told("root", ()) or kept.roots),
        python=told("python", kept.python),
    )


def _own_name() -> str:
    """Return the host's name, without characters that are invalid in a node name. On a JupyterHub
    it includes the user's name: several users may have nodes on one machine, all in clusters called
    default.
    """
    host, person = socket.gethostname(), os.environ.get(HUB_USER_VARIABLE, "")
    own = f"{host}-{person}" if person and person not in host else host
    name = re.sub(r"[^A-Za-z0-9._-]", "-", own)[:NODE_NAME_LIMIT]
    return name.strip("-._") or "node"


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _own_address(text: str) -> str:
    """Check an address to listen on."""
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
    """Check ``host:port`` to advertise."""
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
