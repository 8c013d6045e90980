"""A node's history for verbs and pages: an hour with a job, a gap and a card."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import sin
from typing import Any

import msgspec

from jupyter_mntrain.cluster.handle.usage import DOING, NodeDevices
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.metrics.node_history import (
    Figure,
    HistoryGap,
    HistoryJob,
    HistoryLine,
    HistoryPart,
    NodeHistory,
)
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.records.job import Participant
from tests.standin.devices import device, layer
from tests.standin.pipeline import BEGIN_S

HOUR_S = 3600.0
GIB = float(1 << 30)


def sample_history(points: int, *, last_s: float = HOUR_S, end_s: float = BEGIN_S) -> NodeHistory:
    """A job from a quarter of the time on, and an agent that was off for a tenth of it."""
    step_s, begin_s = last_s / points, end_s - last_s
    off = _off(points)
    gap = HistoryGap(
        begin_s=begin_s + off.start * step_s, end_s=begin_s + off.stop * step_s, state="off"
    )
    job = HistoryJob(
        job_id=JobId("j-0123abcd"),
        name="llama-lora",
        state="running",
        ranks=(Rank(0), Rank(1)),
        gpus=(0,),
        begin_s=begin_s + 0.25 * last_s,
    )
    return NodeHistory(
        node_id=NodeId("0" * 32),
        node="wopr",
        begin_s=begin_s,
        step_s=step_s,
        points=points,
        parts=_parts(points),
        gaps=(gap,),
        jobs=(job,),
    )


def _off(points: int) -> range:
    return range(round(0.7 * points), round(0.8 * points))


def _parts(points: int) -> tuple[HistoryPart, ...]:
    line = partial(_line, points)
    return (
        HistoryPart(
            kind="node",
            total=64 * GIB,
            lines=(line("cpu_share", 0.02, 0.4), line("memory_bytes", 4 * GIB, 20 * GIB)),
        ),
        HistoryPart(
            kind="gpu",
            key="GPU-1",
            index=0,
            model="RTX 3090",
            total=24 * GIB,
            lines=(
                line("utilization", 0.0, 0.9),
                line("memory_bytes", GIB, 11 * GIB),
                line("power_w", 20.0, 300.0),
                line("temperature_c", 38.0, 70.0),
            ),
        ),
        HistoryPart(
            kind="interface",
            key="eno1",
            total=125e6,
            lines=(
                line("sent_bytes_per_s", 1e3, 12e6),
                line("received_bytes_per_s", 1e3, 40e6),
                line("own_sent_bytes_per_s", 0.0, 11e6),
                line("own_received_bytes_per_s", 0.0, 8e6),
            ),
        ),
    )


def _line(points: int, figure: Figure, idle: float, busy: float) -> HistoryLine:
    off = _off(points)

    def value(index: int) -> float | None:
        if index in off:
            return None
        return idle if index < 0.25 * points else busy * (1 + 0.05 * sin(index))

    mean = tuple(map(value, range(points)))
    high = tuple(None if one is None else one * 1.1 for one in mean)
    low = tuple(None if one is None else one * 0.9 for one in mean)
    return HistoryLine(figure=figure, mean=mean, low=low, high=high)


class StandInUsage:
    """As `cluster.usage`; it knows the history of one node."""

    def __init__(self) -> None:
        self.gpu_note: str | None = None
        self.devices_asked: list[tuple[Participant, str | None]] = []
        self.lacking: dict[str, Problem] = {}
        """Why nodes measure no devices."""
        self.disturbed = ""

    def measure_devices(
        self,
        participants: Sequence[Participant],
        *,
        python: str | None = None,
        progress: Progress = SILENT,
    ) -> tuple[NodeDevices, ...]:
        progress.report(DOING, 0, len(participants))
        self.devices_asked += [(one, python) for one in participants]
        return tuple(map(self._devices, participants))

    def _devices(self, one: Participant) -> NodeDevices:
        if one.node in self.lacking:
            return NodeDevices(one.node, problem=self.lacking[one.node])
        on = [{"gpu": index, "uuid": f"GPU-{index}", "device": "RTX"} for index in one.gpus]
        layers = (layer(256, 0.02), layer(256, 0.3, 1024))
        return NodeDevices(
            one.node,
            tuple(
                device(dtype, ranks=one.nproc, layers=layers, disturbed=self.disturbed, **fields)
                for fields in on or [{}]
                for dtype in ("float32", "bfloat16")
            ),
        )

    def history(
        self, node: str, *, last_s: float = HOUR_S, points: int = 600, **_: Any
    ) -> NodeHistory:
        if node != "wopr":
            raise SpecError(f"unknown node {node!r}", fix="use one of wopr")
        found = sample_history(points, last_s=last_s)
        if self.gpu_note is None:
            return found
        parts = tuple(part for part in found.parts if part.kind != "gpu")
        return msgspec.structs.replace(found, parts=parts, gpu_note=self.gpu_note)
