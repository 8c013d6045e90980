"""Device book: stores the measured speeds of this node's devices, as long as they are valid."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.records.node import Gpu
from jupyter_mntrain.model.records.plan import AchievedRate, DeviceMeasurement
from jupyter_mntrain.plan.measured_speeds import correction

log = logging.getLogger("mntrain.agent")

Key = tuple[str, str, int, str]

_decoder = msgspec.json.Decoder(tuple[DeviceMeasurement, ...])


class DeviceBook:
    """Stores the newest measurement of each device and dtype on disk; of the CPU, one for each
    number of ranks. Safe from any thread, if only one stores at a time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._measured = {_key(one): one for one in _read(path)}

    def valid(
        self, cpu: str, cores: float, gpus: Iterable[Gpu], torch: str | None
    ) -> tuple[DeviceMeasurement, ...]:
        """Return measurements that are still valid: the device exists, and torch and the CPU limit
        are unchanged.

        Args:
            cpu: its model.
            torch: its version in the agent's own Python.
        """
        indices = {gpu.uuid: gpu.index for gpu in gpus}
        return tuple(self._valid(cpu, cores, indices, torch))

    def _valid(
        self, cpu: str, cores: float, indices: dict[str, int], torch: str | None
    ) -> Iterator[DeviceMeasurement]:
        for one in self._measured.values():
            if not one.python and one.torch != torch:
                continue
            if not one.uuid and (one.device, one.cpus) == (cpu, cores):
                yield one
            elif one.uuid in indices:
                yield msgspec.structs.replace(one, gpu=indices[one.uuid])

    def keep(self, new: DeviceMeasurement) -> None:
        """Store a measurement. A disturbed one is only a lower bound. It does not replace a faster
        undisturbed one, or one that a job has corrected since, of the same torch and CPU limit.
        """
        old = self._measured.get(_key(new))
        if old is not None and (old.torch, old.cpus, old.device) == (
            new.torch,
            new.cpus,
            new.device,
        ):
            is_faster = not old.disturbed and new.flops_per_s < old.flops_per_s
            if new.disturbed and (is_faster or correction(old) is not None):
                return
            new = msgspec.structs.replace(new, achieved=old.achieved)
        self._write({**self._measured, _key(new): new})

    def keep_achieved(self, measured: DeviceMeasurement, rate: AchievedRate) -> None:
        """Store what a job achieved next to a measurement, if that still exists."""
        old = self._measured.get(_key(measured))
        if old is not None:
            self._write({**self._measured, _key(old): msgspec.structs.replace(old, achieved=rate)})

    def _write(self, measured: dict[Key, DeviceMeasurement]) -> None:
        self._measured = measured
        write_atomically(self._path, msgspec.json.encode(tuple(measured.values())))


def _key(one: DeviceMeasurement) -> Key:
    return one.uuid, one.dtype, 1 if one.uuid else one.ranks, one.python


def _read(path: Path) -> tuple[DeviceMeasurement, ...]:
    if not path.exists():
        return ()
    try:
        return _decoder.decode(path.read_bytes())
    except msgspec.DecodeError as error:
        log.warning("%s is not readable (%s): devices count as not measured", path, error)
        return ()
