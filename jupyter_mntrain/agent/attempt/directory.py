"""Attempt directory: the files of an attempt, its supervisor, and its output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.attempt.processes import (
    Alive,
    kill_all,
    marked,
    of_attempt,
    ranks_of,
    signal_all,
    start_time,
)
from jupyter_mntrain.agent.machine.files.blob_store import BlobStore
from jupyter_mntrain.agent.machine.linux import boot_id
from jupyter_mntrain.agent.machine.software.workplace import refuse_no_folder
from jupyter_mntrain.launch import NodeCommand
from jupyter_mntrain.launch.project.tree import BLOBS
from jupyter_mntrain.launch.torchrun import OUTPUTS, wants_outputs
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import CLOCK_VARIABLE
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.system_errors import KINDS
from jupyter_mntrain.model.files import PRIVATE, private_directory, write_atomically
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.lifecycle.clock import Clock, clock_of, epoch_s
from jupyter_mntrain.model.records.job import Attempt, JobSpec, Leftover, Placement
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.telemetry.startup import STARTUP_DIRECTORY

PYTHON_PATH = "PYTHONPATH"


class SupervisorIdentity(Record, frozen=True):
    """Identifies a supervisor, also after its pid has been reused."""

    pid: int
    start_time: int | None
    boot_id: str
    oom_kills: int | None = None
    """Value of :func:`oom_kills` when the supervisor started."""


class SupervisorStatus(Record, frozen=True):
    """Written by the supervisor when no process of the attempt was left.

    Args:
        killed: ranks that did not end within a stop's grace.
    """

    exit_code: int
    ended_s: float
    leftovers: tuple[Leftover, ...] = ()
    killed: tuple[Rank, ...] = ()
    error: str | None = None
    disk_was_full: bool = False


def oom_kills() -> int | None:
    """Return the number of processes that the kernel's OOM killer has killed since boot, cgroup
    limits included (``/proc/vmstat``, Linux 4.13); ``None`` where the kernel does not count them.
    """
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def oom_kills_since(began: SupervisorIdentity | None) -> int | None:
    """Return the number of OOM kills since an attempt began; ``None`` if unknown."""
    before, now = began.oom_kills if began else None, oom_kills()
    return None if before is None or now is None else now - before


@dataclass
class AttemptDirectory:
    """The directory ``jobs/ID/attempt-N`` and the supervisor that runs in it."""

    path: Path
    job_id: JobId
    number: int
    supervisor: subprocess.Popen[bytes] | None = None
    """Set only if this agent started it; an adopted supervisor is known by its files."""
    _identity: SupervisorIdentity | None = field(default=None, init=False, repr=False)
    _seen: Alive = field(default_factory=dict, init=False, repr=False)
    """Processes found so far: one that changed its environment is lost with the supervisor above
    it."""
    killed_s: float | None = field(default=None, init=False)
    """When the agent first killed all of them, by the attempt's clock; ``None`` = it did not."""

    def prepare(
        self,
        spec: JobSpec,
        command: NodeCommand,
        *,
        heading: str = "",
        sent_s: float | None = None,
    ) -> None:
        """Write the job's files, the log's first line and the command, without starting anything.

        Args:
            sent_s: the time now by the attempt's clock; ``None`` = by this machine's.

        The supervisor writes the project's files.

        Raises:
            SpecError: a file name leaves the working directory, or cannot be written.
            RefusedError: files of the project, or the shared folder, are not on this node.
        """
        if spec.project is not None:
            BlobStore(self.path.parents[2] / BLOBS).tree(spec.project)
        directory = in_home(command.directory)
        if spec.workdir is not None:
            refuse_no_folder(directory)
        work = self.path / "work"
        for folder in (work, self.path / "metrics", self.path / "ranks", self.path / "nccl"):
            private_directory(folder)
        if wants_outputs(spec):
            private_directory(work / OUTPUTS)
        for name, text in spec.files.items():
            _write_inside(work.resolve(), name, text)
        if heading:
            write_atomically(self.path / "log", f"{heading}\n".encode())
        content = {
            "job_id": self.job_id,
            "attempt": self.number,
            "argv": command.argv,
            "environment": {
                **command.environment,
                CLOCK_VARIABLE: str(epoch_s(sent_s)),
                PYTHON_PATH: _with_startup(command.environment),
            },
            "directory": str(directory),
            "project": spec.project,
        }
        write_atomically(self.path / "command.json", msgspec.json.encode(content))

    def spawn(self) -> None:
        """Start the supervisor in a session of its own, so that it outlives the agent.

        Raises:
            OSError: it could not be started or stored; nothing of it runs.
        """
        descriptor = os.open(
            self.path / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE
        )
        with open(descriptor, "ab") as log:  # noqa: PTH123 - made with its mode
            self.supervisor = subprocess.Popen(
                [sys.executable, "-m", "jupyter_mntrain.agent.attempt.supervisor", str(self.path)],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        # Written by the agent, not the supervisor: a restarted agent needs it from the first
        # moment.
        identity = SupervisorIdentity(
            pid=self.supervisor.pid,
            start_time=start_time(self.supervisor.pid),
            boot_id=boot_id(),
            oom_kills=oom_kills(),
        )
        try:
            write_atomically(self.path / "supervisor.json", msgspec.json.encode(identity))
        except BaseException:
            self.supervisor.kill()
            self.supervisor.wait()
            kill_all(lambda: marked(self.path))
            raise

    @property
    def environment(self) -> dict[str, str] | None:
        """The variables that the ranks were given; ``None`` if that cannot be read."""
        try:
            found: dict[str, str] = json.loads((self.path / "command.json").read_bytes())[
                "environment"
            ]
        except (OSError, ValueError, KeyError):
            return None
        return found

    @cached_property
    def clock(self) -> Clock:
        """Return the Unix time, by the clock that all parts of the attempt share."""
        environment = self.environment
        # The monotonic clock starts again at every boot.
        if environment is None or self.is_of_another_boot():
            return time.time
        return clock_of(environment)

    @property
    def began_s(self) -> float:
        """Return the seconds from the machine's boot to the supervisor's start; 0 if unknown."""
        ticks = self.identity.start_time if self.identity else None
        return 0.0 if ticks is None else ticks / os.sysconf("SC_CLK_TCK")

    def supervisor_is_alive(self) -> bool:
        if self.supervisor is not None:
            has_ended = self.supervisor.poll() is not None
            return not has_ended
        return (
            self.identity is not None
            and not self.is_of_another_boot()
            and self.identity.start_time is not None
            and start_time(self.identity.pid) == self.identity.start_time
        )

    def is_of_another_boot(self) -> bool:
        return self.identity is not None and self.identity.boot_id != boot_id()

    def status(self) -> SupervisorStatus | None:
        path = self.path / "status.json"
        if not path.exists():
            return None
        return msgspec.json.decode(path.read_bytes(), type=SupervisorStatus)

    def stop(self, grace_s: float) -> None:
        """Ask the supervisor to end the attempt. A shorter grace replaces a longer one."""
        content = json.dumps({"grace_s": grace_s}).encode()
        with suppress(OSError):  # a full disk must not keep a job from being stopped
            write_atomically(self.path / "stop.json", content)
        if not self.supervisor_is_alive():
            return
        if self.supervisor is not None:
            self.supervisor.terminate()
        elif self.identity is not None:
            with suppress(ProcessLookupError):
                os.kill(self.identity.pid, signal.SIGTERM)

    def alive(self) -> Alive:
        """Return all live processes of the attempt, and its supervisor."""
        pid = self._supervisor_pid
        started = start_time(pid) if pid is not None and self.supervisor_is_alive() else None
        if pid is None or started is None:
            found = marked(self.path)
        else:
            found = {pid: started, **of_attempt(self.path, pid)}
        self._seen = {
            pid: started
            for pid, started in (self._seen | found).items()
            if start_time(pid) == started
        }
        return self._seen

    def kill(self) -> Alive:
        """Kill all processes and the supervisor, which may be frozen. Returns those that were
        found.

        A process that forks meanwhile leaves a child behind: repeat until none is found.
        """
        found = self.alive()
        self.killed_s = self.killed_s or self.clock()
        signal_all(found, signal.SIGKILL)
        return found

    def kill_rank(self, rank: Rank) -> int | None:
        """Kill a rank's process. Returns its pid; ``None`` if there is none."""
        pid = dict(self.living_ranks()).get(rank)
        started = start_time(pid) if pid is not None else None
        if pid is None or started is None:
            return None
        signal_all({pid: started}, signal.SIGKILL)
        return pid

    @property
    def grace_s(self) -> float:
        """Return the grace period of the newest stop request; 0 if none can be read."""
        try:
            return float(json.loads((self.path / "stop.json").read_bytes())["grace_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0

    @property
    def _supervisor_pid(self) -> int | None:
        if self.supervisor is not None:
            return self.supervisor.pid
        return self.identity.pid if self.identity is not None else None

    def living_ranks(self) -> Iterator[tuple[Rank, int]]:
        """Return the rank and pid of each live rank."""
        yield from ((Rank(rank), pid) for rank, pid in ranks_of(self.path).items())

    @property
    def identity(self) -> SupervisorIdentity | None:
        """Return the supervisor's identity; ``None`` if it was never started or cannot be read."""
        if self._identity is None:
            with suppress(FileNotFoundError, msgspec.MsgspecError):
                content = (self.path / "supervisor.json").read_bytes()
                self._identity = msgspec.json.decode(content, type=SupervisorIdentity)
        return self._identity


def _with_startup(environment: Mapping[str, str]) -> str:
    """Return the job's ``PYTHONPATH``, preceded by the folder of the ranks' hooks."""
    given = environment.get(PYTHON_PATH, os.environ.get(PYTHON_PATH, ""))
    return os.pathsep.join([str(STARTUP_DIRECTORY), *filter(None, [given])])


def _write_inside(work: Path, name: str, text: str) -> None:
    try:
        target = (work / name).resolve()
        if not target.is_relative_to(work) or target == work:
            raise SpecError(
                f"file name {name!r} is outside the job's directory", fix="use a relative name"
            )
        private_directory(target.parent)
        target.write_text(text)
    except (ValueError, OSError) as error:  # a NUL in the name, "a" next to "a/b", too long
        if isinstance(error, OSError) and error.errno in KINDS:
            raise  # the disk's fault
        raise SpecError(
            f"file {name!r} cannot be written: {error}", fix="give it another name"
        ) from error


LOG_TAG = "[mntrain]"
"""Prefix of our lines in a log that torchrun and the ranks write to."""


def topology_line(job_id: JobId, attempt: Attempt) -> str:
    """Format ``[mntrain] job j-… attempt 1: rank 0 on node1 (eth1 10.77.2.1, GPU 0); …``."""
    where = "; ".join(_one(placement) for placement in attempt.placements)
    return (
        f"{LOG_TAG} job {job_id} attempt {attempt.number}: {where}; "
        f"rendezvous at {attempt.master_address}:{attempt.master_port}"
    )


def _one(placement: Placement) -> str:
    ranks = placement.ranks
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]}-{ranks[-1]}"
    gpus = f", {_gpus(placement.gpus)}" if placement.gpus else ""
    return f"{who} on {placement.node} ({placement.interface} {placement.address}{gpus})"


def _gpus(indices: tuple[int, ...]) -> str:
    noun = "GPU" if len(indices) == 1 else "GPUs"
    return f"{noun} {', '.join(str(index) for index in indices)}"
