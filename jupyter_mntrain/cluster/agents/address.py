"""Agent addresses: parses ``host[:port]``."""

from __future__ import annotations

from urllib.parse import urlsplit

from jupyter_mntrain.model.api import DEFAULT_PORT
from jupyter_mntrain.model.errors import SpecError

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
    """The host of ``host:port``, without brackets."""
    return urlsplit(f"//{address}").hostname or address


def _can_be_asked(host: str) -> bool:
    """Whether a resolver accepts it: printable, and short enough in its DNS encoding, too."""
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
