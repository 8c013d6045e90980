"""Ways between healthy nodes, and what may be wrong with one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import msgspec

from jupyter_mntrain.doctor.check import Case
from jupyter_mntrain.model.records.doctor.paths import (
    PathHeard,
    PathsFound,
    PathTarget,
    PathTrial,
    PortTrouble,
    PortTry,
    Resent,
)
from jupyter_mntrain.model.records.evidence import Neighbor

RANDOM, LOW, HIGH, RENDEZVOUS = 41234, 35000, 57000, 29500

RANGE = (32768, 60999)


def healthy_paths(names: Sequence[str]) -> PathsFound:
    """Every ordered pair, of nodes with the addresses 10.0.0.1, 10.0.0.2, …"""
    return PathsFound(
        trials=tuple(
            PathTrial(
                node=names[one],
                peer=names[other],
                interface="eno1",
                source=f"10.0.0.{one + 1}",
                address=f"10.0.0.{other + 1}",
                tries=tuple(PortTry(port=port) for port in (RANDOM, RENDEZVOUS, LOW, HIGH)),
                flow="works",
                path_mtu=1500,
                round_trip_s=0.0002,
                load=Resent(packets=2000, again=1),
                leaves_by="eno1",
                neighbor=Neighbor(
                    address=f"10.0.0.{other + 1}", mac=f"02:00:00:00:00:0{other + 1}"
                ),
            )
            for one, other in permutations(range(len(names)), 2)
        ),
        heard={name: PathHeard() for name in names},
        ranges=dict.fromkeys(names, RANGE),
    )


def working_path(target: PathTarget) -> PathTrial:
    """What is found of a way where nothing is wrong."""
    return PathTrial(
        node="",
        peer=target.peer,
        interface=target.interface,
        source=target.source,
        address=target.address,
        tries=(PortTry(port=target.ticket.port),),
        flow="works",
        round_trip_s=0.0002,
        leaves_by=target.interface,
    )


def blocked_path(target: PathTarget) -> PathTrial:
    """What is found of a way on which no connection gets an answer."""
    return msgspec.structs.replace(
        working_path(target),
        tries=(PortTry(port=target.ticket.port, trouble="silent"),),
        flow=None,
        round_trip_s=None,
        knocks=24,
    )


def with_trial(case: Case, node: str, peer: str, **fields: Any) -> Case:
    """The same, except for what one node found of the way to another."""
    trials = tuple(
        msgspec.structs.replace(one, **fields) if (one.node, one.peer) == (node, peer) else one
        for one in case.paths.trials
    )
    return with_paths(case, trials=trials)


def with_heard(case: Case, node: str, **fields: Any) -> Case:
    """The same, except for what one node saw while it listened."""
    heard = msgspec.structs.replace(case.paths.heard.get(node, PathHeard()), **fields)
    return with_paths(case, heard=case.paths.heard | {node: heard})


def with_paths(case: Case, **fields: Any) -> Case:
    return msgspec.structs.replace(case, paths=msgspec.structs.replace(case.paths, **fields))


def blocked(
    case: Case,
    node: str,
    peer: str,
    trouble: PortTrouble = "silent",
    ports: Sequence[int] = (RANDOM, RENDEZVOUS, LOW, HIGH),
    **fields: Any,
) -> Case:
    """The same, but connections of one node to some ports of another fail."""
    tries = tuple(
        PortTry(port=port, trouble=trouble if port in ports else None)
        for port in (RANDOM, RENDEZVOUS, LOW, HIGH)
    )
    talk = {"flow": None, "round_trip_s": None, "load": None} if RANDOM in ports else {}
    return with_trial(case, node, peer, tries=tries, knocks=24, **talk, **fields)
