"""Requirements: tries whether this machine can make a lab."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Callable

TOOLS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "iptables": "iptables",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}
"""Command → Debian package."""

_TRIAL = "{trial}"
TRIALS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("network namespaces", ("ip", "netns", "add", _TRIAL)),
    ("veth", ("ip", "-n", _TRIAL, "link", "add", "one", "type", "veth")),
    ("bridge", ("ip", "-n", _TRIAL, "link", "add", "two", "type", "bridge")),
    (
        "tbf shaping",
        (
            *("tc", "-n", _TRIAL, "qdisc", "add", "dev", "one", "root", "tbf"),
            *("rate", "1mbit", "burst", "16kb", "latency", "50ms"),
        ),
    ),
    (
        "pid, uts and mount namespaces",
        ("unshare", "--uts", "--pid", "--fork", "--mount", "--mount-proc", "true"),
    ),
)
"""Kernel feature → what needs it. Features are built in or absent; each is simply used once."""


def missing(
    *,
    euid: int | None = None,
    which: Callable[[str], str | None] = shutil.which,
) -> str | None:
    """Why no lab can be made here, in one line with the fix; ``None`` if one can."""
    without = missing_tools(euid=euid, which=which)
    return without or _missing_feature()


def missing_tools(
    *,
    euid: int | None = None,
    which: Callable[[str], str | None] = shutil.which,
) -> str | None:
    """As :func:`missing`, but asks nothing of the kernel."""
    if (os.geteuid() if euid is None else euid) != 0:
        return "not root, who alone makes network namespaces. Fix: run it as root"
    absent = [tool for tool in TOOLS if which(tool) is None]
    if absent:
        packages = " ".join(sorted({TOOLS[tool] for tool in absent}))
        return f"no {', '.join(absent)} here. Fix: apt-get install {packages}"
    return None


def _missing_feature() -> str | None:
    trial = f"mntrial-{secrets.token_hex(4)}"
    try:
        for feature, command in TRIALS:
            words = [word.replace(_TRIAL, trial) for word in command]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                said = " ".join(done.stderr.split())
                return f"this kernel or container gives no {feature}: {said}"
    finally:
        subprocess.run(["ip", "netns", "del", trial], capture_output=True, check=False)
    return None
