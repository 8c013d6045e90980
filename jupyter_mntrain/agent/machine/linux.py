"""Linux: what it provides under fixed paths."""

from __future__ import annotations

from pathlib import Path

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - not a temporary file
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the id of this boot. A pid recorded under another boot id is meaningless."""
    return _BOOT_ID.read_text().strip()
