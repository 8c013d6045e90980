"""A kernel's view of network interfaces, made by tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

ETHERNET, LOOPBACK, NONE = "1", "772", "65534"


@pytest.fixture
def sysfs(tmp_path: Path) -> Callable[..., Path]:
    """Adds an interface; returns where all of them are."""

    def add(
        name: str, kind: str = ETHERNET, *, marks: tuple[str, ...] = (), devtype: str = ""
    ) -> Path:
        device = tmp_path / "class" / "net" / name
        device.mkdir(parents=True)
        (device / "type").write_text(f"{kind}\n")
        (device / "uevent").write_text(f"DEVTYPE={devtype}\n" if devtype else "IFINDEX=2\n")
        for mark in marks:
            (device / mark).mkdir(parents=True)
        return tmp_path

    return add
