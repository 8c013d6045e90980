"""The daemon's command line, checked: whatever is wrong with it is one line."""

from __future__ import annotations

import argparse
import ipaddress
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import platformdirs

from jupyter_mntrain.agent.capacities import parse_link_capacity
from jupyter_mntrain.agent.identity import CLUSTER_NAME_LIMIT, NODE_NAME_LIMIT, checked_name
from jupyter_mntrain.agent.ports import LAST_PORT
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import DEFAULT_CLUSTER, DEFAULT_PORT
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.node import Capacity

PROGRAM = "mntrain agent run"


class Options(Record, frozen=True):
    """What an agent is told at its start.

    Args:
        bound: IPv4 addresses to listen on, exactly these.
        state: directory of the node's id and jobs.
        capacities: by interface name.
        python: interpreter that ranks run under.
    """

    cluster: str
    name: str
    bound: tuple[str, ...]
    port: int
    state: Path
    capacities: dict[str, Capacity]
    python: str


def parse_options(argv: Sequence[str]) -> Options:
    """Raises SpecError for anything that cannot work."""
    arguments = _parser().parse_args(argv)
    name = checked_name("node name", arguments.name, NODE_NAME_LIMIT)
    if not 0 < arguments.port <= LAST_PORT:
        raise SpecError(f"--port {arguments.port} is no port", fix=f"use 1 to {LAST_PORT}")
    state = arguments.state_dir or platformdirs.user_state_path("mntrain") / "nodes" / name
    return Options(
        cluster=checked_name("cluster name", arguments.cluster, CLUSTER_NAME_LIMIT),
        name=name,
        bound=tuple(dict.fromkeys(_address(text) for text in arguments.address or ["127.0.0.1"])),
        port=arguments.port,
        state=state.absolute(),
        capacities=dict(parse_link_capacity(text) for text in arguments.link_capacity),
        python=arguments.python,
    )


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SpecError(message, fix=f"see {PROGRAM} --help")


def _parser() -> argparse.ArgumentParser:
    p = _OneLineParser(
        prog=PROGRAM,
        description="Offer this machine to a cluster. Until agents authenticate, whoever reaches "
        "the port can run programs as you: it listens on loopback, or where --address says.",
    )
    p.add_argument("--cluster", default=DEFAULT_CLUSTER, help="name of the cluster to join")
    p.add_argument("--name", default=_own_name(), help="name of this node (%(default)s)")
    p.add_argument(
        "--address",
        action="append",
        metavar="IP",
        help="address to listen on, repeatable; default: loopback only",
    )
    p.add_argument("--port", type=int, default=DEFAULT_PORT, help="(%(default)s)")
    p.add_argument("--state-dir", type=Path, help="where the node's id and jobs are kept")
    p.add_argument(
        "--link-capacity",
        action="append",
        default=[],
        metavar="IFACE=RATE",
        help="what a link carries, like eth1=1gbit; otherwise it is measured",
    )
    p.add_argument("--python", default=sys.executable, help="interpreter that ranks run under")
    return p


def _own_name() -> str:
    """The host's own name, without what cannot stand in a node's."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:NODE_NAME_LIMIT]
    return name.strip("-._") or "node"


def _address(text: str) -> str:
    """An address other machines could connect to as it stands.

    Others are told exactly these addresses, so "every address" would tell them nothing.
    """
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        raise SpecError(
            f"--address {text} is no IPv4 address", fix="give this machine's own, like 192.168.1.11"
        ) from None
    if address.is_unspecified or address.is_multicast:
        raise SpecError(
            f"--address {text} is not one machine's address",
            fix="give each address to listen on with an --address of its own",
        )
    return str(address)
