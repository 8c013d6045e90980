"""SLURM of Debian's packages on hosts of a simulated cluster; why each setting is there stands in
``settings.py``.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests import netlab
from tests.netlab import Host, HostProcess, Lab, LabError
from tests.slurm_lab.settings import write_settings
from tests.waiting import until

PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
}
"""By program. Plugins (``slurm-wlm-basic-plugins``) come with them."""

TOOLS = ("sbatch", "scancel", "scontrol", "sinfo", "squeue")

UP_S = 60.0
"""Idle machines take 6 s."""


def missing_slurm() -> str | None:
    """Why there can be no lab here, with the fix; ``None`` if there can."""
    if why := netlab.missing():
        return why
    search = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    packages = [
        package for name, package in PACKAGES.items() if not shutil.which(name, path=search)
    ]
    if packages:
        return f"no SLURM here. Fix: apt-get install {' '.join(packages)} slurm-wlm-basic-plugins"
    return None


@dataclass
class SlurmLab:
    """A running SLURM.

    Args:
        lab: its first host is controller and login node, all others compute.
        folder: of its settings, logs and state.
    """

    lab: Lab
    folder: Path
    _daemons: dict[str, HostProcess] = field(default_factory=dict)
    _spared: set[str] = field(default_factory=set)

    @property
    def login(self) -> Host:
        return self.lab.hosts[0]

    @property
    def nodes(self) -> list[Host]:
        return self.lab.hosts[1:]

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "TZ": "UTC"}

    def up(self) -> SlurmLab:
        """Start everything, and return once all nodes are idle."""
        self.folder.mkdir(mode=0o755)
        write_settings(self.folder, self.login, self.nodes)
        self._start_munge()
        self._start(self.login, "slurmctld", "-D", "-i")
        for node in self.nodes:
            self.start_node(node)
        names = {node.name for node in self.nodes}
        until(lambda: self.idle() == names, "all nodes are idle", UP_S)
        return self

    def start_node(self, node: Host) -> None:
        """Also after the node had no power."""
        self._start(node, "slurmd", "-D")

    def run(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        """What a command on the login node prints.

        Raises:
            LabError: it failed; the message is what it said.
        """
        more = {**self.environment, **(environment or {})}
        done = self.login.run(words, environment=more)
        if done.returncode:
            raise LabError(f"{words[0]}: {' '.join(done.stderr.split())}")
        return done.stdout

    def tools(self) -> Path:
        """A directory for ``$PATH`` whose commands of SLURM are those of the login node."""
        folder = self.folder / "tools"
        folder.mkdir(exist_ok=True)
        settings = shlex.join(f"{name}={value}" for name, value in self.environment.items())
        for name in TOOLS:
            path = folder / name
            there = shlex.join(self.login.command(["env"]))
            path.write_text(f'#!/bin/sh\nexec {there} {settings} {_program(name)} "$@"\n')
            path.chmod(0o755)
        return folder

    def idle(self) -> set[str]:
        """Names of the nodes without jobs; one may be planned for a job that waits."""
        try:
            told = self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%N %T")
        except LabError:  # the controller is starting
            return set()
        states = dict(line.split() for line in told.splitlines())
        return {name for name, state in states.items() if state in ("idle", "planned")}

    def queue(self) -> dict[str, str]:
        """State of each job that has not ended, by its number."""
        told = self.run("squeue", "-h", "-o", "%i %T")
        return dict(line.split() for line in told.splitlines())

    @contextlib.contextmanager
    def sparing(self, job: str) -> Iterator[None]:
        """A job that :meth:`clear` leaves alone."""
        self._spared.add(job)
        try:
            yield
        finally:
            self._spared.discard(job)
            self.clear()

    def clear(self) -> None:
        """End all jobs, and wait until every node is idle, or runs only what is spared."""
        if others := self.queue().keys() - self._spared:
            self.run("scancel", *others)
        until(lambda: self.queue().keys() <= self._spared, "nothing else runs", UP_S)
        if not self._spared:
            names = {node.name for node in self.nodes}
            until(lambda: self.idle() == names, "all nodes are idle", UP_S)

    def logs(self) -> str:
        """The ends of the daemons' logs, for a test that failed."""
        ends = [
            f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self.folder.glob("*.log"))
        ]
        return "\n".join(ends)

    def _start_munge(self) -> None:
        """One for all hosts: a socket with a path is not bound to a network namespace."""
        folder = self.folder / "munge"
        folder.mkdir(mode=0o711)
        key = folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        for path in (folder, key):
            shutil.chown(path, "munge", "munge")
        options = {
            "key-file": key,
            "socket": folder / "socket",
            "pid-file": folder / "pid",
            "log-file": folder / "log",
            "seed-file": folder / "seed",
        }
        words = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", _program("munged")]
        words += ["--foreground", *(f"--{name}={path}" for name, path in options.items())]
        self._launch(self.login, "munged", words)
        until((folder / "socket").exists, "munged listens", UP_S)

    def _start(self, host: Host, program: str, *options: str) -> None:
        self._launch(host, program, [_program(program), *options])

    def _launch(self, host: Host, program: str, words: list[str]) -> None:
        with (self.folder / f"{program}-{host.name}.said").open("w") as said:
            self._daemons[f"{program}-{host.name}"] = host.popen(
                words,
                environment=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )


@contextlib.contextmanager
def own_slurm(nodes: int = 3) -> Iterator[SlurmLab]:
    """A SLURM of this process's own; gone afterwards, also if the process is killed."""
    with netlab.own_lab(nodes + 1) as lab:
        yield SlurmLab(lab, lab.directory / "slurm").up()


def _found(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _program(name: str) -> str:
    found = _found(name)
    assert found is not None, name
    return found
