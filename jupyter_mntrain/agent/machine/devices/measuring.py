"""Device meter: measures this node's devices in the way that the ranks of a job would use them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from jupyter_mntrain.agent.machine.devices.device_book import DeviceBook
from jupyter_mntrain.agent.machine.devices.limits import cores, usable_cpus
from jupyter_mntrain.agent.machine.inventory import read_cpu_model
from jupyter_mntrain.agent.machine.software.pythons import activated
from jupyter_mntrain.agent.machine.software.workplace import Workplaces
from jupyter_mntrain.launch.torchrun import thread_environment
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.node import Gpu, Workplace
from jupyter_mntrain.model.records.plan import DEVICES_LIMIT_S, DeviceMeasurement, MeasureDevices
from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.plan.software.workplaces import refuse_lacking
from jupyter_mntrain.telemetry.device import BEGINS, READY
from jupyter_mntrain.telemetry.gpus import GpuReader

BESIDE_A_JOB = "beside a job"


class DeviceMeter:
    """Measures devices, one request at a time, and never while a job runs.

    Args:
        python: interpreter of jobs that ask for none.
        workplaces: tells what interpreters have.
        book: keeps what was measured.
    """

    def __init__(
        self, python: str, gpus: GpuReader, workplaces: Workplaces, book: DeviceBook
    ) -> None:
        self._python = python
        self._gpus = gpus
        self._workplaces = workplaces
        self.book = book
        self.dtype: str | None = None
        """What is being measured; ``None`` while torch is loaded, too."""
        self._is_busy = False

    async def measure(
        self, request: MeasureDevices, node: str, has_job: Callable[[], bool]
    ) -> tuple[DeviceMeasurement, ...]:
        """Measure devices, and store the results.

        Args:
            node: this one's name.
            has_job: whether a job holds a lease on this node now.

        Raises:
            RefusedError: a job runs, or is about to; another measurement is under way; there is no
                such GPU; the interpreter lacks torch; or a program died or took too long.
        """
        if has_job():
            raise RefusedError(
                "a job runs on it, or is about to: both would be slowed",
                kind=Kind.STILL_RUNNING,
                fix="measure again when it has ended",
                node=node,
            )
        if self._is_busy:
            raise RefusedError(
                "its devices are being measured", fix="try again in a minute", node=node
            )
        self._is_busy = True
        try:
            measured = await self._measured(request, node)
        except RefusedError as error:
            raise RefusedError.of(msgspec.structs.replace(error.problem, node=node)) from error
        finally:
            self._is_busy, self.dtype = False, None
        if has_job():  # it began meanwhile
            measured = [_disturbed(one, BESIDE_A_JOB) for one in measured]
        for one in measured:
            self.book.keep(one)
        return tuple(measured)

    async def _measured(self, request: MeasureDevices, node: str) -> list[DeviceMeasurement]:
        gpus = _chosen(request.gpus, self._gpus.read(), node)
        asked = Workplace(python=request.python, trains=True)
        found = await asyncio.to_thread(self._workplaces.look, asked)
        refuse_lacking([(node, found)])
        python = found.python or self._python
        ranks = len(gpus) or request.ranks
        own = {**os.environ, **(activated(Path(python)) if request.python else {})}
        environments = [{**own, **rank_environment(rank, ranks, gpus)} for rank in range(ranks)]
        kind = "cuda" if gpus else "cpu"
        told = await run_programs(python, kind, environments, request.dtypes, self._begins)
        known = {
            "ranks": ranks,
            "cpus": cores(),
            "python": python if request.python else "",
            "time_s": time.time(),
        }
        if not gpus:
            cpu = read_cpu_model()
            return [
                msgspec.structs.replace(_slowest(told, dtype), device=cpu, **known)
                for dtype in request.dtypes
                if any(one.dtype == dtype for lines in told for one in lines)
            ]
        return [
            msgspec.structs.replace(one, gpu=gpu.index, uuid=gpu.uuid, **known)
            for gpu, lines in zip(gpus, told, strict=True)
            for one in lines
        ]

    def _begins(self, dtype: str) -> None:
        self.dtype = dtype


def rank_environment(rank: int, ranks: int, gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the variables that torchrun and mntrain set for a rank and that affect its speed.

    Args:
        ranks: of this node.
        gpus: one for each of them; empty: the CPU.
    """
    return {
        **thread_environment(usable_cpus(), ranks),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(ranks),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": gpus[rank].uuid if gpus else "",
    }


def _slowest(told: Sequence[Sequence[DeviceMeasurement]], dtype: str) -> DeviceMeasurement:
    """Return the measurement of the slowest rank, because others wait for it."""
    found = [one for lines in told for one in lines if one.dtype == dtype]
    slowest = min(found, key=lambda one: one.flops_per_s)
    words = next((one.disturbed for one in found if one.disturbed), "")
    return msgspec.structs.replace(slowest, disturbed=words)


def _disturbed(one: DeviceMeasurement, by: str) -> DeviceMeasurement:
    words = ", ".join(filter(None, (one.disturbed, by)))
    return msgspec.structs.replace(one, disturbed=words)


def _chosen(indices: Sequence[int], gpus: Sequence[Gpu], node: str) -> list[Gpu]:
    by_index: Mapping[int, Gpu] = {gpu.index: gpu for gpu in gpus}
    for index in indices:
        if index not in by_index:
            there = ", ".join(map(str, by_index)) or "none"
            raise RefusedError(
                f"there is no GPU {index} (available: {there})",
                kind=Kind.NO_GPU,
                fix="choose one that 'nodes' lists",
                node=node,
            )
    return [by_index[index] for index in dict.fromkeys(indices)]


# Measuring programs: started together in the jobs' Python, and bounded in time.


PROGRAM = "jupyter_mntrain.telemetry.device.speed"

LEAST_S = 10.0
"""Of the limit, for measuring: loading torch may take the rest."""
LATE_SHARE = 0.85
"""Share of the remaining time that a program may take: it finishes its current piece after that."""

T = TypeVar("T")

_MOST_BYTES = 1 << 20
_TAIL_BYTES = 4096
_BEGINS = BEGINS.encode()
_FIX = "run it there by hand to see more: {python} -m {program} {kind} {dtypes}"

_decoder = msgspec.json.Decoder(DeviceMeasurement)


async def run_programs(
    python: str,
    kind: str,
    environments: Sequence[Mapping[str, str]],
    dtypes: Sequence[str],
    begins: Callable[[str], None],
) -> list[list[DeviceMeasurement]]:
    """Run the program once for each environment, and measure in all at the same time.

    Args:
        kind: ``cpu`` or ``cuda``.
        begins: receives each dtype that one of them begins to measure.

    Returns:
        What each measured, one for each dtype that their devices can compute in, and that all of
        them were done with in time.

    Raises:
        RefusedError: one of them died, or took too long for the first dtype. All of them are gone.
    """
    end_s = time.monotonic() + DEVICES_LIMIT_S
    fix = _FIX.format(python=python, program=PROGRAM, kind=kind, dtypes=" ".join(dtypes))
    running: list[_Running] = []
    try:
        for environment in environments:
            command = (python, "-m", PROGRAM, kind, *dtypes)
            running.append(await _Running.start(command, environment))
        await _within(DEVICES_LIMIT_S - LEAST_S, "loaded", [one.ready() for one in running])
        left_s = end_s - time.monotonic()
        measuring = [one.measure(LATE_SHARE * left_s, begins) for one in running]
        try:
            await _within(left_s, "done", measuring)
        except _LateError:
            if not _common(running):
                raise
    except (_DeadError, OSError) as error:
        cause = f"the program that measures devices failed: {error}"
        raise RefusedError(cause, fix=fix) from error
    finally:
        for one in running:
            await one.end()
    dtypes_told = _common(running)
    return [[line for line in one.told if line.dtype in dtypes_told] for one in running]


def _common(running: Sequence[_Running]) -> set[str]:
    """Return the dtypes that all programs have measured."""
    return set.intersection(*({line.dtype for line in one.told} for one in running))


class _DeadError(Exception):
    """A program ended without an answer, or gave none in time."""


class _LateError(_DeadError):
    """A program gave no answer in time."""


async def _within(limit_s: float, what: str, work: Iterable[Awaitable[T]]) -> list[T]:
    try:
        return await asyncio.wait_for(asyncio.gather(*work), limit_s)
    except TimeoutError as error:
        raise _LateError(f"it was not {what} within {limit_s:.3g} s") from error


class _Running:
    """A running program, which leads its own process group."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.told: list[DeviceMeasurement] = []
        """What it has measured so far."""
        self._tail = b""
        self._reading = asyncio.ensure_future(self._read_errors())

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str]) -> _Running:
        return cls(
            await asyncio.create_subprocess_exec(
                *command,
                env=environment,
                cwd="/",  # ``-m`` imports what lies in the folder that it runs in
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                start_new_session=True,
                limit=_MOST_BYTES,
            )
        )

    async def ready(self) -> None:
        """Wait until the program has loaded."""
        while (line := await self._line()) != READY.encode():
            if line is None:
                raise await self._dead()

    async def measure(self, seconds: float, begins: Callable[[str], None]) -> None:
        """Let the program measure for about this long."""
        stdin = self._process.stdin
        with suppress(ConnectionError):
            if stdin is not None:
                stdin.write(f"{seconds:.1f}\n".encode())
                await stdin.drain()
        while (line := await self._line()) is not None:
            if line.startswith(b"{"):
                self.told.append(_decoder.decode(line))
            elif line.startswith(_BEGINS):
                begins(line.removeprefix(_BEGINS).decode())
        if await self._process.wait() or not self.told:
            raise await self._dead()

    async def end(self) -> None:
        """Kill the program and its children, unless it has ended."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        self._reading.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading

    async def _line(self) -> bytes | None:
        """Return the program's next line without its newline; ``None`` after the last one."""
        stdout = self._process.stdout
        try:
            line = await stdout.readline() if stdout is not None else b""
        except ValueError as error:  # a line that is longer than the limit
            raise _DeadError("it printed something other than its figures") from error
        return line.strip() if line else None

    async def _dead(self) -> _DeadError:
        code = await self._process.wait()
        await self._reading
        lines = self._tail.decode(errors="replace").strip().splitlines()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return _DeadError(f"{how}: {shown_line(lines[-1])}" if lines else how)

    async def _read_errors(self) -> None:
        stderr = self._process.stderr
        while stderr is not None and (piece := await stderr.read(_TAIL_BYTES)):
            self._tail = (self._tail + piece)[-_TAIL_BYTES:]
