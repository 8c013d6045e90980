"""Whereabouts: who runs this process, and in which folder, also where the system cannot say."""

from __future__ import annotations

import getpass
import os
from pathlib import Path


def user_name() -> str:
    """The user's name; ``uid-1000620000`` where that number has none, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # before Python 3.13, and from there on
        return f"uid-{os.getuid()}"


def current_folder() -> Path:
    """Where this process is; where it was, if that has been deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.environ.get("PWD") or "/")
