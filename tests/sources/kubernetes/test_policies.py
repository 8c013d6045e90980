"""Network policies: what isolates pods is named; what allows our traffic is not."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_mntrain.sources.kubernetes.objects import JOB_LABEL, network_policy
from jupyter_mntrain.sources.kubernetes.policies import Pod, blocked
from tests.sources.kubernetes.requests import request
from tests.wording import says

OURS = [Pod({JOB_LABEL: "llama"}, "ml", ip=f"10.0.0.{number}") for number in (1, 2)]
NOTEBOOK = Pod({"app": "jupyter"}, "hub", {"team": "a"}, "10.0.9.9")
NEIGHBOR = Pod({"app": "jupyter"}, "ml", ip="10.0.0.7")

ALL = {"podSelector": {}}


def policy(name: str, **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": spec.pop("namespace", "ml")}
    return {"metadata": meta, "spec": {"podSelector": {}} | spec}


DENY = policy("deny-all", policyTypes=["Ingress", "Egress"])


def cause(*policies: dict[str, Any], notebook: Pod | None = None) -> str:
    problem = blocked(policies, OURS, notebook)
    assert problem is None or problem.fix
    return problem.cause if problem else ""


def test_pods_that_no_policy_selects_are_free() -> None:
    elsewhere = policy("deny-all", namespace="web")
    others = policy("web", podSelector={"matchLabels": {"app": "web"}})
    assert not cause(elsewhere, others, notebook=NOTEBOOK)


@pytest.mark.parametrize(
    "one",
    [
        DENY,
        policy("deny-all"),
        policy("deny-all", policyTypes=["Egress"]),
        policy("deny-all", ingress=[{"from": [{"ipBlock": {"cidr": "192.168.0.0/16"}}]}]),
        policy(
            "deny-all",
            ingress=[{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/24"]}}]}],
        ),
        policy("deny-all", ingress=[{"ports": [{"port": 8765}]}]),
        policy("deny-all", ingress=[{"ports": [{"protocol": "UDP"}]}]),
        policy(
            "deny-all", ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]}]
        ),
        policy(
            "deny-all",
            podSelector={"matchExpressions": [{"key": JOB_LABEL, "operator": "Exists"}]},
        ),
    ],
)
def test_what_keeps_pods_from_each_other_is_named(one: dict[str, Any]) -> None:
    told = cause(one)
    assert "deny-all" in told


def test_a_policy_that_allows_it_lifts_the_others() -> None:
    for allowing in (
        policy("inside", policyTypes=["Ingress", "Egress"], ingress=[{"from": [ALL]}],
               egress=[{"to": [ALL]}]),
        policy("high", policyTypes=["Ingress", "Egress"], egress=[{}],
               ingress=[{"ports": [{"port": 1024, "endPort": 65535}]}]),
        policy("block", policyTypes=["Ingress", "Egress"], egress=[{}],
               ingress=[{"from": [{"ipBlock": {"cidr": "10.0.0.0/24"}}]}]),
    ):  # fmt: skip
        assert not cause(DENY, allowing)
    assert "deny-all" in cause(DENY, policy("in", ingress=[{"from": [ALL]}])), "none goes out"


def test_the_policy_that_is_rendered_is_what_was_missing() -> None:
    own = network_policy(request(namespace="ml"), "llama", "")
    assert not cause(DENY, own)
    closed = policy("deny-all")
    assert not cause(closed, own, notebook=NEIGHBOR)
    assert "deny-all" in cause(closed, own, notebook=NOTEBOOK), "it is in another namespace"
    assert "deny-all" in cause(DENY, own, notebook=NEIGHBOR), "it may not go out itself"


def test_what_keeps_the_notebook_from_the_pods_is_named() -> None:
    inside = policy("inside", ingress=[{"from": [ALL]}])
    assert not cause(inside)
    assert says("notebook", cause(inside, notebook=NOTEBOOK))
    for peer in (
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "hub"}}},
        {"namespaceSelector": {"matchLabels": {"team": "a"}}, "podSelector": {}},
        {"namespaceSelector": {"matchExpressions": [
            {"key": "team", "operator": "In", "values": ["a", "b"]}]}},
    ):  # fmt: skip
        port = [{"protocol": "TCP", "port": "agent"}]
        assert not cause(inside, policy("hub", ingress=[{"from": [peer], "ports": port}]),
                         notebook=NOTEBOOK)  # fmt: skip
