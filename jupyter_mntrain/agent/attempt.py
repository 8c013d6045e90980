"""One attempt on this node: its directory, its keeper, and what can be read of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.files import write_atomically
from jupyter_mntrain.agent.identity import boot_id
from jupyter_mntrain.agent.processes import processes_of, start_time
from jupyter_mntrain.launch import NodeCommand
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.job import Leftover


class KeeperIdentity(Record, frozen=True):
    """What makes a pid mean one keeper and no later process."""

    pid: int
    start_time: int
    boot_id: str
    torchrun_pid: int


class KeeperStatus(Record, frozen=True):
    """What the keeper wrote when nothing of the attempt was left."""

    exit_code: int
    ended_s: float
    leftovers: tuple[Leftover, ...] = ()
    error: str | None = None


@dataclass
class AttemptDirectory:
    """``jobs/ID/attempt-N`` and the keeper that owns what happens in it."""

    path: Path
    job_id: JobId
    number: int
    keeper: subprocess.Popen[bytes] | None = None
    """Only when this agent started it; one adopted is known by its files."""

    def prepare(self, files: dict[str, str], command: NodeCommand) -> None:
        """Write the job's files and the command; nothing runs yet.

        Raises:
            SpecError: a file name leaves the working directory.
        """
        work = self.path / "work"
        for folder in (work, self.path / "metrics", self.path / "ranks"):
            folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            target = (work / name).resolve()
            if not target.is_relative_to(work.resolve()) or target == work.resolve():
                raise SpecError(
                    f"file name {name!r} leaves the job's directory", fix="use a relative name"
                )
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        content = {
            "job_id": self.job_id,
            "attempt": self.number,
            "argv": command.argv,
            "environment": command.environment,
            "directory": command.directory,
        }
        write_atomically(self.path / "command.json", msgspec.json.encode(content), mode=0o600)

    def spawn(self) -> None:
        """Start the keeper in a session of its own, so that it outlives the agent."""
        with (self.path / "keeper.log").open("ab") as log:
            self.keeper = subprocess.Popen(
                [sys.executable, "-m", "jupyter_mntrain.agent.keeper", str(self.path)],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def keeper_is_alive(self) -> bool:
        if self.keeper is not None:
            return self.keeper.poll() is None
        identity = self._identity()
        return (
            identity is not None
            and identity.boot_id == boot_id()
            and start_time(identity.pid) == identity.start_time
        )

    def status(self) -> KeeperStatus | None:
        path = self.path / "status.json"
        if not path.exists():
            return None
        return msgspec.json.decode(path.read_bytes(), type=KeeperStatus)

    def stop(self, grace_s: float) -> None:
        """Ask the keeper to end it all; a shorter grace replaces a longer one."""
        content = json.dumps({"grace_s": grace_s}).encode()
        write_atomically(self.path / "stop.json", content)
        if self.keeper_is_alive():
            identity = self._identity()
            if self.keeper is not None:
                self.keeper.terminate()
            elif identity is not None:
                os.kill(identity.pid, signal.SIGTERM)

    def living_ranks(self) -> Iterator[tuple[Rank, int]]:
        """(rank, pid) of every rank process; of a rank's children only the eldest counts."""
        found: dict[Rank, int] = {}
        for pid, environment in sorted(processes_of(self.path).items()):
            if environment.get("RANK", "").isdigit():
                found.setdefault(Rank(int(environment["RANK"])), pid)
        yield from found.items()

    def has_processes(self) -> bool:
        return bool(processes_of(self.path))

    def _identity(self) -> KeeperIdentity | None:
        path = self.path / "keeper.json"
        return (
            msgspec.json.decode(path.read_bytes(), type=KeeperIdentity) if path.exists() else None
        )
