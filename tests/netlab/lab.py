"""Hosts made of namespaces: two shaped networks each, a decoy docker0, a name and a home.

What was measured about all this stands in docs/netlab.md.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tests.netlab.commands import LabError, in_namespace, ip, run
from tests.netlab.host import DATA, MANAGEMENT, NETWORK, Host

ROOT = Path("/run/mntrain-netlab")
MOST_HOSTS = 200

MBIT = 1e6 / 8
RATES_BYTES_PER_S = {MANAGEMENT: 100 * MBIT, DATA: 1000 * MBIT}
SHAPES = {
    MANAGEMENT: "rate 100mbit burst 128kb latency 50ms",
    DATA: "rate 1gbit burst 512kb latency 20ms",
}


@dataclass
class Lab:
    """``count`` hosts, ``node1`` to ``nodeN``, on a management and a data network.

    Every lab has networks of its own: addresses are the same in all of them and never meet.

    Args:
        prefix: of every namespace; labs that are up together differ in it.
    """

    count: int
    prefix: str
    hosts: list[Host] = field(default_factory=list)

    @property
    def directory(self) -> Path:
        return ROOT / self.prefix

    def up(self) -> Lab:
        """Make everything, or nothing."""
        if not 1 <= self.count <= MOST_HOSTS:
            raise LabError(f"{self.count} hosts; choose 1 to {MOST_HOSTS}")
        try:
            self._make()
        except BaseException:
            self.down()
            raise
        return self

    def down(self) -> None:
        """End every process on the hosts and take the namespaces away."""
        names = [name for name in _namespaces() if self._is_mine(name)]
        for host in [self._host_of(name) for name in names]:
            host.power_cut()
        for host in self.hosts:
            host.power_cut()
        for name in names:
            ip("netns", "del", name)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.hosts.clear()

    def host(self, name: str) -> Host:
        """The host of that name."""
        for host in self.hosts:
            if host.name == name:
                return host
        names = ", ".join(host.name for host in self.hosts)
        raise LabError(f"no host {name!r}; there are {names}")

    def set_port(self, host: Host, interface: str, *, is_up: bool) -> None:
        """The switch's end of a cable: down is a pulled plug, the host sees no carrier."""
        port = f"{interface}-{host.index}"
        in_namespace(self._switch, "link", "set", port, "up" if is_up else "down")

    def reshape(self, interface: str, shape: str) -> None:
        """Give a network of all hosts another rate.

        Args:
            shape: in tc's words for a token bucket, as in :data:`SHAPES`.
        """
        for host in self.hosts:
            self._shape(host, interface, shape)

    def shape_sending(self, host: Host, interface: str, shape: str) -> None:
        """Give what one host sends another rate; what it receives keeps its own."""
        _shape_end(host.namespace, interface, shape)

    def _shape(self, host: Host, interface: str, shape: str) -> None:
        """Both ends: what a host sends, and what its port of the switch sends to it."""
        self.shape_sending(host, interface, shape)
        port = f"{interface}-{host.index}"
        _shape_end(self._switch, port, shape)

    @property
    def _switch(self) -> str:
        return f"{self.prefix}-switch"

    def _is_mine(self, namespace: str) -> bool:
        return re.fullmatch(rf"{re.escape(self.prefix)}-(switch|\d+)", namespace) is not None

    def _host_of(self, namespace: str) -> Host:
        """The host in a namespace; of the switch, where nothing runs, a nameless one."""
        index = namespace.rpartition("-")[2]
        name = f"node{index}"
        home = self.directory / "homes" / name
        number = int(index) if index.isdigit() else 0
        return Host(name, namespace, number, home, self.directory / f"{name}.json")

    def _make(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        ip("netns", "add", self._switch)
        for interface in SHAPES:
            bridge = f"br-{interface}"
            # Snooping would drop multicast that no router asks for.
            in_namespace(
                self._switch, "link", "add", bridge, "type", "bridge", "mcast_snooping", "0"
            )
            in_namespace(self._switch, "link", "set", bridge, "up")
        for index in range(1, self.count + 1):
            host = self._host_of(f"{self.prefix}-{index}")
            self.hosts.append(host)
            self._add(host)
        for host in self.hosts:
            host.power_on()

    def _add(self, host: Host) -> None:
        host.home.mkdir(parents=True)
        namespace = host.namespace
        ip("netns", "add", namespace)
        in_namespace(namespace, "link", "set", "lo", "up")
        for interface, address in (
            (MANAGEMENT, host.management_address),
            (DATA, host.data_address),
        ):
            port = f"{interface}-{host.index}"
            peer = ("type", "veth", "peer", "name", interface, "netns", namespace)
            in_namespace(self._switch, "link", "add", port, *peer)
            in_namespace(self._switch, "link", "set", port, "master", f"br-{interface}", "up")
            in_namespace(namespace, "addr", "add", f"{address}/24", "dev", interface)
            in_namespace(namespace, "link", "set", interface, "up")
            self._shape(host, interface, SHAPES[interface])
        # Without a default route multicast on "the default interface" fails.
        in_namespace(namespace, "route", "add", "default", "via", f"{NETWORK}.1.254")
        in_namespace(namespace, "link", "add", "docker0", "type", "bridge")
        in_namespace(namespace, "addr", "add", "172.17.0.1/16", "dev", "docker0")
        in_namespace(namespace, "link", "set", "docker0", "up")
        self._write_names(host)

    def _write_names(self, host: Host) -> None:
        """Own hosts file; a name server that refuses at once: a silent one costs torch 6 s."""
        folder = Path("/etc/netns") / host.namespace
        folder.mkdir(parents=True, exist_ok=True)
        lines = ["127.0.0.1 localhost"]
        lines += [f"{NETWORK}.1.{n} node{n}" for n in range(1, self.count + 1)]
        (folder / "hosts").write_text("\n".join(lines) + "\n")
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")


def existing(prefix: str) -> Lab:
    """A lab that another process made; without hosts if there is none."""
    lab = Lab(0, prefix)
    indices = sorted(
        int(name.rpartition("-")[2])
        for name in _namespaces()
        if lab._is_mine(name) and name != lab._switch
    )
    lab.hosts = [lab._host_of(f"{prefix}-{index}") for index in indices]
    lab.count = len(indices)
    return lab


def _namespaces() -> list[str]:
    with contextlib.suppress(json.JSONDecodeError):
        return [entry["name"] for entry in json.loads(ip("-j", "netns", "list"))]
    return []


def _shape_end(namespace: str, device: str, shape: str) -> None:
    """Replace a token bucket with what it holds: a segment of 64 kB that waits in it would never
    fit into a smaller one, and stop the link for good.
    """
    for queue in ("pfifo", f"tbf {shape}"):
        run(*f"tc -n {namespace} qdisc replace dev {device} root {queue}".split())
