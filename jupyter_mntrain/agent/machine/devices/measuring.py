"""Device meter: measures this node's devices in the way that the ranks of a job would use them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.machine.devices.device_book import DeviceBook
from jupyter_mntrain.agent.machine.devices.limits import cores, usable_cpus
from jupyter_mntrain.agent.machine.devices.programs import run_programs
from jupyter_mntrain.agent.machine.inventory import read_cpu_model
from jupyter_mntrain.agent.machine.software.pythons import activated
from jupyter_mntrain.agent.machine.software.workplace import Workplaces
from jupyter_mntrain.launch.torchrun import thread_environment
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.node import Gpu, Workplace
from jupyter_mntrain.model.records.plan import DeviceMeasurement, MeasureDevices
from jupyter_mntrain.plan.software.workplaces import refuse_lacking
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
            self._is_busy = False
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
        told = await run_programs(python, kind, environments, request.dtypes)
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
