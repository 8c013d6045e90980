"""Beats of a machine with a GPU and two interfaces, at any time, and its book of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from jupyter_mntrain.agent.machine.usage import Span, UsageBook, gaps, part_over, span_of
from jupyter_mntrain.metrics.node_history import Figure, HistoryGap, HistoryLine, HistoryPart
from jupyter_mntrain.model.records.node import Heartbeat, InterfaceRate
from tests.standin.nodes import gpu

MEMORY_BYTES = psutil.virtual_memory().total


def heartbeat(
    time_s: float, cpu: float = 0.25, *, gpus: int = 1, temperature: float = 40.0
) -> Heartbeat:
    return Heartbeat(
        time_s=time_s,
        interfaces=(rate("eth0", 1000.0), rate("docker0", 5.0), rate("eth1", 0.0)),
        gpus=tuple(
            gpu(index, utilization=cpu, power_w=None, temperature_c=temperature)
            for index in range(gpus)
        ),
        cpu_share=cpu,
        memory_available_bytes=MEMORY_BYTES - (1 << 30),
    )


def rate(name: str, bytes_per_s: float) -> InterfaceRate:
    return InterfaceRate(
        name=name,
        sent_bytes_per_s=bytes_per_s,
        received_bytes_per_s=2 * bytes_per_s,
        sent_bytes=int(bytes_per_s),
        received_bytes=0,
    )


@dataclass
class Machine:
    """Its clock is ``now_s``."""

    directory: Path
    now_s: float
    book: UsageBook = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """As if the agent had been killed and begun again."""
        self.book = UsageBook(
            self.directory,
            clock=lambda: self.now_s,
            save_interval_s=500.0,
        )

    def live(self, seconds: Iterable[float], **figures: float) -> None:
        for self.now_s in seconds:
            self.book.take(heartbeat(self.now_s, **figures), {"eth0": (900.0, 1.0)}, {"eth0"})

    def span(self, last_s: float, points: int) -> Span:
        return span_of(self.now_s - last_s, self.now_s, self.now_s, points)

    def parts(self, last_s: float, points: int = 100_000) -> dict[str, HistoryPart]:
        self.book.save()
        span = self.span(last_s, points)
        parts = [part_over(part, series, span) for part, series in self.book.parts()]
        return {part.key or part.kind: part for part in parts}

    def line(
        self, last_s: float, points: int = 100_000, part: str = "node", figure: Figure = "cpu_share"
    ) -> HistoryLine:
        return next(one for one in self.parts(last_s, points)[part].lines if one.figure == figure)

    def gaps(self, last_s: float) -> tuple[HistoryGap, ...]:
        self.book.save()
        _, node = next(self.book.parts())
        return gaps(node, self.span(last_s, 600))

    @property
    def disk_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.directory.iterdir())
