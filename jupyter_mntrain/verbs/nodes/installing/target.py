"""SshTarget: a machine as ssh takes it, ``user@host:port``."""

from __future__ import annotations

import re

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import LAST_PORT
from jupyter_mntrain.model.errors import SpecError

_TARGET = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_.][A-Za-z0-9_.@+-]*)@)?"
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+[A-Za-z0-9]*)\]|(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]*))"
    r"(?::(?P<port>\d{1,5}))?"
)
"""A leading ``-`` would be an option of ssh, and blanks or quotes are in no host's name."""


class SshTarget(Record, frozen=True):
    """A machine to log in to.

    Args:
        host: its name, its address, or an alias in the user's ``~/.ssh/config``.
        user: default: what ssh's configuration says.
        port: of its ssh server; default: what ssh's configuration says.
    """

    host: str
    user: str | None = None
    port: int | None = None

    @property
    def destination(self) -> str:
        """``user@host``, as ssh takes it."""
        return f"{self.user}@{self.host}" if self.user else self.host

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        return f"{user}{host}:{self.port}" if self.port else f"{user}{host}"


def parse_target(text: str) -> SshTarget:
    """Read ``[user@]host[:port]``.

    Raises:
        SpecError: it is malformed.
    """
    found = _TARGET.fullmatch(text)
    port = int(found["port"]) if found and found["port"] else None
    if found is None or (port is not None and not 1 <= port <= LAST_PORT):
        raise SpecError(
            f"{text!r} is not a machine that ssh can log in to",
            fix="write user@host or user@host:port; other options belong in ~/.ssh/config",
        )
    return SshTarget(host=found["ipv6"] or found["host"], user=found["user"], port=port)
