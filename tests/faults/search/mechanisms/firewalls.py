"""Faults of firewalls, of rates, and of what lies between two nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING

from tests.faults.search.case import Accept, Case, Moment, Truth
from tests.faults.search.mechanisms.mechanism import Drawn, Mechanism, Parameters, Setting
from tests.faults.search.mechanisms.tampering import data_address
from tests.faults.search.mechanisms.truths import (
    LINK_S,
    RUNNING,
    SLOW_S,
    STALLED,
    START_S,
    either,
    link_stalls,
    node_of,
    on_node,
)
from tests.faults.search.vocabulary import (
    AGENT_GONE,
    FLOW_LOST,
    LINK_BROKEN,
    LINK_SLOW,
    MTU,
    ONE_WAY,
    SILENT_NODE,
    SYMPTOM,
)
from tests.netlab import DATA, RATES_BYTES_PER_S

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage


AGENT_PORT = "8765"


Rules = tuple[tuple[str, ...], ...]


def _filtered(
    name: str,
    write: Callable[[Setting], tuple[Truth, Rules]],
    moments: tuple[Moment, ...] = ("steps",),
    words: tuple[str, ...] = (),
    **how: object,
) -> Mechanism:
    """A mechanism that is some rules on the guilty node."""

    def draw(setting: Setting) -> Drawn:
        truth, rules = write(setting)
        return Drawn(truth, {"rules": [list(rule) for rule in rules], "words": list(words)})

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
    rule = (chain, way, DATA, end, data_address(setting.other), "-j", "DROP")
    return link_stalls(setting, either(setting, LINK_BROKEN)), (rule,)


def _refused(setting: Setting) -> tuple[Truth, Rules]:
    how = setting.chance.choice(("tcp-reset", "icmp-port-unreachable", "icmp-host-prohibited"))
    source = ("-s", data_address(setting.other))
    rule = ("INPUT", "-i", DATA, *source, "-p", "tcp", "-j", "REJECT", "--reject-with", how)
    # A reset ends the connection, so the job fails; other answers leave it waiting.
    return Truth(either(setting, LINK_BROKEN | FLOW_LOST, SYMPTOM), within_s=LINK_S), (rule,)


def _no_new(setting: Setting) -> tuple[Truth, Rules]:
    """New connections are dropped, those that are open go on."""
    rule = ("INPUT", "-i", DATA, "-p", "tcp", "--syn", "-j", "DROP")
    return Truth(is_harmless=True, states=RUNNING), (rule,)


PORT = "29555"


def _one_way_at_launch(setting: Setting) -> tuple[Truth, Rules]:
    """The rendezvous port is open on the head; the ranks' own ports are not."""
    rule = ("INPUT", "-i", DATA, "-p", "tcp", "--syn", "!", "--dport", PORT, "-j", "DROP")
    own, other = map(ip_address, map(data_address, (setting.guilty, setting.other)))
    if own > other:
        # Gloo dials from the higher address to the lower one: the other way is not used.
        true_as_well = node_of(setting, ONE_WAY | LINK_BROKEN)
        return Truth(is_harmless=True, states=RUNNING, may=true_as_well), (rule,)
    accepts = (Accept(ONE_WAY, frozenset({"link-blocked"}), frozenset({setting.guilty})),)
    return Truth(accepts, within_s=START_S), (rule,)


def _flow(setting: Setting) -> tuple[Truth, Rules]:
    """A firewall forgets the job's connection; new ones are let through."""
    state = ("-m", "conntrack", "--ctstate", "ESTABLISHED")
    big = ("-m", "connbytes", "--connbytes", "3000000:", "--connbytes-dir", "both")
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
    return Truth(accepts, states=STALLED, within_s=LINK_S), (whole,)


def _large(setting: Setting) -> tuple[Truth, Rules]:
    """A tunnel on the way takes only smaller packets, and no message comes back."""
    size = setting.chance.choice((600, 1000, 1300))
    rule = ("INPUT", "-i", DATA, "-p", "tcp", "-m", "length", "--length", f"{size}:65535")
    return link_stalls(setting, either(setting, MTU)), ((*rule, "-j", "DROP"),)


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


FIREWALLS: tuple[Mechanism, ...] = (
    _filtered("a cut between two nodes", _cut, pairs=True, weight=3),
    _filtered("a firewall that rejects", _refused, spoils=True, weight=2),
    _filtered("a firewall for new connections", _no_new, weight=1),
    _filtered("a one-way firewall at launch", _one_way_at_launch, ("launch",), ("--port", PORT)),
    _filtered("a forgotten connection", _flow, weight=2),
    _filtered("a tunnel on the way", _large, ("steps", "launch"), weight=2),
    _filtered("a lossy link", _lossy, spoils=True, slows=True, weight=3),
    _filtered("a policer", _limited, spoils=True, slows=True, weight=2),
    _filtered("a closed agent port", _agent_cut, weight=1),
    _filtered("no multicast", _no_mdns, weight=1),
    Mechanism("a narrow link", "network", _narrow, _shape, slows=True, weight=3),
    Mechanism("too large an MTU", "network", _mtu, _large_mtu, ("launch",), weight=1),
)
