"""Measured speeds: looks up speeds of devices and links, measured alone or by a job. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Final, NamedTuple

from jupyter_mntrain.model.records.node import Capacity, Interface, Latency, NodeInfo
from jupyter_mntrain.model.records.plan import (
    DeviceMeasurement,
    DeviceSpeed,
    LinkSpeed,
    MeasuredLayer,
)
from jupyter_mntrain.plan.link_capacities import LinkCapacities
from jupyter_mntrain.plan.networks.outdated import known_links, marked_at_receivers
from jupyter_mntrain.telemetry.formulas import ModelShape, layer_flops_per_token

# Known speeds: of devices and links as a job had them, instead of what nodes report of them.


class KnownSpeeds(NamedTuple):
    """Speeds of devices and links that a job has measured.

    Args:
        devices: by node and device, as a plan names them; of several ranks on one, the slowest.
        links: by the nodes of sender and receiver; of several ranks, the slowest.
    """

    devices: Mapping[tuple[str, str], DeviceSpeed] = {}
    links: Mapping[tuple[str, str], LinkSpeed] = {}


NOTHING = KnownSpeeds()


# Link speeds: what a plan expects of every link between participants, or guesses. Pure.


Pair = tuple[int, int]
"""Sending and receiving participant, as indices."""

PAYLOAD_SHARE: Final = 1448 / 1514
"""What TCP with timestamps carries of each Ethernet frame; assumed of links not measured."""

ASSUMED_BYTES_PER_S: Final[Mapping[str, float]] = {"wireless": 100e6 / 8, "loopback": 16e9 / 8}
"""Speed of an interface that does not report one, by kind; 1 Gbit/s for other kinds."""

ASSUMED_LATENCY_S: Final[Mapping[str, float]] = {"wireless": 2e-3, "loopback": 3e-5}
"""Latency of a link that was not measured, by the interface's kind; 0.1 ms for other kinds."""


def link_speeds(
    nodes: Sequence[NodeInfo],
    interfaces: Sequence[Interface],
    given: Capacity | None = None,
    *,
    is_for_many_streams: bool = False,
) -> dict[Pair, LinkSpeed]:
    """Return the expected link speed of every ordered pair of participants.

    In this order: what the user gave, what messages of the same backend reached in a benchmark,
    what was measured, what was measured in the other direction, the nominal speed of the slower
    interface, and 1 Gbit/s (wireless 100 Mbit/s, loopback 16 Gbit/s). Only the first three are not
    guesses.

    Args:
        nodes: the participants' nodes, in node-rank order.
        interfaces: the chosen interface of each, see
            :func:`~jupyter_mntrain.plan.interfaces.choose_interfaces`.
        given: the user's figure for all links; ``None`` if there is none.
        is_for_many_streams: for NCCL: prefer what was measured over several connections at once,
            which it has over Ethernet; Gloo has one per pair.
    """
    backend = "nccl" if is_for_many_streams else "gloo"
    known = LinkCapacities(given)
    latencies: dict[tuple[str, str], Latency] = {}
    names = [one.name for one in interfaces]
    for node, name in zip(marked_at_receivers(nodes), names, strict=True):
        interface = next(one for one in node.inventory.interfaces if one.name == name)
        measured = known_links(interface.links, is_for_many_streams=is_for_many_streams)
        benched = known_links([one for one in interface.benched if one.backend == backend])
        links = tuple({one.receiver: one for one in (*measured, *benched)}.values())
        known.add(node.name, interface.given, links)
        latencies |= {(node.name, one.receiver): one.latency for one in links if one.latency}
    found = {}
    for pair in permutations(range(len(nodes)), 2):
        sender, receiver = (nodes[one].name for one in pair)
        ends = interfaces[pair[0]], interfaces[pair[1]]
        latency = latencies.get((sender, receiver)) or latencies.get((receiver, sender))
        bytes_per_s, source, is_measured = _link_rate(
            known.between(sender, receiver), known.between(receiver, sender), ends
        )
        found[pair] = LinkSpeed(
            bytes_per_s=bytes_per_s,
            latency_s=latency.median_s if latency else max(map(_assumed_latency_s, ends)),
            source=source,
            is_measured=is_measured,
        )
    return found


def _link_rate(
    there: Capacity | None, back: Capacity | None, ends: tuple[Interface, Interface]
) -> tuple[float, str, bool]:
    """Return the payload in bytes per second, its source, and whether it was measured."""
    if there is not None:
        return there.payload_bytes_per_s, _source(there), True
    if back is not None:
        return back.payload_bytes_per_s, "measured in the other direction only", False
    slower = min(ends, key=_claimed_bytes_per_s)
    source = "its nominal speed" if slower.speed_mbit_per_s else "not known, so it is assumed"
    return _claimed_bytes_per_s(slower) * PAYLOAD_SHARE, source, False


def _source(capacity: Capacity) -> str:
    if capacity.source == "given":
        return "given"
    if capacity.condition in (None, "alone"):
        return "measured"
    return f"measured {capacity.condition}: it may be faster"


def _claimed_bytes_per_s(interface: Interface) -> float:
    claimed = max(0, interface.speed_mbit_per_s or 0) * 1e6 / 8
    return claimed or ASSUMED_BYTES_PER_S.get(interface.kind, 1e9 / 8)


def _assumed_latency_s(interface: Interface) -> float:
    return ASSUMED_LATENCY_S.get(interface.kind, 1e-4)


# Devices: what was measured of them.


HEAD_DIM = 64
"""Dimension of a head in the measured layers."""

MOST_SLOWER = 1.25
"""A job whose ranks computed up to this much longer than expected corrects what was measured."""


def correction(one: DeviceMeasurement) -> float | None:
    """Return how much slower than measured a device was in its newest job; ``None`` if unknown."""
    rate = one.achieved
    if rate is None or rate.time_s <= one.time_s:
        return None
    return rate.slower if 0 < rate.slower <= MOST_SLOWER else None


def measurement_of(
    info: NodeInfo, gpu: int | None, dtype: str, *, ranks: int = 1, torch: str | None = None
) -> DeviceMeasurement | None:
    """Return the measurement that fits a device best, chosen as in :func:`speed_of`."""
    found = [one for one in info.inventory.devices if (one.gpu, one.dtype) == (gpu, dtype)]

    def likeness(one: DeviceMeasurement) -> tuple[bool, float, float]:
        return (
            torch is not None and one.torch == torch,
            0.0 if gpu is not None else -abs(math.log(one.ranks / ranks)),
            one.time_s,
        )

    return max(found, key=likeness, default=None)


def layer_flops_per_s(layer: MeasuredLayer) -> float:
    """Return a measured layer's model FLOPs per second, over both passes."""
    return layer_flops(layer) / (layer.forward_s + layer.backward_s)


def layer_flops(layer: MeasuredLayer) -> float:
    """Return the model FLOPs of both passes of a measured layer."""
    return layer.tokens * layer_flops_per_token(layer_shape(layer), layer.tokens)


def layer_shape(layer: MeasuredLayer) -> ModelShape:
    """Return the shape of a model that consists of this layer alone."""
    heads = layer.hidden_size // HEAD_DIM
    return ModelShape(
        layers=1,
        hidden_size=layer.hidden_size,
        intermediate_size=layer.intermediate_size,
        heads=heads,
        key_value_heads=heads,
        head_dim=HEAD_DIM,
        vocabulary_size=0,
    )
