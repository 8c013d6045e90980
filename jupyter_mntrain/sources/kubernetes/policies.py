"""Network policies: finds those that block traffic between our pods, or to them. Pure.

A pod that no policy selects is free. One that is selected may do only what some policy allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, Literal, NamedTuple

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.sources.kubernetes.objects import AGENT_PORT

Object = Mapping[str, Any]
Direction = Literal["Ingress", "Egress"]

ANY_PORT = range(1024, 65536)
"""A training listens on ports that the system chooses."""

FIX = "apply the NetworkPolicy that '--dry-run' prints, or ask the administrators to"


class Pod(NamedTuple):
    """One end of a connection. ``ip`` is empty until it is assigned."""

    labels: Mapping[str, str]
    namespace: str
    namespace_labels: Mapping[str, str] = {}
    ip: str = ""


def blocked(
    policies: Sequence[Object], pods: Sequence[Pod], notebook: Pod | None = None
) -> Problem | None:
    """Find traffic that policies block: between pods of one request, or from the notebook to them.

    Args:
        policies: of the namespace of the pods, and of the notebook's.
        notebook: ``None`` = it is not in the cluster; the API server forwards to the pods.
    """
    for sender in pods:
        for receiver in pods:
            if sender is not receiver and (names := _between(policies, sender, receiver, ANY_PORT)):
                return _problem(names, "keep the pods from each other")
    for receiver in pods if notebook is not None else ():
        agent = range(AGENT_PORT, AGENT_PORT + 1)
        if notebook and (names := _between(policies, notebook, receiver, agent)):
            return _problem(names, "keep this notebook from the pods")
    return None


def _problem(names: Sequence[str], what: str) -> Problem:
    verb = what if len(names) > 1 else what.replace("keep", "keeps", 1)
    several = "policies" if len(names) > 1 else "policy"
    return Problem(Kind.PORT_BLOCKED, f"network {several} {', '.join(names)} {verb}", FIX)


def _between(
    policies: Sequence[Object], sender: Pod, receiver: Pod, ports: range
) -> tuple[str, ...]:
    """Return the names of the policies that block the traffic; empty if none does."""
    out = _forbidding(policies, "Egress", sender, receiver, ports)
    return out or _forbidding(policies, "Ingress", receiver, sender, ports)


def _forbidding(
    policies: Sequence[Object], direction: Direction, own: Pod, other: Pod, ports: range
) -> tuple[str, ...]:
    selecting = [one for one in policies if _selects(one, direction, own)]
    rules = [
        rule for one in selecting for rule in one["spec"].get(direction.lower()) or ()
    ]  # fmt: skip
    peers = "to" if direction == "Egress" else "from"
    if any(
        _allows_peer(rule.get(peers), own.namespace, other) and _allows_ports(rule, ports)
        for rule in rules
    ):
        return ()
    return tuple(one["metadata"]["name"] for one in selecting)


def _selects(policy: Object, direction: Direction, pod: Pod) -> bool:
    spec = policy["spec"]
    default = ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    return (
        policy["metadata"].get("namespace", pod.namespace) == pod.namespace
        and direction in (spec.get("policyTypes") or default)
        and _matches(spec.get("podSelector") or {}, pod.labels)
    )


def _allows_peer(peers: Sequence[Object] | None, namespace: str, other: Pod) -> bool:
    return not peers or any(_is_peer(one, namespace, other) for one in peers)


def _is_peer(peer: Object, namespace: str, other: Pod) -> bool:
    if block := peer.get("ipBlock"):
        return bool(other.ip) and _is_within(other.ip, block)
    of_namespaces = peer.get("namespaceSelector")
    if of_namespaces is None:
        is_there = other.namespace == namespace
    else:
        own = {"kubernetes.io/metadata.name": other.namespace}
        is_there = _matches(of_namespaces, own | dict(other.namespace_labels))
    return is_there and _matches(peer.get("podSelector") or {}, other.labels)


def _is_within(ip: str, block: Object) -> bool:
    address = ip_address(ip)
    excepted = block.get("except") or ()
    return address in ip_network(block["cidr"]) and not any(
        address in ip_network(one) for one in excepted
    )


def _allows_ports(rule: Object, wanted: range) -> bool:
    """Return whether a single range of the rule includes all ports. Named ports are the agent's."""
    told = rule.get("ports")
    return not told or any(_has_all(one, wanted) for one in told)


def _has_all(one: Object, wanted: range) -> bool:
    if one.get("protocol", "TCP") != "TCP":
        return False
    first = one.get("port")
    if first is None:
        return True
    if isinstance(first, str):
        return len(wanted) == 1 and first == "agent"
    last = one.get("endPort", first)
    return bool(first <= wanted[0] and wanted[-1] <= last)


def _matches(selector: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a selector matches; an empty one matches everything."""
    exact = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in exact.items()) and all(
        _holds(one, labels) for one in selector.get("matchExpressions") or ()
    )


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels
