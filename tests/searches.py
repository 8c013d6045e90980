"""Random searches and combinations: short by default, long on request."""

from __future__ import annotations

import os

ALL_CASES = "MNTRAIN_ALL_CASES"


def runs_all() -> bool:
    return ALL_CASES in os.environ


def count(short: int, long: int) -> int:
    """Of random cases."""
    return long if runs_all() else short
