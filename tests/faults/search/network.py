"""Faults of the network between two nodes of a job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.search.case import Accept, Case, Truth
from tests.faults.search.mechanism import (
    Drawn,
    Mechanism,
    Parameters,
    Setting,
    either,
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
    MTU,
    NO_INTERFACE,
    NODE_LOST,
    PORT_TAKEN,
    SILENT_NODE,
    SYMPTOM,
)
from tests.netlab import DATA, MANAGEMENT, RATES_BYTES_PER_S
from tests.netlab.commands import in_namespace

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage

STALLED = frozenset({"running", "starting"})
STALL_S = 30.0
START_S = 45.0
SLOW_S = 35.0
AGENT_PORT = "8765"
RUNNING = frozenset({"running"})

Rules = tuple[tuple[str, ...], ...]


def _stall(setting: Setting, accepts: tuple[Accept, ...], within_s: float = STALL_S) -> Truth:
    within_s = within_s if setting.moment == "steps" else START_S
    return Truth(accepts, states=STALLED, within_s=within_s)


def _address(name: str) -> str:
    return f"10.77.2.{name[-1]}"


# Cables and interfaces


def _port_down(setting: Setting) -> Drawn:
    return Drawn(_stall(setting, node_of(setting, LINK_DOWN, LINK_BROKEN)))


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
    return Drawn(_stall(setting, accepts), {"new": new})


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


# Addresses


_ADDRESSES = ("", "10.77.2.77/24", "10.99.0.5/24", "10.77.2.{}/32", "10.77.2.{}/29")


def _address_gone(setting: Setting) -> Drawn:
    new = setting.chance.choice(_ADDRESSES)
    if new == "10.77.2.{}/29":
        # The peer is still in the subnet: nothing has happened.
        return Drawn(Truth(is_harmless=True, states=RUNNING), {"new": new})
    return Drawn(_stall(setting, node_of(setting, ADDRESS_LOST, LINK_BROKEN)), {"new": new})


@contextmanager
def _change_address(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host = stage.host(case.guilty)
    old, space = f"{host.data_address}/24", host.namespace
    new = parameters["new"].format(host.index)
    if new:
        in_namespace(space, "addr", "add", new, "dev", DATA)
    in_namespace(space, "addr", "del", old, "dev", DATA)
    yield
    if new:
        in_namespace(space, "addr", "del", new, "dev", DATA)
    in_namespace(space, "addr", "add", old, "dev", DATA)


def _mask_at_launch(setting: Setting) -> Drawn:
    """The fast network cannot be used: a slower one is taken, which has to be said."""
    accepts = (
        Accept(
            LINK_SLOW | ADDRESS_LOST | frozenset({"no-shared-subnet"}),
            nodes=frozenset({setting.guilty}),
        ),
    )
    new = setting.chance.choice(("10.77.2.{}/32", "10.99.0.{}/24", ""))
    return Drawn(Truth(accepts, within_s=START_S), {"new": new})


def _duplicate(setting: Setting) -> Drawn:
    accepts = (
        Accept(
            DUPLICATE,
            LINK_BROKEN | SYMPTOM | LINK_DOWN,
            nodes=frozenset({*setting.layout.names, "node3"}),
        ),
    )
    return Drawn(Truth(accepts, within_s=STALL_S))


@contextmanager
def _take_address(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """A third machine has the same address, and has told the peer so."""
    space = stage.host("node3").namespace
    address = _address(case.guilty)
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
    accepts = either(setting, LINK_BROKEN, SYMPTOM)
    return Drawn(Truth(accepts, within_s=STALL_S), {"how": how})


@contextmanager
def _lose_route(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    space, peer = stage.host(case.guilty).namespace, _address(case.other)
    in_namespace(space, "route", "add", parameters["how"], f"{peer}/32")
    yield
    in_namespace(space, "route", "del", parameters["how"], f"{peer}/32")


# Firewalls


def _filtered(
    name: str,
    write: Callable[[Setting], tuple[Truth, Rules]],
    moments: tuple = ("steps",),
    **how: object,
) -> Mechanism:
    """A mechanism that is some rules on the guilty node."""

    def draw(setting: Setting) -> Drawn:
        truth, rules = write(setting)
        return Drawn(truth, {"rules": [list(rule) for rule in rules]})

    return Mechanism(name, "network", draw, _firewall, moments=moments, **how)  # type: ignore[arg-type]


@contextmanager
def _firewall(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    with ExitStack() as stack:
        for rule in parameters["rules"]:
            stack.enter_context(stage.host(case.guilty).firewall(*rule))
        yield


def _cut(setting: Setting) -> tuple[Truth, Rules]:
    chain = setting.chance.choice(("INPUT", "OUTPUT"))
    way, end = ("-i", "-s") if chain == "INPUT" else ("-o", "-d")
    rule = (chain, way, DATA, end, _address(setting.other), "-j", "DROP")
    return _stall(setting, either(setting, LINK_BROKEN)), (rule,)


def _refused(setting: Setting) -> tuple[Truth, Rules]:
    how = setting.chance.choice(("tcp-reset", "icmp-port-unreachable", "icmp-host-prohibited"))
    source = ("-s", _address(setting.other))
    rule = ("INPUT", "-i", DATA, *source, "-p", "tcp", "-j", "REJECT", "--reject-with", how)
    # A reset ends the connection, so the job fails; other answers leave it waiting.
    return Truth(either(setting, LINK_BROKEN, SYMPTOM), within_s=STALL_S), (rule,)


def _no_new(setting: Setting) -> tuple[Truth, Rules]:
    """New connections are dropped, those that are open go on."""
    rule = ("INPUT", "-i", DATA, "-p", "tcp", "--syn", "-j", "DROP")
    return Truth(is_harmless=True, states=RUNNING), (rule,)


def _one_way_at_launch(setting: Setting) -> tuple[Truth, Rules]:
    """The rendezvous port is open on the head; the ranks' own ports are not."""
    head = setting.layout.names[0]
    rule = ("INPUT", "-i", DATA, "-p", "tcp", "--syn", "!", "--dport", "29555", "-j", "DROP")
    if setting.guilty != head and setting.layout.world_size == 2:
        # With two ranks Gloo's second rank dials the first: the other way is not used.
        return Truth(is_harmless=True, states=RUNNING), (rule,)
    accepts = (
        Accept(
            frozenset({"one-way-link"}), frozenset({"link-blocked"}), frozenset({setting.guilty})
        ),
    )
    return Truth(accepts, within_s=START_S), (rule,)


def _flow(setting: Setting) -> tuple[Truth, Rules]:
    """A firewall forgets the job's connection; new ones are let through."""
    state = ("-m", "conntrack", "--ctstate", "ESTABLISHED")
    big = ("-m", "connbytes", "--connbytes", "200000:", "--connbytes-dir", "both")
    rule = (
        "INPUT",
        "-i",
        DATA,
        "-p",
        "tcp",
        "!",
        "--sport",
        AGENT_PORT,
        "!",
        "--dport",
        AGENT_PORT,
    )
    whole = (*rule, *state, *big, "--connbytes-mode", "bytes", "-j", "DROP")
    accepts = either(setting, FLOW_LOST | LINK_BROKEN, LINK_SLOW)
    return Truth(accepts, states=STALLED, within_s=STALL_S), (whole,)


def _large(setting: Setting) -> tuple[Truth, Rules]:
    """A tunnel on the way takes only smaller packets, and no message comes back."""
    size = setting.chance.choice((600, 1000, 1300))
    rule = ("INPUT", "-i", DATA, "-p", "tcp", "-m", "length", "--length", f"{size}:65535")
    return _stall(setting, either(setting, MTU)), ((*rule, "-j", "DROP"),)


def _lossy(setting: Setting) -> tuple[Truth, Rules]:
    share = setting.chance.choice(("0.15", "0.3", "0.5", "0.8"))
    rule = ("INPUT", "-i", DATA, "-p", "tcp", "-m", "statistic", "--mode", "random")
    accepts = either(setting, LINK_SLOW | (LINK_BROKEN if float(share) > 0.4 else frozenset()))
    return Truth(accepts, within_s=SLOW_S), ((*rule, "--probability", share, "-j", "DROP"),)


def _limited(setting: Setting) -> tuple[Truth, Rules]:
    """More packets than so many in a second are dropped, as by a policer."""
    rate = setting.chance.choice((50, 100, 200))
    rule = ("INPUT", "-i", DATA, "-p", "tcp", "-m", "hashlimit", "--hashlimit-name", "policer")
    above = ("--hashlimit-above", f"{rate}/sec", "--hashlimit-burst", "20", "-j", "DROP")
    return Truth(either(setting, LINK_SLOW), within_s=SLOW_S), ((*rule, *above),)


def _agent_cut(setting: Setting) -> tuple[Truth, Rules]:
    """The agents' port is closed; the ranks' traffic goes on."""
    how = setting.chance.choice((("DROP",), ("REJECT", "--reject-with", "tcp-reset")))
    rule = ("INPUT", "-p", "tcp", "--dport", AGENT_PORT, "-j", *how)
    kinds = SILENT_NODE | AGENT_GONE if len(how) > 1 else SILENT_NODE
    return Truth(on_node(setting, kinds), is_harmless=True, within_s=20.0), (rule,)


def _no_mdns(setting: Setting) -> tuple[Truth, Rules]:
    rule = ("INPUT", "-p", "udp", "--dport", "5353", "-j", "DROP")
    return Truth(is_harmless=True, states=RUNNING), (rule,)


# Rates


def _narrow(setting: Setting) -> Drawn:
    mbit = setting.chance.choice((3, 8, 20, 50))
    both = setting.chance.random() < 0.5
    return Drawn(
        Truth(either(setting, LINK_SLOW), is_harmless=True, within_s=SLOW_S),
        {"mbit": mbit, "both": both},
    )


@contextmanager
def _shape(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host, lab = stage.host(case.guilty), stage.bench.lab
    narrow = f"rate {parameters['mbit']}mbit burst 16kb latency 50ms"
    usual = f"rate {int(RATES_BYTES_PER_S[DATA] * 8 / 1e6)}mbit burst 512kb latency 20ms"
    set_rate = lab._shape if parameters["both"] else lab.shape_sending
    set_rate(host, DATA, narrow)
    yield
    lab._shape(host, DATA, usual)


def _mtu(setting: Setting) -> Drawn:
    size = setting.chance.choice((2000, 4000, 9000))
    return Drawn(Truth(either(setting, MTU), within_s=START_S), {"size": size})


@contextmanager
def _large_mtu(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    hosts = [stage.host(name) for name in case.layout.names]
    for host in hosts:
        host.change_link(DATA, "mtu", str(parameters["size"]), "gso_max_segs", "1")
    yield
    for host in hosts:
        host.change_link(DATA, "mtu", "1500", "gso_max_segs", "65535")


# Around the training


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
            within_s=STALL_S,
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


def _names(setting: Setting) -> Drawn:
    wrong = setting.chance.choice(("silent", "own name elsewhere", "no names"))
    return Drawn(Truth(is_harmless=True, states=RUNNING), {"wrong": wrong})


@contextmanager
def _spoil_names(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    folder = Path("/etc/netns") / stage.host(case.guilty).namespace
    name = "resolv.conf" if parameters["wrong"] == "silent" else "hosts"
    before = (folder / name).read_text()
    text = {
        "silent": "nameserver 10.77.1.250\n",
        "own name elsewhere": before.replace(f" {case.guilty}", " x") + f"10.9.9.9 {case.guilty}\n",
        "no names": "127.0.0.1 localhost\n",
    }[parameters["wrong"]]
    (folder / name).write_text(text)
    yield
    (folder / name).write_text(before)


_THIEF = """
import os, socket, sys
words = sys.orig_argv
if "--node-rank=0" in words:
    options = dict(word[2:].split("=", 1) for word in words if word.startswith("--master"))
    sys.stolen = socket.socket()
    sys.stolen.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sys.stolen.bind((options["master-addr"], int(options["master-port"])))
    sys.stolen.listen()
"""


def _stolen(setting: Setting) -> Drawn:
    head = setting.layout.names[0]
    accepts = (Accept(PORT_TAKEN, nodes=frozenset({head})),)
    return Drawn(Truth(accepts, within_s=START_S), {"words": ["--env", "PYTHONPATH=/run/thief"]})


@contextmanager
def _steal(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    folder = stage.host(case.layout.names[0]).home / "thief"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_THIEF)
    parameters["words"] = ["--env", f"PYTHONPATH={folder}"]
    yield


def _no_interface(setting: Setting) -> Drawn:
    accepts = node_of(setting, NO_INTERFACE | frozenset({"bad-spec", "node"}))
    return Drawn(Truth(accepts, within_s=START_S), {"words": []})


@contextmanager
def _name_interface(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    wrong = "eth9"
    members = [
        f"{name}:{count}:{wrong if name == case.guilty else DATA}"
        for name, count in case.layout.hosts
    ]
    parameters["words"] = [word for one in members for word in ("--member", one)]
    yield


NETWORK: tuple[Mechanism, ...] = (
    Mechanism("a pulled cable", "network", _port_down, _pull, pairs=True, weight=3),
    Mechanism("an interface set down", "network", _port_down, _set_down, pairs=True),
    Mechanism("a renamed interface", "network", _renamed, _rename),
    Mechanism("a flapping link", "network", _flaps, _flap, spoils=True, weight=2),
    Mechanism("a changed address", "network", _address_gone, _change_address, weight=3),
    Mechanism("an unusable fast network", "network", _mask_at_launch, _change_address, ("launch",)),
    Mechanism("a duplicate address", "network", _duplicate, _take_address, spoils=True),
    Mechanism("a lost route", "network", _route_gone, _lose_route, spoils=True),
    _filtered("a cut between two nodes", _cut, pairs=True, weight=3),
    _filtered("a firewall that rejects", _refused, spoils=True, weight=2),
    _filtered("a firewall for new connections", _no_new, weight=1),
    _filtered("a one-way firewall at launch", _one_way_at_launch, ("launch",)),
    _filtered("a forgotten connection", _flow, weight=2),
    _filtered("a tunnel on the way", _large, ("steps", "launch"), weight=2),
    _filtered("a lossy link", _lossy, spoils=True, weight=3),
    _filtered("a policer", _limited, spoils=True, weight=2),
    _filtered("a closed agent port", _agent_cut, weight=1),
    _filtered("no multicast", _no_mdns, weight=1),
    Mechanism("a narrow link", "network", _narrow, _shape, weight=3),
    Mechanism("too large an MTU", "network", _mtu, _large_mtu, ("launch",), weight=1),
    Mechanism("a cut management network", "network", _management, _cut_management, distracts=True),
    Mechanism("all cables pulled", "network", _both_cut, _cut_both, spoils=True, weight=1),
    Mechanism("wrong names", "network", _names, _spoil_names, ("launch",), weight=1),
    Mechanism("a stolen port", "network", _stolen, _steal, ("launch",), spoils=True),
    Mechanism(
        "a missing interface at launch",
        "network",
        _no_interface,
        _name_interface,
        ("launch",),
        weight=1,
    ),
)
