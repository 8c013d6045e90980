"""Link capacities of this node: measured by a probe, or given by the user."""

from __future__ import annotations

from pathlib import Path

import msgspec

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.records.node import Capacity
from jupyter_mntrain.plan.rates import parse_bit_rate

_decoder = msgspec.json.Decoder(dict[str, Capacity])


class CapacityBook:
    """Capacities by interface name; measured ones survive a restart, given ones win."""

    def __init__(self, path: Path, given: dict[str, Capacity]) -> None:
        self._path = path
        self._given = given
        self._measured = _decoder.decode(path.read_bytes()) if path.exists() else {}

    def known(self) -> dict[str, Capacity]:
        return self._measured | self._given

    def keep(self, interface: str, capacity: Capacity) -> None:
        self._measured = self._measured | {interface: capacity}
        write_atomically(self._path, msgspec.json.encode(self._measured))


def parse_link_capacity(text: str) -> tuple[str, Capacity]:
    """``eth1=1gbit`` → interface and capacity in bytes per second."""
    name, equals, rate = text.partition("=")
    if not (name and equals):
        raise SpecError(
            f"--link-capacity {text!r} is not INTERFACE=RATE", fix="write it like eth1=1gbit"
        )
    return name, Capacity(bytes_per_s=parse_bit_rate(rate), source="given")
