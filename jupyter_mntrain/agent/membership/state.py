"""Membership: the stored cluster and agent settings of this node."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from jupyter_mntrain.launch.checkpoints.places import RUNS
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import DEFAULT_PORT
from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.model.files import private_directory, write_atomically
from jupyter_mntrain.model.records.node import Interface
from jupyter_mntrain.model.whereabouts import kept_folder
from jupyter_mntrain.plan.agent_hosts import is_loopback
from jupyter_mntrain.trust.credentials import OWN, TRUSTED, Credentials
from jupyter_mntrain.trust.joining.candidate import PENDING_KEY

EVERYWHERE = "0.0.0.0"  # noqa: S104 - every request shows a certificate of the cluster
LOOPBACK = "127.0.0.1"


class AddressSettings(Record, frozen=True):
    """Addresses that the user gave. The interfaces supply the rest.

    Args:
        listen: IPv4 addresses to listen on, exactly these; none = all.
        advertised: ``host:port`` at which others reach it, if no interface of this machine has
            that address: in a container, or over a VPN.
        port: to listen on.
    """

    listen: tuple[str, ...] = ()
    advertised: tuple[str, ...] = ()
    port: int = DEFAULT_PORT

    @property
    def bound(self) -> tuple[str, ...]:
        return self.listen or (EVERYWHERE,)

    def addresses(self, interfaces: Sequence[Interface]) -> tuple[str, ...]:
        """Return ``host:port`` of each address, the most likely to work first."""
        if self.advertised:
            return self.advertised
        hosts = self.listen or tuple(real_addresses(interfaces)) or (LOOPBACK,)
        return tuple(f"{host}:{self.port}" for host in hosts)

    def hosts(self, interfaces: Sequence[Interface]) -> tuple[str, ...]:
        return tuple(address.rpartition(":")[0] for address in self.addresses(interfaces))

    def is_local(self, interfaces: Sequence[Interface]) -> bool:
        """Whether only this machine can reach the agent."""
        return all(map(is_loopback, self.hosts(interfaces)))

    def announced_from(self, interfaces: Sequence[Interface]) -> tuple[str, ...]:
        """Return the addresses to announce from: every real interface that is up.

        An agent that listens on loopback only is announced on loopback only.
        """
        if self.listen and all(map(is_loopback, self.listen)):
            return (LOOPBACK,)
        return tuple(real_addresses(interfaces)) or (LOOPBACK,)


def real_addresses(interfaces: Sequence[Interface]) -> Iterator[str]:
    """Return the IPv4 addresses of all network cards that are up."""
    for interface in interfaces:
        if interface.is_up and interface.kind in ("ethernet", "wireless"):
            for cidr in interface.addresses:
                yield cidr.partition("/")[0]


FILE = "membership.json"
_FORGOTTEN = (OWN, TRUSTED, FILE, "trust_news.json", "node_id", "jobs", RUNS, PENDING_KEY)
"""Files moved aside when a node leaves: the next cluster's drivers must not read its jobs."""


class Settings(AddressSettings, frozen=True, kw_only=True):
    """Settings of an agent.

    Args:
        name: of this node.
        link_capacities: like ``eth1=1gbit``.
        python: interpreter that ranks run under.
        roots: folders of large files, like ``models=/data/models``.
    """

    name: str
    python: str
    link_capacities: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()


class Membership(Record, frozen=True):
    """Membership of one node in a cluster.

    Args:
        cluster: name of the cluster.
        hostname: of the machine on which it joined.
        settings: defaults of ``mntrain agent run``.
    """

    cluster: str
    hostname: str
    joined_s: float
    settings: Settings


def nodes_directory() -> Path:
    return kept_folder("state") / "nodes"


def own_state(name: str) -> Path:
    """Return the state directory of the node that runs on this machine.

    Args:
        name: the default; the node may have joined under another name.
    """
    usual = nodes_directory() / name
    if Credentials.exist(usual):
        return usual
    # A home directory may be shared: this node may be another machine's.
    ours = [
        path.parent
        for path in sorted(nodes_directory().glob(f"*/{OWN}"))
        if (found := find(path.parent)) and found.hostname == socket.gethostname()
    ]
    return ours[0] if len(ours) == 1 else usual


def find(state: Path) -> Membership | None:
    """Read the stored membership; ``None`` if this node has not joined a cluster.

    Raises:
        TrustError: the file is damaged.
    """
    path = state / FILE
    if not (path.exists() and Credentials.exist(state)):
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Membership)
    except (msgspec.DecodeError, OSError) as error:
        raise TrustError(
            f"{path} cannot be read: {error}", fix="restore it, or: mntrain agent leave, and join"
        ) from error


def joined(state: Path) -> Membership:
    """Return the stored membership, or raise an error if the node has not joined a cluster.

    Raises:
        TrustError: this node has not joined a cluster.
    """
    membership = find(state)
    if membership is None:
        raise TrustError(
            "this node is not a member of a cluster yet",
            fix="run mntrain invite on the notebook machine, then mntrain agent join here",
        )
    return membership


def keep(state: Path, cluster: str, settings: Settings) -> Membership:
    membership = Membership(
        cluster=cluster, hostname=socket.gethostname(), joined_s=time.time(), settings=settings
    )
    content = msgspec.json.format(msgspec.json.encode(membership))
    write_atomically(state / FILE, content)
    return membership


def leave(state: Path) -> str:
    """Leave the cluster, and move files of its jobs aside. Returns the cluster's name.

    Raises:
        TrustError: this node has not joined a cluster.
    """
    membership = joined(state)
    aside = state / "left" / f"{membership.cluster}-{int(time.time())}"
    private_directory(aside)
    for name in _FORGOTTEN:
        if (state / name).exists():
            shutil.move(state / name, aside / name)
    for name in (OWN, PENDING_KEY):  # keys are no longer needed
        (aside / name).unlink(missing_ok=True)
    return membership.cluster
