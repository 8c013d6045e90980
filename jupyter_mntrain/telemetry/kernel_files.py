"""Kernel files: reads small files below ``/proc`` and ``/sys``."""

from __future__ import annotations

from pathlib import Path


def kernel_text(path: Path) -> str:
    """Read a file, without surrounding white space; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # also the carrier of an interface that is down, and an empty GID's type
        return ""
