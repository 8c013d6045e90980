"""Links: finds a broken network from link tries in both directions. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.evidence import LinkTry, NetworkState

ETHERNET_MTU = 1500
"""Bytes that every Ethernet carries."""

_WORST_FIRST = ("down", "lossy", "stuck", "no connection", "refused")


def broken_link(
    tried: Mapping[tuple[str, str], LinkTry], networks: Mapping[str, NetworkState] = {}
) -> Problem | None:
    """Find a broken link from the nodes' link trials.

    Args:
        tried: results by (trying node, peer).
        networks: the nodes' interfaces, by node, as far as they are known.
    """
    bad = [(node, one) for (node, _), one in tried.items() if one.trouble is not None]
    if not bad:
        return None
    node, one = min(bad, key=lambda pair: _WORST_FIRST.index(pair[1].trouble))
    if one.trouble == "down":
        return Problem(
            kind=Kind.LINK_DOWN,
            cause=f"{one.interface}, the interface the ranks use, is down",
            fix=fix_of(Kind.LINK_DOWN, node=node, interface=one.interface),
            node=node,
        )
    if one.trouble == "lossy":
        return Problem(
            kind=Kind.LINK_SLOW,
            cause=f"connections to {one.peer} open, but even small packets are lost over "
            f"{one.interface}",
            fix=fix_of(Kind.LINK_SLOW, "resent"),
            node=node,
        )
    if one.trouble == "stuck":
        return Problem(
            kind=Kind.MTU_TOO_LARGE,
            cause=f"connections to {one.peer} open, but large packets do not arrive over "
            f"{one.interface}: its MTU is larger than the network's",
            fix=_mtu_fix(node, one, networks),
            node=node,
        )
    return _blocked(node, one, tried.get((one.peer, node)))


def _mtu_fix(node: str, link: LinkTry, networks: Mapping[str, NetworkState]) -> str:
    """Return the fix for an MTU that the network does not support, by the interfaces' MTUs."""
    ends = {one: networks[one].mtu or 0 for one in (node, link.peer) if one in networks}
    if len(ends) == 2 and len({*ends.values()}) == 2 and all(ends.values()):
        larger, smaller = max(ends, key=lambda one: ends[one]), min(ends.values())
        interface = networks[larger].interface
        return fix_of(Kind.MTU_TOO_LARGE, "uneven", node=larger, interface=interface, mtu=smaller)
    special = "small" if 0 < ends.get(node, 0) <= ETHERNET_MTU else ""
    return fix_of(Kind.MTU_TOO_LARGE, special, node=node, peer=link.peer, interface=link.interface)


def _blocked(node: str, link: LinkTry, back: LinkTry | None) -> Problem:
    """Explain a connection that does not open.

    Args:
        back: the other direction; ``None`` if it has not been tried.
    """
    kind = Kind.LINK_BLOCKED
    how = "are refused" if link.trouble == "refused" else "get no answer"
    if back is None:
        cause = f"connections from {node} over {link.interface} {how}"
    elif back.trouble is not None:
        cause = f"connections to and from {node} over {link.interface} {how}"
    else:
        kind = Kind.ONE_WAY_LINK
        cause = (
            f"connections from {node} over {link.interface} fail, though {link.peer} can connect "
            f"to {node}: check for a firewall on {link.peer} or between them"
        )
    fix = fix_of(kind, node=node, peer=link.peer)
    return Problem(kind=kind, cause=cause, fix=fix, node=link.peer)
