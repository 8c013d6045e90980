"""Systems: the operating systems on which drivers and nodes can run."""

from __future__ import annotations

import sys
from typing import Final

from jupyter_mntrain.model.errors import SpecError

NODE_SYSTEM: Final = "linux"
NO_DRIVER: Final = frozenset({"win32", "cygwin"})
NAMES: Final = {"win32": "Windows", "cygwin": "Windows", "darwin": "macOS"}

IN_LINUX: Final = "use a Linux machine; on Windows, install it within WSL2: wsl --install"


def check_driver_system(system: str | None = None) -> None:
    """Refuse operating systems on which mntrain cannot run at all.

    Args:
        system: as ``sys.platform`` names it; default: this one.

    Raises:
        SpecError: nothing runs there; the fix says where it does.
    """
    system = system or sys.platform
    if system in NO_DRIVER:
        raise SpecError("mntrain does not run directly on Windows", fix=IN_LINUX)


def check_node_system(system: str | None = None) -> None:
    """Refuse systems that cannot be nodes: an agent depends on the Linux kernel.

    Raises:
        SpecError: it cannot be a node; it may be a driver.
    """
    system = system or sys.platform
    check_driver_system(system)
    if system != NODE_SYSTEM:
        name = NAMES.get(system, system)
        raise SpecError(
            f"a node needs Linux, and this is {name}",
            fix="use Linux machines as nodes; add them from here with: mntrain install USER@HOST",
        )
