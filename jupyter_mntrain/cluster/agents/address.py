"""Agent addresses: parses ``host[:port]``, and refuses addresses where no node can be."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from urllib.parse import urlsplit

import psutil

from jupyter_mntrain.model.api import DEFAULT_PORT
from jupyter_mntrain.model.errors import SpecError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_PRIVATE = (
    *map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")),  # RFC 1918
    ip_network("100.64.0.0/10"),  # RFC 6598: carriers, and overlays such as Tailscale
    ip_network("fc00::/7"),  # RFC 4193
    *map(ip_network, ("127.0.0.0/8", "::1/128")),
)
FIRST_PORT = 1024
"""Lower ones are the system's: an agent has one only if somebody gave it that."""

MOST_CHARACTERS, MOST_OF_A_LABEL = 253, 63
"""Limits of a host name and its labels (RFC 1035 §2.3.4)."""


def parse_address(text: str) -> str:
    """Normalize an address to ``host:port``, with the default port; IPv6 as ``[::1]:8765``.

    Raises:
        SpecError: it is not an address.
    """
    try:
        parts = urlsplit(f"//{text.strip()}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _not_an_address(text) from error
    has_rest = parts.path or parts.query or parts.fragment or parts.username is not None
    if not host or has_rest or port == 0 or not _can_be_asked(host):
        raise _not_an_address(text)
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{DEFAULT_PORT if port is None else port}"


def host_of(address: str) -> str:
    """Return the host of ``host:port``, without brackets."""
    return urlsplit(f"//{address}").hostname or address


def refuse_elsewhere(text: str, networks: Iterable[Network]) -> None:
    """Refuse an address that looks unlike a node's: a privileged port, or a host that is neither
    in a private network nor in one of this machine's networks.

    Args:
        networks: of this machine, see :func:`own_networks`.

    Raises:
        SpecError: it is, or it is not an address. A name that is not known is not refused.
    """
    parts = urlsplit(f"//{parse_address(text)}")
    host, port = parts.hostname or "", parts.port or DEFAULT_PORT
    known = (*_PRIVATE, *networks)
    fix = "if a node is there, add it in a terminal: mntrain add HOST:PORT"
    if port < FIRST_PORT:
        raise SpecError(f"port {port} is one of the system's services, not an agent's", fix=fix)
    for address in _addresses(host):
        if not any(address in network for network in known):
            cause = f"{host} ({address}) is in no private network, nor in one of this machine"
            raise SpecError(cause, fix=fix)


def own_networks() -> tuple[Network, ...]:
    """Return the networks of this machine's interfaces."""
    return tuple(
        ip_network(f"{one.address.partition('%')[0]}/{_prefix(one.netmask)}", strict=False)
        for addresses in psutil.net_if_addrs().values()
        for one in addresses
        if one.family in (socket.AF_INET, socket.AF_INET6) and one.netmask
    )


def _prefix(netmask: str) -> int:
    return int(ip_address(netmask)).bit_count()


def _addresses(host: str) -> set[Address]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()  # whoever dials it says so
    addresses = {ip_address(str(one[4][0]).partition("%")[0]) for one in found}
    return {getattr(one, "ipv4_mapped", None) or one for one in addresses}


def _can_be_asked(host: str) -> bool:
    """Whether a resolver accepts the name: printable, and short enough in its DNS encoding."""
    if not host.isprintable() or any(c.isspace() for c in host) or len(host) > MOST_CHARACTERS:
        return False
    try:
        host.encode("idna")
    except UnicodeError:
        # The resolver itself refuses empty labels, as in "..", with a clear message.
        return host.isascii() and all(len(label) <= MOST_OF_A_LABEL for label in host.split("."))
    return True


def _not_an_address(text: str) -> SpecError:
    return SpecError(f"{text!r} is not an address", fix="write it as HOST or HOST:PORT")
