"""Link book: stores link capacities that this node measured as sender, or that the user gave."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.records.node import Capacity, Interface, LinkMeasurement
from jupyter_mntrain.plan.networks.outdated import known_links, marked_at_sender
from jupyter_mntrain.plan.rates import parse_bit_rate

log = logging.getLogger("mntrain.agent")

_decoder = msgspec.json.Decoder(tuple[LinkMeasurement, ...])


class LinkBook:
    """Stores the newest measurement to each receiver over each interface, on disk: one over a
    single connection, one over several, and what messages of each backend achieved.

    Args:
        given: the user's figures by interface name.
    """

    def __init__(self, path: Path, given: Mapping[str, Capacity]) -> None:
        self._path = path
        self._given = given
        self._measured = {_key(one): one for one in _read(path)}
        self._now: dict[str, Interface] = {}
        """The interfaces as they were read last."""

    def given(self, interface: str) -> Capacity | None:
        return self._given.get(interface)

    def measured(self, interface: str) -> tuple[LinkMeasurement, ...]:
        """Return one measurement per receiver, without those from before the interface changed."""
        if interface in self._now:
            return known_links(self._attached(self._now[interface]).links)
        return known_links(self._all(interface))

    def attach(self, interfaces: Iterable[Interface]) -> tuple[Interface, ...]:
        """Return the interfaces with all that is known of their links, outdated parts marked."""
        self._now = {one.name: one for one in interfaces}
        return tuple(map(self._attached, self._now.values()))

    def _attached(self, interface: Interface) -> Interface:
        name = interface.name
        return marked_at_sender(
            msgspec.structs.replace(
                interface,
                given=self.given(name),
                links=self._all(name),
                benched=self._all(name, is_benched=True),
            )
        )

    def _all(self, interface: str, *, is_benched: bool = False) -> tuple[LinkMeasurement, ...]:
        return tuple(
            one
            for one in self._measured.values()
            if one.interface == interface and bool(one.backend) == is_benched
        )

    def keep(self, link: LinkMeasurement) -> None:
        """Store a measurement. A disturbed one is only a lower bound, and does not replace a higher
        undisturbed one between the same interfaces.
        """
        key, new = _key(link), link.capacity
        before = self._measured.get(key)
        old = before.capacity if before is not None and before.ends == link.ends else None
        is_bound = new.condition != "alone" and old is not None and old.condition == "alone"
        if old is not None and is_bound and new.bytes_per_s < old.bytes_per_s:
            return
        self._measured = self._measured | {key: link}
        write_atomically(self._path, msgspec.json.encode(tuple(self._measured.values())))


def _key(link: LinkMeasurement) -> tuple[str, str, bool, str]:
    return link.interface, link.receiver, link.streams > 1, link.backend


def _read(path: Path) -> tuple[LinkMeasurement, ...]:
    if not path.exists():
        return ()
    try:
        return _decoder.decode(path.read_bytes())
    except msgspec.DecodeError as error:
        log.warning("%s is not readable (%s): links count as not measured", path, error)
        return ()


def parse_link_capacity(text: str) -> tuple[str, Capacity]:
    """Parse ``eth1=1gbit`` into the interface and its capacity in bytes per second."""
    name, equals, rate = text.partition("=")
    if not (name and equals):
        raise SpecError(
            f"--link-capacity {text!r} is not INTERFACE=RATE", fix="write it like eth1=1gbit"
        )
    return name, Capacity(bytes_per_s=parse_bit_rate(rate), source="given")
