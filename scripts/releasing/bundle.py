"""Bundle: the extension names no foreign host, and NOTICE has the licenses of what it includes."""

from __future__ import annotations

import json
import re
from pathlib import Path

from scripts.releasing.refusal import Refusal

NAMESPACES = frozenset({"www.w3.org"})
"""Names of XML, which nothing is loaded from."""

_HOST = re.compile(rb"""(?:https?:|wss?:|["'`(])//([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)""")


def hosts(folder: Path) -> dict[str, set[str]]:
    """Hosts that files of a folder name, each with the files."""
    found: dict[str, set[str]] = {}
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        if path.name == "third-party-licenses.json":
            continue
        for host in _HOST.findall(path.read_bytes()):
            found.setdefault(host.decode(), set()).add(path.name)
    return found


def check_hosts(folder: Path) -> None:
    """Refuse files that name a host which the page could ask for something."""
    foreign = {host: files for host, files in hosts(folder).items() if host not in NAMESPACES}
    if foreign:
        told = ", ".join(f"{host} in {min(files)}" for host, files in sorted(foreign.items()))
        raise Refusal(f"the extension names foreign hosts: {told}. Fix: bundle what it loads there")


def check_notice(notice: str, third_party: Path) -> None:
    """Refuse a NOTICE that lacks the license of something in the bundle."""
    words = " ".join(notice.split())
    lacking = [
        one["name"]
        for one in json.loads(third_party.read_text())["packages"]
        if f"* {one['name']}: " not in notice or " ".join(one["extractedText"].split()) not in words
    ]
    if lacking:
        raise Refusal(
            f"NOTICE lacks the license of {', '.join(lacking)}. Fix: copy it from "
            f"{third_party.name}"
        )
