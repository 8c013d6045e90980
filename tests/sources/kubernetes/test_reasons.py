"""Reasons: as Kueue, the scheduler and nodes word them, over versions."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_mntrain.model.sources.source import Waiting
from jupyter_mntrain.sources.kubernetes.state import in_queue, of_pods

OVER = (
    "couldn't assign flavors to pod set node: insufficient quota for nvidia.com/gpu in flavor "
    "h100, previously considered podsets requests (0) + current podset request (64) > maximum "
    "capacity (32)"
)
USED = (
    "couldn't assign flavors to pod set node: insufficient unused quota for nvidia.com/gpu in "
    "flavor h100, 8 more needed"
)


def kueue(*conditions: tuple[str, str, str, str], **more: Any) -> dict[str, Any]:
    told = [
        dict(zip(("type", "status", "reason", "message"), one, strict=True)) for one in conditions
    ]
    status = {"conditions": told, "admissionChecks": more.pop("checks", [])}
    return {"spec": more, "status": status}


def reserved(reason: str, message: str = "") -> dict[str, Any]:
    return kueue(("QuotaReserved", "False", reason, message))


@pytest.mark.parametrize(
    ("reason", "message", "cause", "can_end"),
    [
        ("WaitingForQuota", USED, "quota", True),
        ("Pending", USED, "quota", True),
        ("ExceedsMaxQuota", OVER, "ever", False),
        ("Pending", OVER, "ever", False),
        ("NoMatchingFlavor", "flavor cpu does not provide resource", "the request", False),
        ("Pending", "untolerated taint {gpu true NoSchedule} in flavor h100", "the request", False),
        ("TopologyPlacementFailed", 'topology "default" allows to fit only 3', "close", True),
        ("WaitingForPreemptedWorkloads", "Preempting 1 workload(s)", "priority", True),
        ("WaitingForPodsReady", "waiting for all admitted", "job before", True),
        ("Misconfigured", "LocalQueue team-b doesn't exist", "queue", False),
        ("Inadmissible", "LocalQueue team-b doesn't exist", "queue", False),
        ("Inadmissible", "ClusterQueue gpus is stopped", "stopped", True),
        ("Suspended", "ClusterQueue gpus is stopped", "stopped", True),
        ("AWordOfTomorrow", "", "looked", True),
    ],
)
@pytest.mark.wording
def test_why_kueue_lets_it_wait(reason: str, message: str, cause: str, can_end: bool) -> None:
    told = in_queue(reserved(reason, message))
    assert told is not None
    assert told.word == reason
    assert cause in told.reason.cause
    assert told.reason.fix
    assert told.reason.detail == message
    assert told.can_end is can_end


def test_what_kueue_has_admitted_waits_no_more() -> None:
    admitted = kueue(("QuotaReserved", "True", "QuotaReserved", ""), ("Admitted", "True", "", ""))
    assert in_queue(admitted) is None


@pytest.mark.parametrize(("state", "can_end"), [("Pending", True), ("Rejected", False)])
def test_a_check_that_a_queue_requires_is_named(state: str, can_end: bool) -> None:
    checks = [
        {"name": "budget", "state": "Ready"},
        {"name": "new-nodes", "state": state, "message": "creating 4 nodes"},
    ]
    told = in_queue(kueue(("QuotaReserved", "True", "QuotaReserved", ""), checks=checks))
    assert told is not None
    assert told.can_end is can_end
    assert told.reason.detail == "new-nodes: creating 4 nodes"


def test_what_kueue_has_given_up_never_starts() -> None:
    evicted = ("Evicted", "True", "Deactivated", "exceeded the maximum number of re-queuing")
    told = in_queue(kueue(evicted, active=False))
    assert told is not None
    assert not told.can_end
    assert "maximum number" in told.reason.detail


@pytest.mark.wording
def test_what_cannot_be_read_or_is_not_there_is_said() -> None:
    for told in (in_queue(None, is_readable=False), in_queue(None), of_pods([], 2)):
        assert told is not None
        assert told.can_end
        assert "administrators" in told.reason.fix


def pod(phase: str = "Pending", *, scheduled: str = "", waits: str = "", message: str = "") -> dict:
    status: dict[str, Any] = {"phase": phase}
    if scheduled:
        status["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": scheduled, "message": message}
        ]
    if waits:
        state = {"waiting": {"reason": waits, "message": message}}
        status["containerStatuses"] = [{"name": "node", "state": state}]
    return {"metadata": {"name": "x"}, "status": status}


FULL = (
    "0/5 nodes are available: 2 Insufficient nvidia.com/gpu, 3 node(s) had untolerated taint "
    "{node-role.kubernetes.io/control-plane: }. preemption: 0/5 nodes are available: 2 No "
    "preemption victims found for incoming pod, 3 Preemption is not helpful for scheduling."
)
UNFIT = (
    "0/5 nodes are available: 1 node(s) had untolerated taint {gpu: true}, 4 node(s) didn't match "
    "Pod's node affinity/selector. preemption: 0/5 nodes are available: 5 Preemption is no help."
)
DRAINED = (
    "0/2 nodes are available: 1 node(s) were unschedulable, 1 node(s) didn't match Pod's node "
    "affinity/selector."
)
CLAIM = '0/5 nodes are available: persistentvolumeclaim "runs" not found.'


@pytest.mark.parametrize(
    ("one", "cause", "can_end"),
    [
        (pod(scheduled="Unschedulable", message=FULL), "enough free", True),
        (pod(scheduled="Unschedulable", message=UNFIT), "the request", False),
        (pod(scheduled="Unschedulable", message=DRAINED), "enough free", True),
        (pod(scheduled="Unschedulable", message=CLAIM), "storage", False),
        (pod(scheduled="SchedulingGated"), "Kueue", True),
        (pod(waits="ImagePullBackOff", message="not found"), "image", False),
        (pod(waits="ErrImagePull", message="unauthorized"), "image", False),
        (pod(waits="InvalidImageName"), "image", False),
        (pod(waits="CreateContainerConfigError", message="secret not found"), "container", False),
        (pod(waits="ContainerCreating"), "being created", True),
        (pod(), "being created", True),
    ],
)
@pytest.mark.wording
def test_why_a_pod_does_not_run(one: dict[str, Any], cause: str, can_end: bool) -> None:
    told = of_pods([pod("Running"), one], 2)
    assert told is not None
    assert cause in told.reason.cause
    assert told.reason.fix
    assert told.can_end is can_end


def test_the_reason_that_never_ends_comes_first() -> None:
    pods = [pod(waits="ContainerCreating"), pod(waits="ImagePullBackOff")]
    told = of_pods(pods, 2)
    assert isinstance(told, Waiting)
    assert told.word == "ImagePullBackOff"
    assert of_pods([pod("Running")] * 2, 2) is None
    assert of_pods([pod("Running")], 2) is not None, "one is missing"


QUOTA = (
    'pods "x-node-0-1" is forbidden: exceeded quota: team, requested: {asked}, used: '
    "requests.nvidia.com/gpu=4, limited: requests.nvidia.com/gpu=8,limits.memory=1Ti"
)
SECURITY = (
    'pods "x" is forbidden: violates PodSecurity "restricted:latest": unrestricted capabilities '
    '(container "node" must not include "IPC_LOCK" in securityContext.capabilities.add)'
)


@pytest.mark.parametrize(
    ("reason", "message", "cause", "can_end"),
    [
        ("FailedCreate", QUOTA.format(asked="requests.nvidia.com/gpu=8"), "in use", True),
        ("FailedCreate", QUOTA.format(asked="requests.nvidia.com/gpu=16"), "ever use", False),
        ("FailedCreate", QUOTA.format(asked="limits.memory=1025Gi"), "ever use", False),
        ("FailedCreate", SECURITY, "forbid", False),
        ("FailedMount", 'secret "llama" not found', "storage", False),
    ],
)
@pytest.mark.wording
def test_what_stands_in_events_alone_is_told(
    reason: str, message: str, cause: str, can_end: bool
) -> None:
    events = [{"reason": "SuccessfulCreate", "message": "created"}]
    told = of_pods([], 2, [*events, {"reason": reason, "message": message}])
    assert told is not None
    assert cause in told.reason.cause
    assert told.can_end is can_end
