"""Kueue, as far as this lab needs it: one quota of pods, admitted by priority, lower ones evicted.

It writes Workloads as Kueue 0.19 does; reasons are its own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.sources.kubernetes.api_server import ApiServer

QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
PRIORITIES = {"": 0, "high": 1000}

Object = dict[str, Any]


class Kueue:
    """One LocalQueue, whose quota counts pods.

    Args:
        queue: its name.
    """

    def __init__(self, api: ApiServer, queue: str, quota: int) -> None:
        self._api = api
        self._queue = queue
        self._quota = quota

    def look(self) -> None:
        """One round of the controller."""
        queued = [one for one in self._api.of("jobsets") if QUEUE in _labels(one)]
        told = [(one, self._workload(one)) for one in queued]
        for jobset, workload in told:
            self._settle(jobset, workload)
        held = [pair for pair in told if _is(pair[1], "QuotaReserved")]
        waiting = [
            pair for pair in told if pair not in held and pair[1]["spec"].get("active", True)
        ]
        for jobset, workload in sorted(waiting, key=lambda pair: -pair[1]["spec"]["priority"]):
            held += self._consider(jobset, workload, held)

    def _consider(
        self, jobset: Object, workload: Object, held: list[tuple[Object, Object]]
    ) -> list[tuple[Object, Object]]:
        """What holds quota then, besides those that do."""
        count, free = _count(workload), self._quota - sum(_count(one) for _, one in held)
        if _labels(jobset)[QUEUE] != self._queue:
            self._wait(workload, "Misconfigured", f"LocalQueue {_labels(jobset)[QUEUE]} not found")
        elif count > self._quota:
            told = f"request of {count} pods > maximum capacity ({self._quota})"
            self._wait(workload, "ExceedsMaxQuota", told)
        elif count <= free:
            self._admit(jobset, workload)
            return [(jobset, workload)]
        else:
            lower = [
                pair for pair in held if pair[1]["spec"]["priority"] < workload["spec"]["priority"]
            ]
            if free + sum(_count(one) for _, one in lower) < count:
                told = f"insufficient unused quota for pods, {count - free} more needed"
                self._wait(workload, "WaitingForQuota", told)
            else:
                told = f"Preempting {len(lower)} workload(s)"
                self._wait(workload, "WaitingForPreemptedWorkloads", told)
                for victim, its_workload in lower:
                    self._evict(victim, its_workload, "Preempted")
        return []

    def _workload(self, jobset: Object) -> Object:
        name = f"jobset-{jobset['metadata']['name']}"
        if (found := self._api.objects.get(("workloads", name))) is not None:
            return found
        (replicated,) = jobset["spec"]["replicatedJobs"]
        job = replicated["template"]["spec"]
        pods = {
            "name": replicated["name"],
            "count": job["completions"],
            "template": job["template"],
        }
        owner = {"apiVersion": jobset["apiVersion"], "kind": "JobSet", "controller": True}
        owner |= {key: jobset["metadata"][key] for key in ("name", "uid")}
        labels = _labels(jobset)
        return self._api.put(
            "workloads",
            kind="Workload",
            metadata={"name": name, "ownerReferences": [owner]},
            spec={
                "active": True,
                "queueName": labels[QUEUE],
                "priority": PRIORITIES[labels.get(PRIORITY, "")],
                "podSets": [pods],
            },
            status={"conditions": []},
        )

    def _admit(self, jobset: Object, workload: Object) -> None:
        told = f"Quota reserved in ClusterQueue {self._queue}"
        self._say(workload, "QuotaReserved", "True", "QuotaReserved", told)
        self._say(workload, "Admitted", "True", "Admitted", "The workload is admitted")
        if _is(workload, "Evicted"):
            self._say(workload, "Evicted", "False", "QuotaReserved", "Previously: Preempted")
        self._api.change(jobset, {"spec": {"suspend": False}})

    def _evict(self, jobset: Object, workload: Object, reason: str) -> None:
        if _is(workload, "Evicted"):
            return
        told = "Preempted to accommodate a workload of higher priority"
        self._say(workload, "Evicted", "True", reason, told)
        earlier = workload["status"].get("schedulingStats", {"evictions": [{"count": 0}]})
        count = earlier["evictions"][0]["count"] + 1
        evictions = [{"reason": reason, "underlyingCause": "", "count": count}]
        self._api.change(workload, {"status": {"schedulingStats": {"evictions": evictions}}})
        self._api.change(jobset, {"spec": {"suspend": True}})

    def _settle(self, jobset: Object, workload: Object) -> None:
        """What is evicted holds its quota until its last pod has ended."""
        if workload["spec"].get("active") is False and _is(workload, "QuotaReserved"):
            self._evict(jobset, workload, "Deactivated")
        name = jobset["metadata"]["name"]
        has_pods = any(pod["metadata"]["name"].startswith(name) for pod in self._api.of("pods"))
        if _is(workload, "Evicted") and _is(workload, "QuotaReserved") and not has_pods:
            self._say(workload, "Admitted", "False", "NoReservation", "no reservation")
            self._wait(workload, "WaitingForQuota", "evicted")

    def _wait(self, workload: Object, reason: str, message: str) -> None:
        self._say(workload, "QuotaReserved", "False", reason, message)

    def _say(
        self, workload: Object, kind: str, status: str, reason: str, message: str
    ) -> None:  # fmt: skip
        others = [one for one in workload["status"]["conditions"] if one["type"] != kind]
        before = _condition(workload, kind)
        said = {"type": kind, "status": status, "reason": reason, "message": message}
        if before is not None and before | said == before:
            return
        said["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._api.change(workload, {"status": {"conditions": [*others, said]}})


def _labels(one: Object) -> dict[str, str]:
    found: dict[str, str] = one["metadata"].get("labels", {})
    return found


def _count(workload: Object) -> int:
    return sum(int(one["count"]) for one in workload["spec"]["podSets"])


def _condition(workload: Object, kind: str) -> Object | None:
    return next((one for one in workload["status"]["conditions"] if one["type"] == kind), None)


def _is(workload: Object, kind: str) -> bool:
    found = _condition(workload, kind)
    return found is not None and found["status"] == "True"
