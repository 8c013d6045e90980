"""Faults of cables, interfaces and addresses between two nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.faults.search.case import Accept, Case, Truth
from tests.faults.search.mechanisms.mechanism import Drawn, Mechanism, Parameters, Setting
from tests.faults.search.mechanisms.tampering import data_address
from tests.faults.search.mechanisms.truths import (
    LINK_S,
    RUNNING,
    either,
    link_stalls,
    node_of,
    on_node,
)
from tests.faults.search.vocabulary import (
    ADDRESS_LOST,
    AGENT_GONE,
    DUPLICATE,
    FLOW_LOST,
    LINK_BROKEN,
    LINK_DOWN,
    LINK_FLAPS,
    LINK_SLOW,
    NO_INTERFACE,
    NODE_LOST,
    SILENT_NODE,
    SYMPTOM,
)
from tests.netlab import DATA, MANAGEMENT
from tests.netlab.commands import in_namespace

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage


def _port_down(setting: Setting) -> Drawn:
    return Drawn(link_stalls(setting, node_of(setting, LINK_DOWN, LINK_BROKEN)))


@contextmanager
def _pull(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host = stage.host(case.guilty)
    stage.bench.lab.set_port(host, DATA, is_up=False)
    yield
    stage.bench.lab.set_port(host, DATA, is_up=True)


@contextmanager
def _set_down(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host = stage.host(case.guilty)
    host.set_link(DATA, is_up=False)
    yield
    host.set_link(DATA, is_up=True)


def _renamed(setting: Setting) -> Drawn:
    new = setting.chance.choice(("enp3s0", "eth7", "rename3"))
    accepts = node_of(setting, LINK_DOWN | NO_INTERFACE, LINK_BROKEN)
    return Drawn(link_stalls(setting, accepts), {"new": new})


@contextmanager
def _rename(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host, new = stage.host(case.guilty), parameters["new"]
    host.set_link(DATA, is_up=False)
    host.change_link(DATA, "name", new)
    yield
    host.change_link(new, "name", DATA)
    host.set_link(DATA, is_up=True)


def _flaps(setting: Setting) -> Drawn:
    up_s, down_s = setting.chance.choice(((0.5, 3.0), (1.0, 2.0), (2.0, 5.0)))
    accepts = node_of(setting, LINK_FLAPS | LINK_DOWN, LINK_SLOW | LINK_BROKEN)
    return Drawn(Truth(accepts, within_s=45.0), {"up_s": up_s, "down_s": down_s})


@contextmanager
def _flap(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host, lab = stage.host(case.guilty), stage.bench.lab
    done = threading.Event()

    def flapping() -> None:
        while not done.is_set():
            lab.set_port(host, DATA, is_up=False)
            done.wait(parameters["down_s"])
            lab.set_port(host, DATA, is_up=True)
            done.wait(parameters["up_s"])

    thread = threading.Thread(target=flapping)
    thread.start()
    yield
    done.set()
    thread.join()


_ADDRESSES = ("", "10.77.2.77/24", "10.99.0.5/24", "10.77.2.{}/32", "10.77.2.{}/29")


def _address_gone(setting: Setting) -> Drawn:
    new = setting.chance.choice(_ADDRESSES)
    if new == "10.77.2.{}/29":
        # The peer is still in the subnet: nothing has happened.
        return Drawn(Truth(is_harmless=True, states=RUNNING), {"new": new})
    return Drawn(link_stalls(setting, node_of(setting, ADDRESS_LOST, LINK_BROKEN)), {"new": new})


@contextmanager
def _change_address(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host = stage.host(case.guilty)
    space, new = host.namespace, parameters["new"].format(host.index)
    in_namespace(space, "addr", "flush", "dev", DATA, "scope", "global")
    if new:
        in_namespace(space, "addr", "add", new, "dev", DATA)
    yield
    in_namespace(space, "addr", "flush", "dev", DATA, "scope", "global")
    in_namespace(space, "addr", "add", f"{host.data_address}/24", "dev", DATA)


KNOWN_S = 6.0
"""An agent reads its interfaces every 5 s."""


@contextmanager
def _change_address_before(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    with _change_address(stage, case, parameters):
        time.sleep(KNOWN_S)
        yield


def _mask_at_launch(setting: Setting) -> Drawn:
    """The fast network cannot be used: a slower one is taken, which has to be said."""
    accepts = (
        Accept(
            LINK_SLOW | ADDRESS_LOST | frozenset({"no-shared-subnet"}),
            nodes=frozenset({setting.guilty}),
        ),
    )
    new = setting.chance.choice(("10.77.2.{}/32", "10.99.0.{}/24", ""))
    return Drawn(Truth(accepts, within_s=10.0), {"new": new})


def _duplicate(setting: Setting) -> Drawn:
    accepts = (
        Accept(
            DUPLICATE,
            LINK_BROKEN | SYMPTOM | LINK_DOWN,
            nodes=frozenset({*setting.layout.names, "node3"}),
        ),
    )
    return Drawn(Truth(accepts, within_s=LINK_S))


@contextmanager
def _take_address(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """A third machine has the same address, and has told the peer so."""
    space = stage.host("node3").namespace
    address = data_address(case.guilty)
    shown = in_namespace(space, "-br", "link", "show", DATA).split()
    hardware = next(word for word in shown if word.count(":") == 5)
    in_namespace(space, "addr", "add", f"{address}/24", "dev", DATA)
    peer = stage.host(case.other).namespace
    in_namespace(
        peer, "neigh", "replace", address, "lladdr", hardware, "dev", DATA, "nud", "permanent"
    )
    yield
    in_namespace(space, "addr", "del", f"{address}/24", "dev", DATA)
    in_namespace(peer, "neigh", "del", address, "dev", DATA)


def _route_gone(setting: Setting) -> Drawn:
    how = setting.chance.choice(("blackhole", "unreachable", "prohibit"))
    accepts = either(setting, LINK_BROKEN | FLOW_LOST, SYMPTOM)
    return Drawn(Truth(accepts, within_s=LINK_S), {"how": how})


@contextmanager
def _lose_route(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    space, peer = stage.host(case.guilty).namespace, data_address(case.other)
    in_namespace(space, "route", "add", parameters["how"], f"{peer}/32")
    yield
    in_namespace(space, "route", "del", parameters["how"], f"{peer}/32")


def _management(setting: Setting) -> Drawn:
    return Drawn(Truth(is_harmless=True, states=RUNNING))


@contextmanager
def _cut_management(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host = stage.host(parameters.get("host", case.guilty))
    host.set_link(MANAGEMENT, is_up=False)
    yield
    host.set_link(MANAGEMENT, is_up=True)
    in_namespace(host.namespace, "route", "replace", "default", "via", "10.77.1.254")


def _both_cut(setting: Setting) -> Drawn:
    """All networks of a node are gone at once: to the others, the node is."""
    kinds = NODE_LOST
    return Drawn(
        Truth(
            node_of(setting, kinds, LINK_DOWN | LINK_BROKEN),
            may=on_node(setting, SILENT_NODE | AGENT_GONE),
            within_s=LINK_S,
        )
    )


@contextmanager
def _cut_both(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host, lab = stage.host(case.guilty), stage.bench.lab
    for interface in (DATA, MANAGEMENT):
        lab.set_port(host, interface, is_up=False)
    yield
    for interface in (DATA, MANAGEMENT):
        lab.set_port(host, interface, is_up=True)


CABLES: tuple[Mechanism, ...] = (
    Mechanism("a pulled cable", "network", _port_down, _pull, pairs=True, cuts=True, weight=3),
    Mechanism("an interface set down", "network", _port_down, _set_down, pairs=True, cuts=True),
    Mechanism("a renamed interface", "network", _renamed, _rename),
    Mechanism("a flapping link", "network", _flaps, _flap, spoils=True, weight=2),
    Mechanism("a changed address", "network", _address_gone, _change_address, weight=3),
    Mechanism(
        "an unusable fast network", "network", _mask_at_launch, _change_address_before, ("launch",)
    ),
    Mechanism("a duplicate address", "network", _duplicate, _take_address, spoils=True),
    Mechanism("a lost route", "network", _route_gone, _lose_route, spoils=True),
    Mechanism(
        "a cut management network",
        "network",
        _management,
        _cut_management,
        distracts=True,
        cuts=True,
    ),
    Mechanism("all cables pulled", "network", _both_cut, _cut_both, spoils=True, weight=1),
)
