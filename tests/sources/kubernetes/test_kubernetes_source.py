"""Kubernetes as a source: the real client against a server that takes only valid objects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.sources.source import changes
from jupyter_mntrain.sources.kubernetes.kubernetes_source import KubernetesSource
from jupyter_mntrain.sources.kubernetes.objects import JOB_LABEL
from tests.sources.kubernetes.api_server import NAMESPACE, ApiServer, serving
from tests.sources.kubernetes.requests import COMMAND, EVERYTHING, request
from tests.sources.kubernetes.schemas import InvalidObjectError, validate

SOURCE = KubernetesSource()

Story = Callable[[ApiServer], Awaitable[None]]


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Story], None]:
    """Runs a story against an API server that the kubeconfig leads to."""

    def run(story: Story) -> None:
        async def told() -> None:
            async with serving(tmp_path) as server:
                monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
                server.put("nodes", kind="Node", metadata={"name": "n1"}, status=OFFERS)
                await story(server)

        asyncio.run(told())

    return run


OFFERS = {"allocatable": {"nvidia.com/gpu": "8", "rdma/hca_shared_devices_a": "63"}}


def pod(server: ApiServer, name: str, index: int, phase: str, **status: Any) -> None:
    server.put(
        "pods",
        kind="Pod",
        metadata={
            "name": f"{name}-node-0-{index}-abcde",
            "creationTimestamp": "2026-11-27T10:00:00Z",
            "labels": {JOB_LABEL: name},
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        },
        spec={"containers": [], "nodeName": f"n{index}" if phase == "Running" else ""},
        status={"phase": phase, "startTime": "2026-11-27T10:00:10Z"} | status,
    )


def workload_of(server: ApiServer, outer: dict[str, Any]) -> dict[str, Any]:
    """Kueue's object for a JobSet, before it has said anything of it."""
    owner = {"apiVersion": outer["apiVersion"], "kind": "JobSet", "controller": True}
    owner |= {key: outer["metadata"][key] for key in ("name", "uid")}
    (replicated,) = outer["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    return server.put(
        "workloads",
        kind="Workload",
        metadata={"name": "jobset-x", "ownerReferences": [owner]},
        spec={"podSets": [{"count": job["completions"], "template": job["template"]}]},
        status={"conditions": []},
    )


def condition(kind: str, status: str, reason: str) -> dict[str, str]:
    said = {"type": kind, "status": status, "reason": reason, "message": "m"}
    return said | {"lastTransitionTime": "2026-11-27T10:00:00Z"}


@pytest.mark.parametrize(
    "path",
    [
        ("spec", "queueNames"),
        ("spec", "podSets", 0, "counts"),
        ("status", "conditions", 0, "reasons"),
        ("status", "schedulingStats", "evictions", 0, "counts"),
        ("spec", "podSets", 0, "template", "spec", "containers", 0, "resources", "limit"),
        ("spec", "podSets", 0, "template", "spec", "containers", 0, "volumeMounts", 0, "mountpath"),
    ],
)
def test_a_misspelled_field_of_a_workload_is_refused_at_any_depth(tell: Any, path: Any) -> None:
    async def story(server: ApiServer) -> None:
        begun = await SOURCE.submit(request(local_queue="team-a"), COMMAND)
        workload = deepcopy(workload_of(server, server.objects["jobsets", begun.id]))
        workload["status"]["conditions"] = [condition("Admitted", "True", "Admitted")]
        eviction = {"reason": "Preempted", "underlyingCause": "", "count": 1}
        workload["status"]["schedulingStats"] = {"evictions": [eviction]}
        validate(workload)
        place: Any = workload
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = "x"
        with pytest.raises(InvalidObjectError):
            validate(workload)

    tell(story)


def test_a_request_starts_once_its_secret_exists_and_ends_without_a_trace(tell: Any) -> None:
    async def story(server: ApiServer) -> None:
        asks = request(nodes=2, time_s=600.0)
        begun = await SOURCE.submit(asks, COMMAND)
        assert server.log == ["create jobsets", "create secrets", "patch jobsets"]
        outer, kept = (server.objects[kind, begun.id] for kind in ("jobsets", "secrets"))
        assert outer["spec"]["suspend"] is False
        assert kept["stringData"] == COMMAND.secrets
        assert begun.state == "pending"
        for index in range(2):
            pod(server, begun.id, index, "Pending")
        pending = await SOURCE.look(begun.id, asks)
        assert pending.waiting is not None
        for index in range(2):
            pod(server, begun.id, index, "Running")
        running = await SOURCE.look(begun.id, asks)
        assert [one.kind for one in changes(pending, running)] == ["granted"]
        assert [(one.name, one.state, one.host) for one in running.slots] == [
            ("kubernetes-0", "up", "n0"),
            ("kubernetes-1", "up", "n1"),
        ]
        assert running.ends_s is not None
        assert running.started_s is not None
        assert running.ends_s - running.started_s == 600.0
        await SOURCE.give_back(begun.id, asks)
        assert server.names("jobsets") == server.names("secrets") == []
        await SOURCE.give_back(begun.id, asks)
        gone = await SOURCE.look(begun.id, asks)
        assert gone.state == "unknown"
        assert gone.problem is not None
        assert gone.problem.kind is Kind.SCHEDULER_REFUSED

    tell(story)


def test_kueue_admits_late_evicts_and_admits_again(tell: Any) -> None:
    async def story(server: ApiServer) -> None:
        asks = request(nodes=1, local_queue="team-a")
        begun = await SOURCE.submit(asks, COMMAND)
        outer = server.objects["jobsets", begun.id]
        assert outer["spec"]["suspend"] is True, "Kueue starts it"
        assert begun.waiting is not None
        workload = workload_of(server, outer)

        def say(reserved: str, reason: str, admitted: str) -> None:
            workload["status"]["conditions"] = [
                condition("QuotaReserved", reserved, reason),
                condition("Admitted", admitted, "Admitted"),
            ]
            validate(workload)
            outer["spec"]["suspend"] = admitted != "True"

        say("False", "WaitingForQuota", "False")
        waits = await SOURCE.look(begun.id, asks)
        assert waits.waiting is not None
        assert waits.waiting.word == "WaitingForQuota"
        say("True", "QuotaReserved", "True")
        outer["spec"]["suspend"] = True
        admitted = await SOURCE.look(begun.id, asks)
        assert admitted.state == "pending", "its pods are not created yet"
        outer["spec"]["suspend"] = False
        pod(server, begun.id, 0, "Running")
        runs = await SOURCE.look(begun.id, asks)
        assert (runs.state, runs.grants) == ("running", 1)
        workload["status"]["conditions"].append(condition("Evicted", "True", "Preempted"))
        outer["spec"]["suspend"] = True
        ending = await SOURCE.look(begun.id, asks)
        assert ending.waiting is not None
        assert ending.waiting.word == "Evicted", "its pods have not ended yet"
        say("False", "WaitingForQuota", "False")
        eviction = {"reason": "Preempted", "underlyingCause": "", "count": 1}
        server.change(workload, {"status": {"schedulingStats": {"evictions": [eviction]}}})
        del server.objects["pods", f"{begun.id}-node-0-0-abcde"]
        evicted = await SOURCE.look(begun.id, asks)
        assert next(one.kind for one in changes(runs, evicted)) == "taken"
        say("True", "QuotaReserved", "True")
        pod(server, begun.id, 0, "Running")
        again = await SOURCE.look(begun.id, asks)
        assert (again.state, again.grants) == ("running", 2)
        await SOURCE.save(begun.id, asks)
        assert workload["spec"]["active"] is False

    tell(story)


def test_without_kueue_a_save_is_a_suspension(tell: Any) -> None:
    async def story(server: ApiServer) -> None:
        asks = request(kind="trainjob", runtime="torch-distributed")
        begun = await SOURCE.submit(asks, COMMAND)
        await SOURCE.save(begun.id, asks)
        assert server.objects["trainjobs", begun.id]["spec"]["suspend"] is True
        told = await SOURCE.look(begun.id, asks)
        assert told.waiting is not None
        assert not told.waiting.can_end, "nobody starts it again"

    tell(story)


@pytest.mark.wording
def test_why_a_queue_lets_it_wait_is_said_to_those_who_may_not_read_it_too(tell: Any) -> None:
    async def story(server: ApiServer) -> None:
        server.forbidden |= {("list", one) for one in ("workloads", "events", "nodes")}
        asks = request(local_queue="team-a")
        begun = await SOURCE.submit(asks, COMMAND)
        told = await SOURCE.look(begun.id, asks)
        assert told.waiting is not None
        assert "workloads.kueue.x-k8s.io" in told.waiting.reason.fix

    tell(story)


def test_pods_that_a_policy_isolates_get_one_that_lets_them_talk(tell: Any) -> None:
    async def story(server: ApiServer) -> None:
        closed = {"podSelector": {}, "policyTypes": ["Ingress"]}
        server.put("networkpolicies", kind="NetworkPolicy", metadata={"name": "deny"}, spec=closed)
        asks = request(nodes=2)
        begun = await SOURCE.submit(asks, COMMAND)
        assert begun.id in server.names("networkpolicies")
        for index in range(2):
            pod(server, begun.id, index, "Running")
        assert await SOURCE.hindrance(begun.id, asks) is None
        del server.objects["networkpolicies", begun.id]
        problem = await SOURCE.hindrance(begun.id, asks)
        assert problem is not None
        assert "deny" in problem.cause

    tell(story)


@pytest.mark.parametrize(
    ("prepare", "options", "kind", "fix"),
    [
        (lambda s: setattr(s, "token", "another"), {}, Kind.NO_SCHEDULER, "log in"),
        (lambda s: s.missing.add("jobsets"), {}, Kind.SCHEDULER_REFUSED, "jobset.x-k8s.io"),
        (
            lambda s: s.forbidden.add(("create", "jobsets")),
            {},
            Kind.SCHEDULER_REFUSED,
            "create jobsets.jobset.x-k8s.io in namespace ml",
        ),
        (lambda s: None, {"namespace": "other"}, Kind.SCHEDULER_REFUSED, "--namespace"),
    ],
)
@pytest.mark.wording
def test_what_the_api_server_refuses_is_one_line_with_what_to_do(
    tell: Any, prepare: Any, options: dict[str, str], kind: Kind, fix: str
) -> None:
    async def story(server: ApiServer) -> None:
        prepare(server)
        asks = request(**options)
        for ask in (SOURCE.check, lambda one: SOURCE.submit(one, COMMAND)):
            with pytest.raises(RefusedError) as raised:
                await ask(asks)
            assert raised.value.kind is kind
            assert fix in raised.value.fix
            assert "\n" not in str(raised.value)
        assert not server.names("jobsets")

    tell(story)


def test_nothing_is_left_of_a_request_whose_secret_is_refused(tell: Any) -> None:
    async def story(server: ApiServer) -> None:
        server.forbidden.add(("create", "secrets"))
        with pytest.raises(RefusedError):
            await SOURCE.submit(request(), COMMAND)
        assert server.log == ["create jobsets", "delete jobsets"]
        assert server.names("jobsets") == []

    tell(story)


def test_a_check_keeps_nothing(tell: Any) -> None:
    async def story(server: ApiServer) -> None:
        await SOURCE.check(request(**EVERYTHING))
        assert server.log == ["try jobsets"]
        assert server.names("jobsets") == []

    tell(story)


def test_no_cluster_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(RefusedError) as raised:
        asyncio.run(SOURCE.check(request()))
    assert raised.value.kind is Kind.NO_SCHEDULER


def test_rendering_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    text = SOURCE.render(request(namespace=NAMESPACE), COMMAND)
    assert [one["kind"] for one in yaml.safe_load_all(text)] == [
        "JobSet",
        "Secret",
        "NetworkPolicy",
    ]
