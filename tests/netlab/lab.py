"""Hosts made of namespaces: two shaped networks each, a decoy docker0, a name and a home.

Every host is a network namespace; a process on it also has its own host name, process table and
mounts, and dies with the lab. What was measured about all this stands in docs/netlab.md.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

MANAGEMENT, DATA = "eth0", "eth1"
RATES = {MANAGEMENT: ("100mbit", "128kb", "50ms"), DATA: ("1gbit", "512kb", "20ms")}
DATA_BYTES_PER_S = 1e9 / 8
ROOT = Path("/run/mntrain-netlab")
END_PATIENCE_S = 5.0


def missing() -> str | None:
    """Why no lab can be made here; ``None`` if one can."""
    if os.geteuid() != 0:
        return "not root: network namespaces cannot be made"
    for tool in ("ip", "tc", "unshare"):
        if shutil.which(tool) is None:
            return f"{tool} is missing: apt-get install iproute2 util-linux"
    trial = f"mnt-trial-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", trial], capture_output=True, check=False)
    if made.returncode:
        return f"this kernel makes no network namespaces: {made.stderr.decode().strip()}"
    subprocess.run(["ip", "netns", "del", trial], capture_output=True, check=False)
    return None


@dataclass
class Host:
    """One simulated machine."""

    name: str
    namespace: str
    index: int
    subnet: int
    home: Path

    @property
    def data_address(self) -> str:
        return f"10.{self.subnet}.2.{self.index}"

    @property
    def management_address(self) -> str:
        return f"10.{self.subnet}.1.{self.index}"

    def command(self, words: Sequence[str]) -> list[str]:
        """``words`` run as on a machine of its own."""
        script = 'hostname "$1"; export HOME="$2"; shift 2; "$@" & wait $!'
        return [
            *("ip", "netns", "exec", self.namespace),
            *("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"),
            *("--", "bash", "-c", script, "_", self.name, str(self.home), *words),
        ]

    def popen(
        self, words: Sequence[str], log: Path, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            return subprocess.Popen(
                self.command(words),
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def run(
        self,
        words: Sequence[str],
        *,
        timeout_s: float = 60.0,
        environment: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(words),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={**os.environ, **(environment or {})},
            check=False,
        )

    def pids(self) -> set[int]:
        """Every process that lives on this host."""
        out = _ip("netns", "pids", self.namespace).split()
        return {int(pid) for pid in out}

    def counters(self, interface: str) -> tuple[int, int]:
        """(sent, received) bytes since the interface was made."""
        shown = json.loads(_ip("-n", self.namespace, "-j", "-s", "link", "show", interface))
        stats = shown[0]["stats64"]
        return stats["tx"]["bytes"], stats["rx"]["bytes"]


@dataclass
class Lab:
    """``count`` hosts on a management and a data network.

    Args:
        prefix: of every namespace; two labs at once need two.
        subnet: second octet of every address.
    """

    count: int
    prefix: str = "mnt"
    subnet: int = 77
    hosts: list[Host] = field(default_factory=list)

    @property
    def directory(self) -> Path:
        return ROOT / self.prefix

    def up(self) -> Lab:
        """Make everything; a lab of the same prefix that was left behind goes first."""
        self.down()
        self.directory.mkdir(parents=True)
        (self.directory / "owner").write_text(str(os.getpid()))
        switch = f"{self.prefix}sw"
        _ip("netns", "add", switch)
        for bridge in RATES:
            _in(switch, "link", "add", f"br-{bridge}", "type", "bridge", "mcast_snooping", "0")
            _in(switch, "link", "set", f"br-{bridge}", "up")
        for index in range(1, self.count + 1):
            self.hosts.append(self._add_host(switch, index))
        return self

    def down(self) -> None:
        """End every process on the hosts and take the namespaces away."""
        names = [n for n in _namespaces() if n.startswith(self.prefix) and _is_ours(n, self.prefix)]
        for name in names:
            _end_processes(name)
        for name in names:
            _ip("netns", "del", name)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.hosts.clear()

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def set_link(self, host: Host, interface: str, *, up: bool) -> None:
        _in(host.namespace, "link", "set", interface, "up" if up else "down")

    def _add_host(self, switch: str, index: int) -> Host:
        name, namespace = f"node{index}", f"{self.prefix}{index}"
        host = Host(name, namespace, index, self.subnet, self.directory / "homes" / name)
        host.home.mkdir(parents=True)
        _ip("netns", "add", namespace)
        _in(namespace, "link", "set", "lo", "up")
        for number, interface in enumerate((MANAGEMENT, DATA), start=1):
            port = f"{interface}-{index}"
            peer = ("type", "veth", "peer", "name", interface, "netns", namespace)
            _in(switch, "link", "add", port, *peer)
            _in(switch, "link", "set", port, "master", f"br-{interface}", "up")
            _in(namespace, "addr", "add", f"10.{self.subnet}.{number}.{index}/24", "dev", interface)
            _in(namespace, "link", "set", interface, "up")
            # Both ends: what a host sends and what its port of the switch sends to it.
            _shape(namespace, interface, interface)
            _shape(switch, port, interface)
        # Without a default route multicast on "the default interface" fails.
        _in(namespace, "route", "add", "default", "via", f"10.{self.subnet}.1.254")
        _in(namespace, "link", "add", "docker0", "type", "bridge")
        _in(namespace, "addr", "add", "172.17.0.1/16", "dev", "docker0")
        _in(namespace, "link", "set", "docker0", "up")
        self._write_names(host)
        return host

    def _write_names(self, host: Host) -> None:
        """Own hosts file; a name server that refuses at once: a silent one costs torch 6 s."""
        folder = Path("/etc/netns") / host.namespace
        folder.mkdir(parents=True, exist_ok=True)
        lines = ["127.0.0.1 localhost"]
        lines += [f"10.{self.subnet}.1.{n} node{n}" for n in range(1, self.count + 1)]
        (folder / "hosts").write_text("\n".join(lines) + "\n")
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")


def clean_stale() -> None:
    """Take away labs whose owner is gone, as after a killed test run."""
    for folder in ROOT.glob("*"):
        owner = folder / "owner"
        if owner.exists() and not Path(f"/proc/{owner.read_text()}").exists():
            Lab(0, folder.name).down()


def existing(prefix: str) -> Lab:
    """A lab that another process made."""
    folder = ROOT / prefix
    homes = sorted((folder / "homes").glob("node*"), key=lambda p: int(p.name[4:]))
    lab = Lab(len(homes), prefix)
    for home in homes:
        index = int(home.name[4:])
        lab.hosts.append(Host(home.name, f"{prefix}{index}", index, lab.subnet, home))
    return lab


def _is_ours(namespace: str, prefix: str) -> bool:
    rest = namespace.removeprefix(prefix)
    return rest == "sw" or rest.isdigit()


def _end_processes(namespace: str) -> None:
    deadline = time.monotonic() + END_PATIENCE_S
    while pids := _ip("netns", "pids", namespace).split():
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {pids} on {namespace} do not end")
        time.sleep(0.02)


def _shape(namespace: str, device: str, kind: str) -> None:
    rate, burst, latency = RATES[kind]
    words = ("qdisc", "replace", "dev", device, "root", "tbf")
    limits = ("rate", rate, "burst", burst, "latency", latency)
    subprocess.run(["tc", "-n", namespace, *words, *limits], check=True)


def _namespaces() -> list[str]:
    return [entry["name"] for entry in json.loads(_ip("-j", "netns", "list") or "[]")]


def _in(namespace: str, *words: str) -> str:
    return _ip("-n", namespace, *words)


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
