"""Facts: what was found on a machine, and what the driver wants there."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import msgspec

from jupyter_mntrain import __version__
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.trust.certificates import fingerprint, load_certificate

_LIKE_OURS = ("torch", "transformers")
"""Packages of which all nodes need the same version, besides this one."""

_CERTIFICATE_END = "-----END CERTIFICATE-----\n"


class FoundMembership(Record, frozen=True):
    """The membership of a node on the machine.

    Args:
        state: its state directory.
        authority: its ``trusted.pem``.
    """

    state: str
    cluster: str
    name: str
    port: int
    python: str
    node_id: str
    authority: str

    @property
    def authority_fingerprint(self) -> bytes:
        """SHA-256 of its cluster's certificate."""
        end = self.authority.index(_CERTIFICATE_END) + len(_CERTIFICATE_END)
        return fingerprint(load_certificate(self.authority[:end]))


class FoundEnvironment(Record, frozen=True):
    """The packages of an interpreter.

    Args:
        ours: ``direct_url.json`` of the installed package, if it was not from an index.
        pip: whether it has pip.
    """

    version: tuple[int, int, int]
    packages: dict[str, str]
    ours: dict[str, Any]
    pip: bool

    @property
    def is_editable(self) -> bool:
        """Whether the package is an editable install, somebody's working copy."""
        return bool(self.ours.get("dir_info", {}).get("editable"))

    @property
    def digest(self) -> str | None:
        """SHA-256 of the wheel that the package was installed from, if known."""
        info = self.ours.get("archive_info", {})
        found = info.get("hashes", {}).get("sha256")
        return found or (info.get("hash") or "").removeprefix("sha256=") or None


class Facts(Record, frozen=True):
    """What was found on a machine.

    Args:
        python: that looked.
        venv: whether it can make environments.
        where: directory of the environment.
        used: interpreter of the environment, or the one that was given.
        free_port: for the agent of another node.
        listening: ports of its nodes at which something listens.
        jobs: ids of the jobs whose processes run there.
    """

    python: str
    version: tuple[int, int, int]
    venv: bool
    system: str
    hostname: str
    is_root: bool
    time_s: float
    where: str
    exists: bool
    free_bytes: int
    used: str
    environment: FoundEnvironment | None
    free_port: int
    memberships: tuple[FoundMembership, ...]
    listening: tuple[int, ...]
    jobs: tuple[str, ...]


class Wanted(Record, frozen=True):
    """What the driver has, and nodes should have, too.

    Args:
        python: major and minor version.
        packages: version by name, the package itself first.
        digest: of the driver's own wheel.
        cluster: its name.
        authority: SHA-256 of its certificate; ``None`` before the first invitation.
        is_given: whether the user named the environment's interpreter.
    """

    python: tuple[int, int]
    packages: dict[str, str]
    digest: str
    cluster: str
    authority: bytes | None
    is_given: bool = False


def driver_packages() -> dict[str, str]:
    """Return this driver's versions, without builds (``2.9.0+cpu``), which differ by machine."""
    found = {"jupyter-mntrain": __version__}
    for name in _LIKE_OURS:
        found[name] = metadata.version(name).partition("+")[0]
    return found


def driver_python() -> tuple[int, int]:
    """Return the major and minor version of this interpreter."""
    major, minor, _ = platform.python_version_tuple()
    return int(major), int(minor)


def needed_versions() -> dict[str, str]:
    """Return what a machine needs to be a node of this driver's clusters, by name."""
    return {**driver_packages(), "Python": ".".join(map(str, driver_python()))}


def read_facts(output: str, host: str) -> Facts:
    """Parse what the look printed; a login's own greeting may precede it.

    Raises:
        NodeError: it printed nothing that can be read.
    """
    try:
        return msgspec.json.decode(output.strip().splitlines()[-1], type=Facts)
    except (IndexError, msgspec.DecodeError):
        raise NodeError(
            "its answer cannot be parsed",
            kind=Kind.NOT_INSTALLED,
            fix="look for lines in its login scripts (.bashrc) that print or start something",
            node=host,
        ) from None
