"""Serving address: how a job that serves a model says where, in its progress. Pure."""

from __future__ import annotations

import re
from typing import Final

from jupyter_mntrain.model.records.job import TRAINER

SERVER: Final = f"{TRAINER}.answering.serving"
"""Module that a serving job runs."""

_URL: Final = re.compile(r"http://[^ ]+")


def served_at(address: str, port: int) -> str:
    """The progress of a job that serves."""
    host = f"[{address}]" if ":" in address else address
    return f"serving at http://{host}:{port}/v1"


def address_in(progress: str, node_address: str) -> str | None:
    """The URL in a job's progress; ``None`` if it does not serve yet.

    Args:
        node_address: stands in for 0.0.0.0, at which nobody can call.
    """
    found = _URL.search(progress)
    return found and found[0].replace("//0.0.0.0:", f"//{node_address}:")
