"""Firewalls: on which side of a way packets are lost, by the kernels' counters. Pure.

A node that tries begins many connections on purpose. Whoever lost them has counted them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.paths import PathsFound, PathTrial

MOST_SHARE: Final = 0.8
"""Of what was begun, this must be found again in the counters; a machine that loses little else is
not blamed for it, and one that drops it all still is if some were lost on the way."""


def blocked(paths: PathsFound, trial: PathTrial, ports: str) -> Problem:
    """Who does not let a node connect to its peer.

    Args:
        ports: of the peer, in words.
    """
    found, back = _blocker(paths, trial, ports), _back(paths, trial)
    if found.kind is Kind.LINK_BLOCKED and back is not None and back.trouble is None:
        return msgspec.structs.replace(found, kind=Kind.ONE_WAY_LINK)
    return found


def _blocker(paths: PathsFound, trial: PathTrial, ports: str) -> Problem:
    node, peer = trial.node, trial.peer
    how = "refuses" if trial.trouble in ("refused", "unreachable") else "drops"
    if trial.is_kept:
        return _problem(
            node,
            f"its own firewall does not let it connect to {ports} of {peer}, over "
            f"{trial.interface}",
            _let_out(node, trial.address),
        )
    if trial.source in _half_open(paths, peer):
        return _unanswered(paths, trial, ports)
    if _has_dropped(paths, peer):
        return _problem(
            peer,
            f"its firewall {how} connections from {node} ({trial.source}) to {ports}",
            _let_in(peer, trial.source),
        )
    if trial.neighbor is not None and not trial.neighbor.mac:
        return Problem(
            kind=Kind.NO_ROUTE,
            cause=f"nobody answers for {trial.address} on the network of {node}'s "
            f"{trial.interface}: the two are not on one network, or a cable is unplugged",
            fix=f"check the cables and the VLANs of both, and on {peer}: ip addr",
            node=peer,
        )
    if peer in paths.heard:
        what = "are refused by" if how == "refuses" else "are lost in"
        return _problem(
            node,
            f"connections to {ports} of {peer} over {trial.interface} {what} something between the "
            f"two: they do not arrive at {peer}",
            f"check the switch, its VLANs, and the firewalls between {node} and {peer}",
        )
    return _problem(
        peer,
        f"connections from {node} ({trial.source}) to {ports} fail",
        f"check the firewalls of {peer} and {node}, and those between them",
    )


def _unanswered(paths: PathsFound, trial: PathTrial, ports: str) -> Problem:
    """They arrive, and the answers do not."""
    node, peer = trial.node, trial.peer
    back = _back(paths, trial)
    if back is not None and back.is_kept:
        return _problem(
            peer,
            f"its own firewall does not let out its answers to {node}, which connects to {ports}",
            _let_out(peer, trial.source),
        )
    if node in paths.heard and paths.heard[node].dropped >= MOST_SHARE * trial.knocks > 0:
        return _problem(
            node,
            f"its own firewall drops the answers of {peer}, to which it connects over "
            f"{trial.interface}",
            _let_in(node, trial.address),
        )
    return _problem(
        node,
        f"its connections arrive at {peer}, whose answers are lost in something between the two",
        f"check the switch, and the firewalls between {node} and {peer}",
    )


def _back(paths: PathsFound, trial: PathTrial) -> PathTrial | None:
    """The other way."""
    ends = (trial.peer, trial.node)
    return next((one for one in paths.trials if (one.node, one.peer) == ends), None)


def _has_dropped(paths: PathsFound, peer: str) -> bool:
    """Whether a node has dropped as many packets as others began connections to it in vain."""
    begun = sum(
        one.knocks
        for one in paths.trials
        if one.peer == peer and not one.is_kept and one.source not in _half_open(paths, peer)
    )
    return peer in paths.heard and paths.heard[peer].dropped >= MOST_SHARE * begun > 0


def _half_open(paths: PathsFound, node: str) -> tuple[str, ...]:
    return paths.heard[node].half_open if node in paths.heard else ()


def _let_in(node: str, address: str) -> str:
    return (
        f"on {node}: sudo ufw allow from {address}, or sudo iptables -I INPUT -s {address} -j "
        "ACCEPT (or the same with firewalld or nft)"
    )


def _let_out(node: str, address: str) -> str:
    return (
        f"on {node}: sudo iptables -I OUTPUT -d {address} -j ACCEPT (or the same with ufw, "
        "firewalld or nft)"
    )


def _problem(node: str, cause: str, fix: str) -> Problem:
    return Problem(kind=Kind.LINK_BLOCKED, cause=cause, fix=fix, node=node)
