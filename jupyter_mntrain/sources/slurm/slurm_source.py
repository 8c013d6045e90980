"""SLURM as a source of nodes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.sources.source import (
    Allocation,
    NodeSource,
    NodesRequest,
    Slot,
    SlotCommand,
    SourceOption,
    Waiting,
)
from jupyter_mntrain.model.whereabouts import kept_folder
from jupyter_mntrain.sources.slurm.batch_script import GRANTS, HOSTS, SCRIPT, batch_script
from jupyter_mntrain.sources.slurm.folders import AllocationFolders, told_in
from jupyter_mntrain.sources.slurm.own_steps import OwnSteps, is_step_id
from jupyter_mntrain.sources.slurm.pending_reasons import pending_reason
from jupyter_mntrain.sources.slurm.queue_line import HeldNodes, QueueLine, allocation_of
from jupyter_mntrain.sources.slurm.refusals import (
    PARTITION_FORMAT,
    Partition,
    partitions,
    refusal,
)
from jupyter_mntrain.sources.slurm.slurm_options import JOBID, NAME, OPTIONS, TITLE
from jupyter_mntrain.sources.slurm.slurm_queue import (
    CommandResult,
    SlurmCommands,
    SlurmQueue,
    unknown_job,
)


class SlurmSource(NodeSource):
    """Requests nodes with SLURM's commands, on a login node or inside an interactive job.

    Each allocation has a folder, which all of its nodes must share, as home directories are: its
    script and log, the state of its agents, and as long as it is not given back, its secrets.

    Args:
        folder: under which they are made.
    """

    name = NAME
    title = TITLE

    def __init__(self, folder: Path | None = None, commands: SlurmCommands | None = None) -> None:
        root = folder or kept_folder("state") / "slurm"
        self._folders = AllocationFolders(root)
        self._commands = commands or SlurmCommands()
        self._queue = SlurmQueue(self._commands)
        self._own_steps = OwnSteps(self._folders, self._commands, self._queue)

    def options(self) -> tuple[SourceOption, ...]:
        return OPTIONS

    async def usual_nodes(self, request: NodesRequest) -> int:
        if request.option(JOBID):
            return await self._own_steps.usual_nodes(request)
        return await super().usual_nodes(request)

    def render(self, request: NodesRequest, command: SlotCommand) -> str:
        folder = self._folders.root / request.name
        if request.option(JOBID):
            return self._own_steps.render(request, command, folder)
        return batch_script(request, command, folder)

    async def check(self, request: NodesRequest) -> None:
        if request.option(JOBID):
            await self._own_steps.check(request)
            return
        script = self.render(request, SlotCommand(("true",)))
        said = await self._commands.run(["sbatch", "--test-only"], text=script)
        if said.code or "allocation failure" in said.complaint:
            raise await self._refusal(said, request)

    async def submit(self, request: NodesRequest, command: SlotCommand) -> Allocation:
        if request.option(JOBID):
            return await self._own_steps.submit(request, command)
        # The script is written first: what is wrong with the request leaves no folder behind.
        folder = self._folders.place(request)
        self._folders.make(folder, batch_script(request, command, folder), command)
        try:
            said = await self._commands.run(["sbatch", "--parsable", str(folder / SCRIPT)])
            if said.code:
                raise await self._refusal(said, request)
        except BaseException:
            self._folders.remove_unused(folder)
            raise
        job = said.output.strip().partition(";")[0]
        waiting = Waiting("None", pending_reason("None", job))
        slots = tuple(Slot(name) for name in request.slots)
        return Allocation(job, NAME, "pending", slots, waiting)

    async def look(self, allocation_id: str, request: NodesRequest) -> Allocation:
        try:
            if is_step_id(allocation_id):
                return await self._own_steps.look(allocation_id, request)
            line = await self._line(allocation_id, request)
            held = await self._held(line, request)
        except RefusedError as error:
            slots = tuple(Slot(name) for name in request.slots)
            return Allocation(allocation_id, NAME, "unknown", slots, problem=error.problem)
        return allocation_of(line, request, held)

    async def directory(self, allocation_id: str, request: NodesRequest) -> Path:
        if is_step_id(allocation_id):
            return self._own_steps.directory(allocation_id, request)
        return Path((await self._line(allocation_id, request)).folder)

    async def save(self, allocation_id: str, request: NodesRequest) -> None:
        if is_step_id(allocation_id):
            await self._own_steps.save(allocation_id, request)
            return
        line = await self._line(allocation_id, request)
        await self._queue.cancel("--batch", "--signal=USR2", line.job, job=line.job)

    async def give_back(self, allocation_id: str, request: NodesRequest) -> None:
        if is_step_id(allocation_id):
            await self._own_steps.give_back(allocation_id, request)
            return
        folder = await self.directory(allocation_id, request)
        self._folders.remove_secrets(folder)
        await self._queue.cancel(allocation_id, job=allocation_id)
        self._folders.remove_unused(folder)

    async def _line(self, job: str, request: NodesRequest) -> QueueLine:
        """Return the queue line of a job that this request has submitted.

        SLURM gives the numbers of jobs again: a job for another folder is another one, maybe one of
        the person's own.
        """
        line = await self._queue.line(job)
        if not self._folders.is_ours(Path(line.folder), request):
            raise unknown_job(job)
        return line

    async def _held(self, line: QueueLine, request: NodesRequest) -> HeldNodes:
        history = await self._queue.history(line.job)
        folder = Path(line.folder)
        hosts = {name: told_in(folder / HOSTS / name) for name in request.slots}
        # What nodes have told before the job was requeued stands there until its script runs again.
        is_current = told_in(folder / GRANTS) == str(history.restarts + 1)
        told = {name: host for name, host in hosts.items() if host and is_current}
        if not line.holds_nodes:
            return history._replace(hosts=told)
        states = await self._queue.states(line.nodes)
        allocated = await self._queue.expanded(line.nodes)
        return history._replace(hosts=told, allocated=allocated, states=states)

    async def _refusal(self, said: CommandResult, request: NodesRequest) -> RefusedError:
        return refusal(said.complaint or said.output, request, await self._partitions())

    async def _partitions(self) -> tuple[Partition, ...]:
        with suppress(RefusedError):
            said = await self._commands.run(["sinfo", "-h", "-o", PARTITION_FORMAT])
            return partitions(said.output)
        return ()
