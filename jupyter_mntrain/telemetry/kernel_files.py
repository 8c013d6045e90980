"""Kernel files: reads the small ones below ``/proc`` and ``/sys``."""

from __future__ import annotations

from pathlib import Path


def kernel_text(path: Path) -> str:
    """Its text without white space around it; empty if it is not there, or cannot be read now."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # also the carrier of an interface that is down, and an empty GID's type
        return ""
