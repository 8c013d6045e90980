"""Simulated host: its network and files, and how to run programs on it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.netlab.commands import LabError, in_namespace, ip, run

MANAGEMENT, DATA = "eth0", "eth1"
NETWORK = "10.77"

END_PATIENCE_S = 10.0
"""SIGKILL takes milliseconds, a namespace of a hundred processes on a busy machine a second."""

POLL_S = 0.02

# A cache that is named may be shared: what is in it depends on its contents alone.
_OF_THE_USER = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME")

# As process 1 it collects orphans, as an init must; reading a pipe nobody writes to costs nothing.
_INIT = """
echo "$1" > /proc/sys/kernel/hostname
exec 3<> <(:)
echo up
exec > /dev/null
while :; do read -r -u 3 _; done
"""


@dataclass
class Host:
    """A machine of its own except for its kernel, its files and its cores.

    Args:
        namespace: its network namespace.
        index: 1 for ``node1``.
        home: ``$HOME`` there; configuration and state of whatever runs there lie below it.
        record: where the pid of its first process is kept, for other processes that use the lab.
    """

    name: str
    namespace: str
    index: int
    home: Path
    record: Path
    _outer: subprocess.Popen[str] | None = None
    _started: list[HostProcess] = field(default_factory=list)

    @property
    def management_address(self) -> str:
        return f"{NETWORK}.1.{self.index}"

    @property
    def data_address(self) -> str:
        return f"{NETWORK}.2.{self.index}"

    @property
    def init(self) -> int:
        """Pid of its process 1, as seen from outside."""
        try:
            pid, started = json.loads(self.record.read_text())
            if psutil.Process(pid).create_time() == started:
                return int(pid)
        except (OSError, ValueError, psutil.NoSuchProcess):
            pass
        raise LabError(f"{self.name} has no power")

    def power_on(self) -> None:
        """Start its process 1, which names it. Interfaces are there already."""
        words = [
            *("ip", "netns", "exec", self.namespace),
            *("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"),
            *("--", "bash", "-c", _INIT, "init", self.name),
        ]
        complaints = self.record.with_suffix(".log")
        with complaints.open("w") as stderr:
            self._outer = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                # A lab outlives the command that made it, and Ctrl-C is not for it.
                start_new_session=True,
            )
        assert self._outer.stdout is not None
        with self._outer.stdout as said:
            if said.readline().strip() != "up":
                self._outer.wait()
                why = " ".join(complaints.read_text().split())
                raise LabError(f"{self.name} did not start: {why}")
        (init,) = psutil.Process(self._outer.pid).children()
        self.record.write_text(json.dumps([init.pid, init.create_time()]))

    def power_cut(self) -> None:
        """Kill process 1: the kernel ends everything else on the host with it, at once."""
        with contextlib.suppress(LabError, ProcessLookupError):
            os.kill(self.init, signal.SIGKILL)
        deadline = time.monotonic() + END_PATIENCE_S
        while left := namespace_pids(self.namespace):
            if time.monotonic() > deadline:
                raise LabError(f"{self.name}: processes {sorted(left)} do not end")
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_S)
        if self._outer is not None:
            self._outer.wait()
            self._outer = None
        for process in self._started:
            process.wait()
        self._started.clear()
        self.record.unlink(missing_ok=True)

    def command(self, words: Sequence[str]) -> list[str]:
        """``words`` as a command that runs there, in the current directory."""
        return [
            *("nsenter", f"--target={self.init}", "--net", "--uts", "--pid", "--mount", "--"),
            *("env", "-C", str(Path.cwd())),
            *(f"--unset={name}" for name in _OF_THE_USER),
            f"HOME={self.home}",
            # nsenter waits outside of the host; when it is killed, this goes too.
            *("setpriv", "--pdeathsig", "KILL", *words),
        ]

    def popen(
        self, words: Sequence[str], *, environment: Mapping[str, str] | None = None, **how: Any
    ) -> HostProcess:
        """As :class:`subprocess.Popen`, there; signals go to the process itself."""
        env = {**os.environ, **(environment or {})}
        process = HostProcess(self.command(words), env=env, start_new_session=True, **how)
        self._started.append(process)
        return process

    def run(
        self,
        words: Sequence[str],
        *,
        timeout_s: float = 60.0,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """As :func:`subprocess.run` with its output captured as text, there."""
        return subprocess.run(
            self.command(words),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
            check=False,
        )

    def pids(self) -> set[int]:
        """Every process on the host but its first, as numbered from outside."""
        own = Path(f"/proc/{self.init}/ns/pid").readlink()
        found = set()
        for pid in namespace_pids(self.namespace) - {self.init}:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/ns/pid").readlink() == own:
                    found.add(pid)
        return found

    def counters(self, interface: str) -> tuple[int, int]:
        """(sent, received) bytes since the interface was made."""
        shown = json.loads(in_namespace(self.namespace, "-j", "-s", "link", "show", interface))
        stats = shown[0]["stats64"]
        return stats["tx"]["bytes"], stats["rx"]["bytes"]

    def set_link(self, interface: str, *, is_up: bool) -> None:
        """As ``ip link set``, there: down takes the interface's routes with it."""
        self.change_link(interface, "up" if is_up else "down")

    def change_link(self, interface: str, *words: str) -> None:
        """``ip link set`` with these words, there."""
        in_namespace(self.namespace, "link", "set", interface, *words)

    @contextlib.contextmanager
    def firewall(self, *rule: str) -> Any:
        """An iptables rule while in the block: ``"INPUT", "-i", "eth1", …, "-j", "DROP"``."""
        chain, *rest = rule
        tables = ("ip", "netns", "exec", self.namespace, "iptables", "-w")
        run(*tables, "-I", chain, *rest)
        try:
            yield
        finally:
            run(*tables, "-D", chain, *rest)


class HostProcess(subprocess.Popen[Any]):
    """A process on a host. What is held is nsenter outside; signals go to its child inside."""

    def send_signal(self, sig: int) -> None:
        if self.poll() is not None:
            return
        inside = psutil.Process(self.pid).children()
        with contextlib.suppress(ProcessLookupError):
            os.kill(inside[0].pid if inside else self.pid, sig)


def namespace_pids(namespace: str) -> set[int]:
    return {int(pid) for pid in ip("netns", "pids", namespace).split()}
