"""Ground of the tried fixes: one agent, whose small disks and limits a test can change."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import JobSpec
from tests.agent.live import LiveAgent, free_port

MEBIBYTE = 1 << 20
APART = ("unshare", "--user", "--map-root-user", "--mount", "--propagation", "private")
"""In namespaces of its own, without the right to change anything outside."""

_MOUNTS = (
    "mount -t tmpfs -o size=1m tmpfs {small} && mount -t tmpfs tmpfs {sealed} && "
    "mount -o remount,ro {sealed} && mount -t tmpfs -o size=1m tmpfs /dev/shm && "
    # Without the right to read everything, which root has: a user's agent has not, either.
    'exec setpriv --bounding-set=-dac_override,-dac_read_search "$@"'
)

LOW = {resource.RLIMIT_NOFILE: 300, resource.RLIMIT_FSIZE: 8 * MEBIBYTE}


class Run(msgspec.Struct, frozen=True):
    """A launch, and what happens to it meanwhile."""

    script: str
    ranks: int = 1
    arguments: tuple[str, ...] = ()
    files: dict[str, str] = {}
    environment: dict[str, str] = {}
    restarts: int = 0
    meanwhile: Callable[[Ground, Job], None] | None = None

    def with_(self, **changes: object) -> Run:
        return msgspec.structs.replace(self, **changes)

    def edited(self, old: str, new: str) -> Run:
        assert old in self.script
        return self.with_(script=self.script.replace(old, new))


@dataclass
class Ground:
    """The agent ``node1`` in a mount namespace of its own."""

    directory: Path
    agent: LiveAgent = field(init=False)
    taken: ExitStack = field(default_factory=ExitStack)
    """Other programs' ports."""

    def __post_init__(self) -> None:
        for name in ("small", "sealed", "state"):
            (self.directory / name).mkdir()
        network = f"127.{100 + os.getpid() % 50}.77.1"
        state = self.directory / "state"
        self.agent = LiveAgent("node1", network, free_port(network), state)

    def start(self) -> None:
        mounts = _MOUNTS.format(small=self.directory / "small", sealed=self.directory / "sealed")
        quick = {"MNTRAIN_WATCHDOG_LEAST_S": "2", "MNTRAIN_RESTARTS_FIRST_BACKOFF_S": "0.2"}
        self.agent.start(under=[*APART, "sh", "-c", mounts, "sh"], environment=quick)
        for limit, value in LOW.items():
            self.limit(limit, value)

    def end(self) -> None:
        self.agent.end()
        self.taken.close()

    def limit(self, limit: int, value: int | None = None) -> None:
        """Set a limit of the agent and of what it starts from now on; without a value, lift it."""
        assert self.agent.process is not None
        pid = self.agent.process.pid
        _, most = resource.prlimit(pid, limit)
        resource.prlimit(pid, limit, (most if value is None else value, most))

    def inside(self, *command: str) -> None:
        """Run a command where the agent's disks are, as its administrator."""
        assert self.agent.process is not None
        enter = ["nsenter", "--target", str(self.agent.process.pid), "--user", "--mount"]
        subprocess.run([*enter, "--preserve-credentials", *command], check=True)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def program(self, name: str, text: str) -> str:
        """An executable of somebody else."""
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def spec(self, cluster: Cluster, run: Run) -> JobSpec:
        return JobSpec(
            entry=("script.py", *run.arguments),
            files={"script.py": run.script, **run.files},
            participants=cluster.participants([f"node1:{run.ranks}"]),
            environment={"OMP_NUM_THREADS": "1", **run.environment},
            max_restarts=run.restarts,
        )

    def named_before(self, cluster: Cluster, run: Run) -> set[Kind]:
        """What the doctor finds before a launch."""
        report = cluster.doctor.examine(spec=self.spec(cluster, run), is_quick=True)
        return {one.problem.kind for one in report.at("stops", "slows") if one.problem}

    def launch(self, cluster: Cluster, run: Run) -> Job:
        # What the doctor refuses is to fail here.
        job = cluster.launch(self.spec(cluster, run), is_checked=False)
        if run.meanwhile:
            run.meanwhile(self, job)
        return job


class Trial(NamedTuple):
    """How a fault is produced, and its fix carried out.

    Args:
        words: of the fix, which say what ``mend`` does.
        mend: does it; the launch after that, ``None`` if the job that stalls goes on.
        ends: how the job ends then.
    """

    kind: Kind
    prepare: Callable[[Ground], Run]
    words: str
    mend: Callable[[Ground, Run, Problem], Run | None]
    ends: str = "succeeded"


def edit(run: Run, words: str, old: str, new: str, kind: Kind) -> Trial:
    """A trial whose fix is a change of the script."""
    return Trial(kind, lambda _: run, words, lambda _, launched, __: launched.edited(old, new))
