"""Usage book: what this node's processors, GPUs and interfaces did, kept for a week."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from jupyter_mntrain.agent.machine.devices.memory_limit import usable_memory
from jupyter_mntrain.agent.machine.usage.usage_series import UsageSeries
from jupyter_mntrain.metrics.node_history import FIGURES, HistoryPart, PartKind
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.files import private_directory, write_atomically
from jupyter_mntrain.model.records.node import Beat
from jupyter_mntrain.model.text.file_name import file_name

log = logging.getLogger("mntrain.agent")

SAVE_INTERVAL_S = tunables.seconds("history.save_interval_s")

MOST_PARTS = tunables.count("history.parts")

DIRECTORY: Final = "history"
_PARTS: Final = "parts.json"

Own = Mapping[str, tuple[float, float]]
"""Bytes per second that ranks of jobs send and receive, by interface."""

_decoder = msgspec.json.Decoder(tuple[HistoryPart, ...])


class UsageBook:
    """The history of this node. Files are fixed in size; what is damaged counts as not known.

    Args:
        directory: of its files; made when there is something to write.
        clock: Unix time.
    """

    def __init__(
        self,
        directory: Path,
        clock: Callable[[], float] = time.time,
        save_interval_s: float = SAVE_INTERVAL_S,
    ) -> None:
        self._directory = directory
        self._save_interval_s = save_interval_s
        self._began_s = self._saved_s = clock()
        self._memory_bytes = usable_memory().total_bytes
        self._parts = {_name(part): part for part in _read(directory / _PARTS)}
        self._told: dict[str, HistoryPart] = {}
        """The parts as this agent has written them."""
        self._series: dict[str, UsageSeries] = {}

    def take(self, beat: Beat, own: Own, listed: Collection[str]) -> None:
        """Take a second.

        Args:
            listed: the interfaces that are kept.

        Raises:
            OSError: it cannot be saved; it is tried again.
        """
        used_bytes = self._memory_bytes - beat.memory_available_bytes
        node = HistoryPart(kind="node", total=float(self._memory_bytes))
        self._add(beat.time_s, node, (beat.cpu_share, used_bytes))
        for gpu in beat.gpus:
            card = HistoryPart(
                kind="gpu",
                key=gpu.uuid,
                index=gpu.index,
                model=gpu.name,
                total=float(gpu.memory_total_bytes),
            )
            figures = (gpu.utilization, gpu.memory_used_bytes, gpu.power_w, gpu.temperature_c)
            self._add(beat.time_s, card, figures)
        for one in (rate for rate in beat.interfaces if rate.name in listed):
            ours = own.get(one.name, (None, None))
            moved = (one.sent_bytes_per_s, one.received_bytes_per_s)
            self._add(beat.time_s, HistoryPart(kind="interface", key=one.name), (*moved, *ours))
        # A clock that was set back must not end the saving.
        if abs(beat.time_s - self._saved_s) >= self._save_interval_s:
            self._saved_s = beat.time_s
            self.save()

    def save(self) -> None:
        """Write what is new.

        Raises:
            OSError: the disk is full; what was not written is tried again.
        """
        private_directory(self._directory)
        for series in self._series.values():
            series.save()
        if self._told != self._parts:
            self._forget_old()
            content = msgspec.json.encode(tuple(self._parts.values()))
            write_atomically(self._directory / _PARTS, content)
            self._told = dict(self._parts)

    def parts(self) -> Iterator[tuple[HistoryPart, UsageSeries]]:
        """What is known of each part: the node, then GPUs, then interfaces."""
        order = list(FIGURES)
        for name, part in sorted(
            self._parts.items(), key=lambda one: (order.index(one[1].kind), one[1].index or 0)
        ):
            yield part, self._series_of(name, part.kind)

    def _add(self, time_s: float, part: HistoryPart, figures: Sequence[float | None]) -> None:
        name = _name(part)
        if name not in self._parts and len(self._parts) >= MOST_PARTS:
            return
        self._parts[name] = part
        self._series_of(name, part.kind).add(time_s, self._began_s, figures)

    def _series_of(self, name: str, kind: PartKind) -> UsageSeries:
        known = self._series.get(name)
        if known is None:
            known = self._series[name] = UsageSeries(self._directory / name, len(FIGURES[kind]))
        return known

    def _forget_old(self) -> None:
        """Delete what nothing was taken of for as long as anything is kept."""
        for name, part in list(self._parts.items()):
            if self._series_of(name, part.kind).remove_if_older(self._saved_s):
                del self._parts[name], self._series[name]


def _name(part: HistoryPart) -> str:
    """The beginning of its files' names."""
    return f"{part.kind}-{file_name(part.key)}" if part.key else part.kind


def _read(path: Path) -> tuple[HistoryPart, ...]:
    try:
        return _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s is not readable (%s): only what is present now is listed", path, error)
        return ()
