"""Serving address: the URL in the progress of a job that serves a model. Pure."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

from jupyter_mntrain.model.records.job import TRAINER

SERVER: Final = f"{TRAINER}.answering.serving"
"""Module that a serving job runs."""

_URL: Final = re.compile(r"http://(\[[^ \]]*\]|[^ :/\[]+)(:[^ ]+)")


NO_TEMPLATE: Final = "no chat template: completions only"


def served_at(address: str, port: int, *, has_template: bool = True) -> str:
    """Return the progress text of a job that serves."""
    said = f"serving at http://{_host(address)}:{port}/v1"
    return said if has_template else f"{said} ({NO_TEMPLATE})"


def address_in(progress: str, node_address: str) -> str | None:
    """Return the URL in a job's progress; ``None`` if it does not serve yet.

    Args:
        node_address: stands in for 0.0.0.0 and ::, at which nobody can call.
    """
    found = _URL.search(progress)
    if found is None:
        return None
    host, rest = found.groups()
    return f"http://{_host(node_address) if _is_every(host) else host}{rest}"


def _host(address: str) -> str:
    """Return an address as it is written in a URL."""
    return f"[{address}]" if ":" in address else address


def _is_every(host: str) -> bool:
    """Whether a URL's host means all addresses of the machine."""
    try:
        return ip_address(host.strip("[]")).is_unspecified
    except ValueError:  # a name
        return False
