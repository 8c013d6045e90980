"""Addresses of the project in its packages: those of the repository that a package is built from.

Hatchling loads this file by its path. A checkout without a remote repository on the web gives a
package without addresses, rather than ones that nobody can open.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hatchling.metadata.plugin.interface import MetadataHookInterface


class ProjectUrls(MetadataHookInterface):
    """Adds ``urls`` to the metadata."""

    PLUGIN_NAME = "project-urls"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the addresses, if the checkout has some."""
        web = web_address(origin(Path(self.root)))
        if web:
            metadata["urls"] = {
                "Source": web,
                "Documentation": f"{web}/tree/HEAD/docs",
                "Changelog": f"{web}/blob/HEAD/CHANGELOG.md",
                "Issues": f"{web}/issues",
            }


def origin(root: Path) -> str:
    """Where a checkout came from; empty if git knows no such place, or is not installed."""
    if not (root / ".git").exists():  # unpacked, perhaps within another project's checkout
        return ""
    command = ["git", "config", "--get", "remote.origin.url"]
    try:
        told = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return told.stdout.strip()


def web_address(remote: str) -> str:
    """The page of a remote repository; empty for a folder, or a machine without a domain.

    >>> web_address("git@example.org:team/project.git")
    'https://example.org/team/project'
    """
    if "://" not in remote:
        user_and_host, colon, path = remote.partition(":")
        remote = f"ssh://{user_and_host}/{path}" if colon else ""
    parts = urlsplit(remote)
    try:
        number = parts.port
    except ValueError:
        return ""
    host, path = parts.hostname or "", parts.path.strip("/").removesuffix(".git")
    if "." not in host or not path:
        return ""
    # Without the user, who may have a password.
    if parts.scheme in {"http", "https"}:
        port = f":{number}" if number else ""
        return f"{parts.scheme}://{host}{port}/{path}"
    return f"https://{host}/{path}" if parts.scheme in {"ssh", "git"} else ""
