"""State of an allocation, derived from its Kubernetes objects. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.sources.allocation import Allocation, Slot, Waiting
from jupyter_mntrain.model.sources.request import NodesRequest
from jupyter_mntrain.sources.kubernetes.options import NAME
from jupyter_mntrain.sources.kubernetes.reasons import in_queue, of_pods, suspended

INDEX = "batch.kubernetes.io/job-completion-index"
PREEMPTION = ("PreemptionByScheduler", "PreemptionByKubeScheduler")

Object = Mapping[str, Any]


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
    waiting = _waiting(found, request)
    if waiting is not None:
        return Allocation(state="pending", waiting=waiting, **told)
    began = max((one for one in started if one is not None), default=None)
    limit = None if began is None or request.time_s is None else began + request.time_s
    return Allocation(state="running", started_s=began, ends_s=limit, **told)


def _waiting(found: FoundObjects, request: NodesRequest) -> Waiting | None:
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
