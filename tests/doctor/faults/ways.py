"""Faults of the paths between two nodes, and of their addresses."""

from __future__ import annotations

from typing import Any

import msgspec

from jupyter_mntrain.doctor.check import Case
from jupyter_mntrain.model.records.doctor.paths import Resent
from jupyter_mntrain.model.records.evidence import Neighbor
from jupyter_mntrain.model.records.node import Capacity, Interface, LinkMeasurement
from tests.doctor import healthy
from tests.doctor.faults.fault import Fault
from tests.doctor.paths import LOW, RENDEZVOUS, blocked, with_heard, with_trial

STRANGER = Neighbor(address="10.0.0.2", mac="66:66:66:66:66:66")
MBIT = 1e6 / 8


def card(case: Case, at: int = 1, **fields: Any) -> Case:
    """The same, except for a node's card eno1."""
    return healthy.with_inventory(case, at, interfaces=_with_card(case, at, **fields))


def _with_card(case: Case, at: int, **fields: Any) -> tuple[Interface, ...]:
    return tuple(
        msgspec.structs.replace(one, **fields) if one.name == "eno1" else one
        for one in case.nodes[at].info.inventory.interfaces
    )


def measured(case: Case, at: int, to: int, mbit_per_s: float, condition: Any = "alone") -> Case:
    """The same, but a link was measured."""
    sender, receiver = case.nodes[at].name, case.nodes[to].name
    link = LinkMeasurement(
        sender=sender,
        receiver=receiver,
        interface="eno1",
        address=f"10.0.0.{to + 1}",
        capacity=Capacity(mbit_per_s * MBIT, "measured", 1.8e9, condition),
    )
    links = next(
        one.links for one in case.nodes[at].info.inventory.interfaces if one.name == "eno1"
    )
    return card(case, at, links=(*links, link))


def fast_cards(case: Case, addresses: tuple[str, ...]) -> Case:
    """All nodes have a second card on one more network, of which muthur's has these addresses."""
    for at, node in enumerate(case.nodes):
        own = Interface(
            name="eno2",
            kind="ethernet",
            is_up=True,
            addresses=addresses if at == 1 else (f"192.168.1.{at + 1}/24",),
            mac=f"02:00:00:00:01:0{at + 1}",
            mtu=1500,
            speed_mbit_per_s=10_000,
        )
        case = healthy.with_inventory(case, at, interfaces=(*node.info.inventory.interfaces, own))
    return case


def two_networks(case: Case) -> Case:
    """All nodes have a second card on one more network, to which muthur's packets go wrong."""
    return with_trial(
        healthy.with_inventory(
            case,
            interfaces=(
                *case.nodes[1].info.inventory.interfaces,
                Interface(
                    name="eno2",
                    kind="ethernet",
                    is_up=True,
                    addresses=("192.168.1.2/24",),
                    mac="02:00:00:00:01:02",
                ),
            ),
        ),
        "muthur",
        "hal",
        leaves_by="eno2",
    )


WAYS = (
    Fault(
        "shared-network",
        "its card is on another network",
        "stops",
        lambda case: card(case, addresses=("192.168.7.2/24",)),
    ),
    Fault(
        "fast-network",
        "its fast card has no address, so that the ranks take the slow one",
        "slows",
        lambda case: fast_cards(case, ()),
    ),
    Fault(
        "subnet-mask",
        "its mask is /25, that of the others /24",
        "slows",
        lambda case: card(case, addresses=("10.0.0.2/25",)),
    ),
    Fault(
        "address-twice",
        "its card has another node's address, too",
        "stops",
        lambda case: card(case, addresses=("10.0.0.2/24", "10.0.0.1/24")),
    ),
    Fault(
        "address-twice",
        "its card has the MAC address of another node's",
        "stops",
        lambda case: card(case, mac="02:00:00:00:00:01"),
    ),
    Fault(
        "address-twice",
        "a printer has its address, too, and answers",
        "stops",
        lambda case: blocked(case, "wopr", "muthur", "refused", neighbor=STRANGER),
    ),
    Fault(
        "reachable",
        "its firewall drops what comes from another node",
        "stops",
        lambda case: with_heard(blocked(case, "hal", "muthur"), "muthur", dropped=31),
    ),
    Fault(
        "reachable",
        "its firewall rejects what comes from another node",
        "stops",
        lambda case: with_heard(blocked(case, "hal", "muthur", "refused"), "muthur", dropped=28),
    ),
    Fault(
        "reachable",
        "its firewall rejects it as firewalld does",
        "stops",
        lambda case: with_heard(
            blocked(case, "hal", "muthur", "unreachable"), "muthur", dropped=28
        ),
    ),
    Fault(
        "reachable",
        "its firewall lets nothing out to another node",
        "stops",
        lambda case: blocked(case, "muthur", "hal", is_kept=True),
    ),
    Fault(
        "reachable",
        "its firewall drops the answers of another node",
        "stops",
        lambda case: with_heard(
            with_heard(blocked(case, "muthur", "hal"), "hal", half_open=("10.0.0.2",)),
            "muthur",
            dropped=60,
        ),
    ),
    Fault(
        "reachable",
        "a firewall between it and another node drops connections",
        "stops",
        lambda case: blocked(case, "muthur", "hal"),
    ),
    Fault(
        "reachable",
        "its cable is in a port of another VLAN",
        "stops",
        lambda case: blocked(case, "wopr", "muthur", neighbor=Neighbor(address="10.0.0.2")),
    ),
    Fault(
        "reachable",
        "its card lost its address while it was tried",
        "stops",
        lambda case: blocked(case, "muthur", "hal", "no source"),
    ),
    Fault(
        "port-range",
        "its firewall is open from port 40000 on",
        "stops",
        lambda case: with_heard(blocked(case, "hal", "muthur", ports=(LOW,)), "muthur", dropped=30),
    ),
    Fault(
        "rendezvous-port",
        "its firewall is open from port 32768 on",
        "slows",
        lambda case: with_heard(
            blocked(case, "hal", "muthur", ports=(RENDEZVOUS,)), "muthur", dropped=30
        ),
    ),
    Fault(
        "path-mtu",
        "an MTU of 9000 at two nodes, and a switch that drops jumbo frames",
        "stops",
        lambda case: with_trial(
            card(card(case, mtu=9000), 2, mtu=9000),
            "muthur",
            "hal",
            flow="stuck",
            load=None,
            path_mtu=1500,
        ),
    ),
    Fault(
        "path-mtu",
        "a tunnel on the way to another node, and no word of it to TCP",
        "stops",
        lambda case: with_trial(case, "muthur", "hal", flow="stuck", load=None, path_mtu=1450),
    ),
    Fault("route", "a route sends packets over its other card", "slows", two_networks),
    Fault(
        "resent-packets",
        "a bad cable loses 3 % of the packets",
        "slows",
        lambda case: with_trial(case, "muthur", "hal", load=Resent(packets=2000, again=60)),
    ),
    Fault(
        "resent-packets",
        "a worn plug loses 0.5 % of the packets",
        "slows",
        lambda case: with_trial(case, "muthur", "hal", load=Resent(packets=2000, again=10)),
    ),
    Fault(
        "resent-packets",
        "a bad cable loses a third of the packets",
        "slows",
        lambda case: with_trial(case, "muthur", "hal", flow="lossy", load=None),
    ),
    Fault(
        "measured-link",
        "a link of gigabit cards carries 300 Mbit/s",
        "slows",
        lambda case: measured(case, 1, 2, 300),
    ),
    Fault(
        "measured-link",
        "one direction of a link carries a quarter of the other",
        "slows",
        lambda case: measured(measured(card(case, speed_mbit_per_s=None), 1, 2, 220), 2, 1, 880),
    ),
)
