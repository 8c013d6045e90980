"""Sightings: merges the views of one node at several addresses. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.node import FoundBy, Liveness, NodeView

_BY_LIVENESS: dict[Liveness, int] = {"up": 0, "suspect": 1, "connecting": 2, "lost": 3}
_BY_SOURCE: dict[FoundBy, int] = {"typed": 0, "remembered": 1, "mdns": 2, "job": 3}

_Machine = tuple[str, str]
"""Host name and boot id: they distinguish two machines with the same node id."""


def merge(sightings: Iterable[NodeView]) -> tuple[NodeView, ...]:
    """Merge views into one per node, sorted by name, even if a node has several addresses.

    Two machines with the same node id (a copied disk, a shared home) are never merged: both are
    shown as a conflict, and the reason names the other one.

    Args:
        sightings: one per address watched.
    """
    by_id: dict[NodeId, list[NodeView]] = {}
    silent = []
    for view in sightings:
        if view.info is None:
            silent.append(view)
        else:
            by_id.setdefault(view.info.node_id, []).append(view)
    merged = [node for views in by_id.values() for node in _of_one_id(views)]
    strangers = []
    if silent:
        own = {address for view in merged if view.info for address in view.info.addresses}
        strangers = [view for view in silent if view.address not in own]
    return tuple(sorted([*merged, *strangers], key=lambda view: (view.name, view.address)))


def _of_one_id(views: Sequence[NodeView]) -> Sequence[NodeView]:
    if len(views) == 1:
        return views
    by_machine: dict[_Machine, list[NodeView]] = {}
    for view in views:
        by_machine.setdefault(_machine(view), []).append(view)
    best = [min(group, key=_preference) for group in by_machine.values()]
    live = [view for view in best if view.liveness in ("up", "suspect")]
    if len(live) > 1:
        live = [_in_conflict(view, live) for view in live]
    hosts = {_machine(view)[0] for view in live}
    # Same host name, another boot id, and silent: the machine before its reboot.
    gone = [view for view in best if view.liveness not in ("up", "suspect")]
    before = {_machine(view)[0]: view for view in sorted(gone, key=_age)}
    return [*live, *(view for host, view in before.items() if host not in hosts)]


def _in_conflict(view: NodeView, live: Sequence[NodeView]) -> NodeView:
    others = " and ".join(
        f"{_machine(other)[0]} ({other.address})" for other in live if other is not view
    )
    problem = Problem(
        kind=Kind.NODE_ID_TWICE,
        cause=f"has the same node id as {others}: a copied or shared state directory",
        fix="on one of them: mntrain agent leave, then mntrain agent join",
    )
    return msgspec.structs.replace(view, problem=problem, is_conflict=True)


def _machine(view: NodeView) -> _Machine:
    assert view.info is not None  # noqa: S101  # only views with an answer are grouped
    return view.info.inventory.hostname, view.info.boot_id


def _preference(view: NodeView) -> tuple[int, int, str]:
    return _BY_LIVENESS[view.liveness], _BY_SOURCE[view.found_by], view.address


def _age(view: NodeView) -> float:
    return view.last_seen_s or 0.0
