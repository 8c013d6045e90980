"""Measuring programs: started together in the jobs' Python, and bounded in time."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.plan import DEVICES_LIMIT_S, DeviceMeasurement
from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.telemetry.device import READY

PROGRAM = "jupyter_mntrain.telemetry.device.speed"

LEAST_S = 10.0
"""Of the limit, for measuring: loading torch may take the rest."""
LATE_SHARE = 0.85
"""Share of the remaining time that a program may take: it finishes its current piece after that."""

T = TypeVar("T")

_MOST_BYTES = 1 << 20
_TAIL_BYTES = 4096
_FIX = "run it there by hand to see more: {python} -m {program} {kind} {dtypes}"

_decoder = msgspec.json.Decoder(DeviceMeasurement)


async def run_programs(
    python: str, kind: str, environments: Sequence[Mapping[str, str]], dtypes: Sequence[str]
) -> list[list[DeviceMeasurement]]:
    """Run the program once for each environment, and measure in all at the same time.

    Args:
        kind: ``cpu`` or ``cuda``.

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
        try:
            await _within(left_s, "done", [one.measure(LATE_SHARE * left_s) for one in running])
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

    async def measure(self, seconds: float) -> None:
        """Let the program measure for about this long."""
        stdin = self._process.stdin
        with suppress(ConnectionError):
            if stdin is not None:
                stdin.write(f"{seconds:.1f}\n".encode())
                await stdin.drain()
        while (line := await self._line()) is not None:
            if line.startswith(b"{"):
                self.told.append(_decoder.decode(line))
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
