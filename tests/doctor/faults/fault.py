"""A fault that is made on a healthy node, and the check that must name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jupyter_mntrain.doctor.check import Case, Level


class Fault(NamedTuple):
    """A fault of the second node, muthur.

    Args:
        check: the one that must name it, and no other.
        made: what was done to it, for the page.
    """

    check: str
    made: str
    level: Level
    make: Callable[[Case], Case]
