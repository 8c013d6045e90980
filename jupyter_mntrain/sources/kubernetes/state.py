"""State of an allocation, derived from its Kubernetes objects. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.sources.source import Allocation, NodesRequest, Slot, Waiting
from jupyter_mntrain.sources.kubernetes.options import NAME

# Pending reasons: why our pods do not run yet, as Kueue, the scheduler and nodes report it. Pure.
# What Kubernetes answers is read as plain dictionaries: fields differ between versions, and none of
# them is needed for a reason to be told.


Object = Mapping[str, Any]

WAITS, NEVER = Kind.WAITS_FOR_NODES, Kind.NEVER_GRANTED

ASK = "ask the administrators"


class _WaitMeaning(NamedTuple):
    kind: Kind
    cause: str
    fix: str


_KUEUE: dict[str, _WaitMeaning] = {
    "WaitingForQuota": _WaitMeaning(
        WAITS, "the quota of its queue is in use",
        "it starts once other jobs have ended; fewer nodes or GPUs start sooner",
    ),
    "ExceedsMaxQuota": _WaitMeaning(
        NEVER, "it asks for more than its queue ever has",
        f"ask for fewer nodes or GPUs, use another --local-queue, or {ASK} for more quota",
    ),
    "NoMatchingFlavor": _WaitMeaning(
        NEVER, "no node that its queue may use matches the request",
        f"check --gpus, --gpu-resource, --rdma, --node and --tolerate, or {ASK} for a queue that "
        "has such nodes",
    ),
    "TopologyPlacementFailed": _WaitMeaning(
        WAITS, "not enough free nodes are close to each other",
        "it starts once such nodes are free; --near in place of --topology, or fewer nodes, start "
        "sooner",
    ),
    "WaitingForPreemptedWorkloads": _WaitMeaning(
        WAITS, "jobs of lower priority are being ended for it", "it starts once they have saved",
    ),
    "WaitingForPodsReady": _WaitMeaning(
        WAITS, "Kueue first waits until all pods of the job before it run",
        "it starts after that job, or once its time to start is over",
    ),
    "PendingEvaluation": _WaitMeaning(
        WAITS, "Kueue has not looked at it yet", "this takes seconds; if it stays, see Kueue's log",
    ),
    "PreemptionGated": _WaitMeaning(
        WAITS, "it may not end jobs of lower priority at the moment",
        "it starts once other jobs have ended",
    ),
    "Suspended": _WaitMeaning(
        WAITS, "the administrators have stopped its queue", f"{ASK} for how long",
    ),
    "Misconfigured": _WaitMeaning(
        NEVER, "its queue does not exist, or is not set up",
        f"check --local-queue ('kubectl get localqueues' lists them), or {ASK}",
    ),
    "Deactivated": _WaitMeaning(
        NEVER, "Kueue has given up on it", f"launch it again; {ASK} why, if that happens again",
    ),
    "Rejected": _WaitMeaning(
        NEVER, "a check that its queue requires has refused it", f"{ASK} what the check asks for",
    ),
    "AdmissionCheck": _WaitMeaning(
        WAITS, "its queue requires a check, such as new nodes from the cloud",
        "it starts once the check is done",
    ),
}  # fmt: skip

_OLDER: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"maximum capacity|exceeds .*(nominal|quota)"), "ExceedsMaxQuota"),
    (re.compile(r"doesn't exist|does not exist|is inactive|not found"), "Misconfigured"),
    (re.compile(r"stopped"), "Suspended"),
    (re.compile(r"topology"), "TopologyPlacementFailed"),
    (re.compile(r"insufficient unused quota|insufficient quota"), "WaitingForQuota"),
    (re.compile(r"does not provide|unavailable in|untolerated taint|match.*affinity"),
     "NoMatchingFlavor"),
    (re.compile(r"[Pp]reempt"), "WaitingForPreemptedWorkloads"),
)  # fmt: skip
"""Before 0.17, Kueue says ``Pending`` or ``Inadmissible``, and the rest in a sentence."""

UNREADABLE = _WaitMeaning(
    WAITS, "it waits in Kueue's queue; why cannot be read",
    f"{ASK} for the right to get and list workloads.kueue.x-k8s.io",
)  # fmt: skip
NOT_TAKEN = _WaitMeaning(
    WAITS, "Kueue has not picked it up",
    f"if that stays so, {ASK} whether Kueue is installed, and handles JobSets and TrainJobs",
)  # fmt: skip
NO_PODS = _WaitMeaning(
    WAITS, "its pods are not created yet",
    f"this takes seconds; if it stays, {ASK} whether the JobSet controller runs",
)  # fmt: skip


_TAKEN = _WaitMeaning(
    WAITS, "Kueue has taken its nodes back", "it starts again once its queue has room for it",
)  # fmt: skip
_PAUSED = _WaitMeaning(
    NEVER, "it was told to save and end",
    "give it back; 'resume' continues on other nodes from what was saved",
)  # fmt: skip


def suspended() -> Waiting:
    """Return the reason for a suspended workload that Kueue does not manage."""
    return _waiting("Suspended", _PAUSED)


def in_queue(workload: Object | None, *, is_readable: bool = True) -> Waiting | None:
    """Return why Kueue does not admit the workload; ``None`` once it has.

    Args:
        workload: Kueue's object for it; ``None`` = there is none.
        is_readable: whether this user may read such objects.
    """
    if not is_readable:
        return _waiting("Unreadable", UNREADABLE)
    if workload is None:
        return _waiting("NoWorkload", NOT_TAKEN)
    conditions = {one["type"]: one for one in workload.get("status", {}).get("conditions") or ()}
    evicted = conditions.get("Evicted") or {}
    if _is_true(conditions.get("Admitted")):
        is_taken = _is_true(evicted)
        return _waiting("Evicted", _TAKEN, evicted.get("message", "")) if is_taken else None
    if workload.get("spec", {}).get("active") is False:
        return _waiting("Deactivated", _KUEUE["Deactivated"], evicted.get("message", ""))
    reserved = conditions.get("QuotaReserved") or {}
    if _is_true(reserved):
        return _of_checks(workload.get("status", {}).get("admissionChecks") or ())
    word = reserved.get("reason") or "PendingEvaluation"
    message = reserved.get("message", "")
    meaning = _KUEUE.get(word) or _KUEUE[_older(message)]
    return _waiting(word, meaning, message)


def _older(message: str) -> str:
    return next((word for form, word in _OLDER if form.search(message)), "PendingEvaluation")


def _of_checks(checks: Sequence[Object]) -> Waiting:
    rejected = [one for one in checks if one.get("state") == "Rejected"]
    open_ = [one for one in checks if one.get("state") not in ("Ready", "Rejected")]
    for word, found in (("Rejected", rejected), ("AdmissionCheck", open_)):
        if found:
            told = "; ".join(f"{one['name']}: {one.get('message', '')}" for one in found)
            return _waiting(word, _KUEUE[word], told)
    return _waiting("PendingEvaluation", _KUEUE["PendingEvaluation"])


def of_pods(pods: Sequence[Object], nodes: int, events: Iterable[Object] = ()) -> Waiting | None:
    """Return why not all pods run; ``None`` if they do. A reason that never ends comes first.

    Args:
        nodes: as many pods are needed.
        events: of the pods and of their Job.
    """
    found = [one for pod in pods if (one := _of_pod(pod)) is not None]
    found += _of_events(events)
    if not found and len(pods) < nodes:
        found.append(_waiting("NoPods", NO_PODS))
    return min(found, key=lambda one: one.can_end, default=None)


def _of_pod(pod: Object) -> Waiting | None:
    status = pod.get("status", {})
    if status.get("phase") in ("Running", "Succeeded", "Failed"):
        return None
    for one in status.get("conditions") or ():
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return _unscheduled(one.get("reason", ""), one.get("message", ""))
    containers = (*(status.get("initContainerStatuses") or ()),
                  *(status.get("containerStatuses") or ()))  # fmt: skip
    for one in containers:
        if told := one.get("state", {}).get("waiting"):
            word = told.get("reason", "ContainerCreating")
            return _waiting(word, _CONTAINERS.get(word, _STARTS), told.get("message", ""))
    return _waiting("Pending", _STARTS)


_IMAGE = _WaitMeaning(
    NEVER, "the image cannot be pulled",
    "check the name in --image; for a private registry, give --pull-secret",
)  # fmt: skip
_CONFIGURATION = _WaitMeaning(
    NEVER, "its container cannot be created",
    f"see the reason; if it concerns this user's rights, use --user, or {ASK}",
)  # fmt: skip
_STARTS = _WaitMeaning(
    WAITS, "its containers are being created", "pulling a large image takes minutes"
)

_CONTAINERS: dict[str, _WaitMeaning] = {
    **dict.fromkeys(
        ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"), _IMAGE
    ),
    **dict.fromkeys(
        ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"), _CONFIGURATION
    ),
}

_BUSY = _WaitMeaning(
    WAITS, "no node has enough free",
    "it starts once other jobs have ended; if no node is so large, ask for less per node",
)  # fmt: skip
_UNFIT = _WaitMeaning(
    NEVER, "no node matches the request",
    f"check --node, --tolerate and --gpus, or {ASK}",
)  # fmt: skip
_STORAGE = _WaitMeaning(
    NEVER, "its storage is not available",
    "check --storage: 'kubectl get pvc' shows the claims, and whether they are bound",
)  # fmt: skip
_GATED = _WaitMeaning(WAITS, "Kueue still chooses its nodes", "this takes seconds")

_FREE = re.compile(r"Insufficient|Too many pods|didn't have free ports|free ports")
_CLAIM = re.compile(r"[Pp]ersistent[Vv]olume|volume node affinity|volume\(s\)")
_COUNTED = re.compile(r"(\d+) ((?:node\(s\) |Insufficient |Too many ).*?)(?=, \d+ |\. |$)")


def _unscheduled(word: str, message: str) -> Waiting:
    if word == "SchedulingGated":
        return _waiting(word, _GATED, message)
    told = message.split(" preemption:", maxsplit=1)[0].rstrip(". ")
    if _CLAIM.search(told) and not _FREE.search(told):
        return _waiting(word, _STORAGE, told)
    reasons = [reason for _, reason in _COUNTED.findall(told)]
    # Nodes that are drained come back; what a node is does not change.
    is_unfit = bool(reasons) and not any(
        _FREE.search(one) or "unschedulable" in one or "not-ready" in one or "unreachable" in one
        for one in reasons
    )
    return _waiting(word, _UNFIT if is_unfit else _BUSY, told)


_SECURITY = _WaitMeaning(
    NEVER, "the rules of the namespace forbid such pods",
    f"leave out --rdma (it needs IPC_LOCK), give --user, or {ASK} for a namespace that allows it",
)  # fmt: skip
_OVER = _WaitMeaning(
    NEVER, "it asks for more than the namespace may ever use",
    f"ask for less, or {ASK} for a larger ResourceQuota",
)  # fmt: skip
_USED = _WaitMeaning(
    WAITS, "the ResourceQuota of the namespace is in use",
    "it starts once other pods of the namespace have ended",
)  # fmt: skip
_FORBIDDEN = _WaitMeaning(NEVER, "the cluster refuses to create its pods", f"{ASK} about the rule")

_QUOTA = re.compile(
    r"exceeded quota: .*?requested: (?P<requested>\S+), .*limited: (?P<limited>\S+)"
)


def _of_events(events: Iterable[Object]) -> Iterator[Waiting]:
    """Yield reasons that appear only in events, not in the objects themselves."""
    for event in events:
        message, word = event.get("message", ""), event.get("reason", "")
        if word == "FailedMount":
            yield _waiting(word, _STORAGE, message)
        elif word == "FailedCreate" and (found := _QUOTA.search(message)):
            is_over = _exceeds(found["requested"], found["limited"])
            yield _waiting("ResourceQuota", _OVER if is_over else _USED, message)
        elif word == "FailedCreate" and "PodSecurity" in message:
            yield _waiting("PodSecurity", _SECURITY, message)
        elif word == "FailedCreate" and "forbidden" in message:
            yield _waiting(word, _FORBIDDEN, message)


def _exceeds(requested: str, limited: str) -> bool:
    """Return whether a request, like ``name=4,…``, is larger than the whole quota."""
    most = dict(_amounts(limited))
    return any(amount > most.get(name, float("inf")) for name, amount in _amounts(requested))


_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTP", 1)
}


def _amounts(text: str) -> Iterator[tuple[str, float]]:
    for name, number, unit in re.findall(r"([\w./-]+)=(\d+(?:\.\d+)?)([A-Za-z]*)", text):
        yield name, float(number) * _UNITS.get(unit, 1.0)


def _waiting(word: str, meaning: _WaitMeaning, message: str = "") -> Waiting:
    problem = Problem(meaning.kind, meaning.cause, meaning.fix, detail=message)
    return Waiting(word, problem)


def _is_true(condition: Object | None) -> bool:
    return condition is not None and condition.get("status") == "True"


INDEX = "batch.kubernetes.io/job-completion-index"
PREEMPTION = ("PreemptionByScheduler", "PreemptionByKubeScheduler")


class FoundObjects(NamedTuple):
    """Kubernetes objects of an allocation.

    Args:
        outer: the JobSet or the TrainJob.
        workload: Kueue's for it; ``is_readable`` says whether this user may see it.
    """

    outer: Object
    pods: Sequence[Object]
    workload: Object | None = None
    is_readable: bool = True
    events: Sequence[Object] = ()


def allocation_of(found: FoundObjects, request: NodesRequest) -> Allocation:
    """Return the current state of the allocation."""
    meta, status = found.outer["metadata"], found.outer.get("status") or {}
    ends = {one["type"]: one for one in status.get("conditions") or () if one["status"] == "True"}
    pods = newest(found.pods)
    slots = tuple(_slot(name, pods.get(index)) for index, name in enumerate(request.slots))
    started = [_unix_s(one["status"].get("startTime")) for one in pods.values()]
    told: dict[str, Any] = {
        "id": meta["name"],
        "source": NAME,
        "slots": slots,
        "submitted_s": _unix_s(meta.get("creationTimestamp")),
        "grants": _grants(found, pods.values()),
    }
    if ends.get("Completed") or ends.get("Complete"):
        return Allocation(state="ended", outcome="done", **told)
    if failed := ends.get("Failed"):
        cause = f"the pods failed: {failed.get('message', '')}".rstrip(": ")
        problem = Problem(Kind.NODES_TAKEN, cause, fix_of(Kind.NODES_TAKEN))
        return Allocation(state="ended", outcome="failed", problem=problem, **told)
    if meta.get("deletionTimestamp"):
        return Allocation(state="ending", **told)
    waiting = _why_pending(found, request)
    if waiting is not None:
        return Allocation(state="pending", waiting=waiting, **told)
    began = max((one for one in started if one is not None), default=None)
    limit = None if began is None or request.time_s is None else began + request.time_s
    return Allocation(state="running", started_s=began, ends_s=limit, **told)


def _why_pending(found: FoundObjects, request: NodesRequest) -> Waiting | None:
    if found.outer.get("spec", {}).get("suspend"):
        if not request.option("local-queue"):
            return suspended()
        if told := in_queue(found.workload, is_readable=found.is_readable):
            return told
    return of_pods(list(newest(found.pods).values()), request.nodes, found.events)


def newest(pods: Iterable[Object]) -> dict[int, Object]:
    """Return the newest pod of each slot."""
    found: dict[int, Object] = {}
    for pod in sorted(pods, key=lambda one: one["metadata"].get("creationTimestamp") or ""):
        index = (pod["metadata"].get("annotations") or {}).get(INDEX)
        if index is not None:
            found[int(index)] = pod
    return found


def _slot(name: str, pod: Object | None) -> Slot:
    if pod is None:
        return Slot(name)
    status, host = pod.get("status") or {}, pod.get("spec", {}).get("nodeName") or ""
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    if (moved := conditions.get("DisruptionTarget")) and moved["status"] == "True":
        is_preempted = moved.get("reason") in PREEMPTION
        kind = Kind.PREEMPTED if is_preempted else Kind.NODES_TAKEN
        problem = Problem(kind, f"its pod is ended: {moved.get('message', '')}", fix_of(kind))
        return Slot(name, "gone", host, problem)
    ready = conditions.get("Ready") or {}
    if status.get("phase") == "Running" and ready.get("reason") == "NodeNotReady":
        problem = Problem(Kind.NODE_LOST, "its node does not answer", fix_of(Kind.NODE_LOST))
        return Slot(name, "down", host, problem)
    states = {"Running": "up", "Succeeded": "gone", "Failed": "gone"}
    return Slot(name, states.get(status.get("phase", ""), "waiting"), host)  # type: ignore[arg-type]


def _grants(found: FoundObjects, pods: Iterable[Object]) -> int:
    """Count the grants: Kueue counts evictions, and the JobSet counts restarts."""
    workload = (found.workload or {}).get("status") or {}
    evictions = (workload.get("schedulingStats") or {}).get("evictions") or ()
    taken = sum(int(one.get("count", 0)) for one in evictions)
    restarts = int((found.outer.get("status") or {}).get("restarts", 0))
    holds = any(
        one.get("spec", {}).get("nodeName") and not one["metadata"].get("deletionTimestamp")
        for one in pods
    )
    return taken + restarts + int(holds)


def _unix_s(told: Any) -> float | None:
    if not told:
        return None
    if isinstance(told, datetime):
        return told.timestamp()
    return datetime.fromisoformat(str(told)).timestamp()
