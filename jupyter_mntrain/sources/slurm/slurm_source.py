"""SLURM as a source of nodes."""

from __future__ import annotations

import secrets
import shutil
from contextlib import suppress
from pathlib import Path

import platformdirs

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.sources.allocation import Allocation, Slot, Waiting
from jupyter_mntrain.model.sources.options import SourceOption
from jupyter_mntrain.model.sources.request import NodesRequest, SlotCommand
from jupyter_mntrain.model.sources.source import NodeSource
from jupyter_mntrain.sources.slurm.batch_script import (
    GRANTS,
    HOSTS,
    SCRIPT,
    SECRETS_FOLDER,
    batch_script,
)
from jupyter_mntrain.sources.slurm.commands import CommandResult, SlurmCommands
from jupyter_mntrain.sources.slurm.pending_reasons import pending_reason
from jupyter_mntrain.sources.slurm.queue_line import (
    NODES_FORMAT,
    QUEUE_FORMAT,
    HeldNodes,
    QueueLine,
    allocation_of,
    history_of,
    node_states,
    queue_line,
)
from jupyter_mntrain.sources.slurm.refusals import (
    PARTITION_FORMAT,
    Partition,
    partitions,
    refusal,
)
from jupyter_mntrain.sources.slurm.slurm_options import NAME, OPTIONS, TITLE


class SlurmSource(NodeSource):
    """Asks SLURM by its commands, on a login node or inside of an interactive job.

    Each allocation has a folder, which all of its nodes must share, as home directories are: its
    script and log, the state of its agents, and as long as it is not given back, its secrets.

    Args:
        folder: under which they are made.
    """

    name = NAME
    title = TITLE

    def __init__(self, folder: Path | None = None, commands: SlurmCommands | None = None) -> None:
        self._folder = folder or platformdirs.user_state_path("mntrain") / "slurm"
        self._commands = commands or SlurmCommands()
        self._hosts: dict[str, tuple[str, ...]] = {}

    def options(self) -> tuple[SourceOption, ...]:
        return OPTIONS

    def render(self, request: NodesRequest, command: SlotCommand) -> str:
        return batch_script(request, command, self._folder / request.name)

    async def check(self, request: NodesRequest) -> None:
        script = self.render(request, SlotCommand(("true",)))
        said = await self._commands.run(["sbatch", "--test-only"], text=script)
        if said.code or "allocation failure" in said.complaint:
            raise await self._refusal(said, request)

    async def submit(self, request: NodesRequest, command: SlotCommand) -> Allocation:
        # The script is written first: what is wrong with the request leaves no folder behind.
        folder = self._folder / f"{request.name}-{secrets.token_hex(4)}"
        script = batch_script(request, command, folder)
        folder.mkdir(parents=True, mode=0o700)
        try:
            (folder / SCRIPT).write_text(script)
            _write_secrets(folder / SECRETS_FOLDER, command)
            said = await self._commands.run(["sbatch", "--parsable", str(folder / SCRIPT)])
            if said.code:
                raise await self._refusal(said, request)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        job = said.output.strip().partition(";")[0]
        waiting = Waiting("None", pending_reason("None", job))
        slots = tuple(Slot(name) for name in request.slots)
        return Allocation(job, NAME, "pending", slots, waiting)

    async def look(self, allocation_id: str, request: NodesRequest) -> Allocation:
        try:
            line = await self._line(allocation_id, request)
            held = await self._held(line, request)
        except RefusedError as error:
            slots = tuple(Slot(name) for name in request.slots)
            return Allocation(allocation_id, NAME, "unknown", slots, problem=error.problem)
        return allocation_of(line, request, held)

    async def directory(self, allocation_id: str, request: NodesRequest) -> Path:
        return Path((await self._line(allocation_id, request)).folder)

    async def save(self, allocation_id: str, request: NodesRequest) -> None:
        await self._line(allocation_id, request)
        words = ["scancel", "--batch", "--signal=USR2", allocation_id]
        await self._done(words, allocation_id)

    async def give_back(self, allocation_id: str, request: NodesRequest) -> None:
        folder = await self.directory(allocation_id, request)
        shutil.rmtree(folder / SECRETS_FOLDER, ignore_errors=True)
        await self._done(["scancel", allocation_id], allocation_id)
        if not any(folder.glob(f"{NAME}-*")):
            shutil.rmtree(folder, ignore_errors=True)  # nothing has run: it holds no records

    def _is_ours(self, folder: Path, request: NodesRequest) -> bool:
        """Whether a submission of this request made a folder, not a person who works in it. Ours is
        gone once it was given back before anything ran.
        """
        is_place = (
            folder.is_absolute()
            and folder.resolve().parent == self._folder.resolve()
            and folder.name.startswith(f"{request.name}-")
        )
        return is_place and (not folder.exists() or (folder / SCRIPT).is_file())

    async def _done(self, words: list[str], job: str) -> None:
        said = await self._commands.run(words)
        if said.code:
            raise _unknown_job(job, said.complaint)

    async def _line(self, job: str, request: NodesRequest) -> QueueLine:
        """What SLURM says of a job that this request has queued.

        SLURM gives the numbers of jobs again: a job for another folder is another one, maybe one of
        the person's own.
        """
        words = ["squeue", "-h", "-t", "all", "-j", job, "-o", QUEUE_FORMAT]
        said = await self._commands.run(words)
        line = queue_line(said.output)
        if line is None:
            raise _unknown_job(job, said.complaint)
        if not self._is_ours(Path(line.folder), request):
            raise _unknown_job(job)
        return line

    async def _held(self, line: QueueLine, request: NodesRequest) -> HeldNodes:
        words = ["scontrol", "--oneliner", "show", "job", line.job]
        history = history_of((await self._commands.run(words)).output)
        folder = Path(line.folder)
        hosts = {name: _read(folder / HOSTS / name) for name in request.slots}
        # What nodes have told before the job was requeued stands there until its script runs again.
        is_current = _read(folder / GRANTS) == str(history.restarts + 1)
        told = {name: host for name, host in hosts.items() if host and is_current}
        if not line.holds_nodes:
            return history._replace(hosts=told)
        words = ["sinfo", "-h", "-N", "-n", line.nodes, "-o", NODES_FORMAT]
        states = node_states((await self._commands.run(words)).output)
        allotted = await self._expanded(line.nodes)
        return history._replace(hosts=told, allotted=allotted, states=states)

    async def _expanded(self, nodes: str) -> tuple[str, ...]:
        """The names in a short form of SLURM's, in its order."""
        if nodes not in self._hosts:
            said = await self._commands.run(["scontrol", "show", "hostnames", nodes])
            self._hosts[nodes] = tuple(said.output.split())
        return self._hosts[nodes]

    async def _refusal(self, said: CommandResult, request: NodesRequest) -> RefusedError:
        return refusal(said.complaint or said.output, request, await self._partitions())

    async def _partitions(self) -> tuple[Partition, ...]:
        with suppress(RefusedError):
            said = await self._commands.run(["sinfo", "-h", "-o", PARTITION_FORMAT])
            return partitions(said.output)
        return ()


def _read(path: Path) -> str:
    """What a node has told in a file; nothing if it has not."""
    with suppress(OSError):
        return path.read_text().strip()
    return ""


def _write_secrets(folder: Path, command: SlotCommand) -> None:
    if command.secrets:
        folder.mkdir(mode=0o700)
    for name, text in command.secrets.items():
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(text)


def _unknown_job(job: str, complaint: str = "") -> RefusedError:
    told = " ".join(complaint.split())
    if "Invalid job id" in told or not told:
        return RefusedError(
            f"SLURM knows no job {job} any more",
            kind=Kind.SCHEDULER_REFUSED,
            fix="it ended a while ago; its record says how: mntrain jobs",
        )
    return RefusedError(
        f"SLURM does not say how job {job} is: {told}",
        kind=Kind.NO_SCHEDULER,
        fix="try again; if scontrol ping says DOWN, ask the administrators",
    )
