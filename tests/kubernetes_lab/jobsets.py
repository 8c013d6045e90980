"""JobSets and their pods: what the controllers of JobSets and Jobs, and the scheduler, do."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from tests.sources.kubernetes.api_server import ApiServer

INDEX = "batch.kubernetes.io/job-completion-index"
OWNER = "jobset.sigs.k8s.io/jobset-name"

Object = dict[str, Any]


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class JobSets:
    """Makes the pods of JobSets that are not suspended, and ends those of the others.

    Args:
        hosts: names of the nodes; each has room for one pod.
    """

    def __init__(self, api: ApiServer, hosts: Sequence[str]) -> None:
        self._api = api
        self._hosts = hosts

    def look(self) -> None:
        """One round of the controllers."""
        wanted = {
            one["metadata"]["name"]: one
            for one in self._api.of("jobsets")
            if not one["spec"].get("suspend")
        }
        for pod in self._api.of("pods"):
            if pod["metadata"]["labels"][OWNER] not in wanted:
                pod["metadata"].setdefault("deletionTimestamp", now())
        for name, jobset in wanted.items():
            self._make_pods(name, jobset)
        self._schedule()

    def _make_pods(self, name: str, jobset: Object) -> None:
        there = {
            pod["metadata"]["annotations"][INDEX]: pod
            for pod in self._api.of("pods")
            if pod["metadata"]["labels"][OWNER] == name
        }
        (replicated,) = jobset["spec"]["replicatedJobs"]
        job = replicated["template"]["spec"]
        for index in map(str, range(job["completions"])):
            if index not in there:
                self._make_pod(f"{name}-{replicated['name']}-0-{index}", index, name, job)
        phases = [pod["status"]["phase"] for pod in there.values()]
        ended = "Failed" if "Failed" in phases else "Completed"
        if phases and (ended == "Failed" or set(phases) == {"Succeeded"}):
            said = {"type": ended, "status": "True", "reason": "x", "message": "its pods ended"}
            said["lastTransitionTime"] = now()
            self._api.change(jobset, {"status": {"conditions": [said]}})

    def _make_pod(self, prefix: str, index: str, owner: str, job: Object) -> None:
        template = deepcopy(job["template"])
        meta = template["metadata"]
        self._api.put(
            "pods",
            kind="Pod",
            metadata={
                "name": f"{prefix}-{secrets.token_hex(2)}",
                "creationTimestamp": now(),
                "labels": {**meta["labels"], OWNER: owner},
                "annotations": {**meta.get("annotations", {}), INDEX: index},
            },
            spec=template["spec"],
            status={"phase": "Pending"},
        )

    def _schedule(self) -> None:
        pods = self._api.of("pods")
        live = [pod for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]
        taken = {pod["spec"].get("nodeName") for pod in live}
        free = [host for host in self._hosts if host not in taken]
        for pod in pods:
            if "nodeName" in pod["spec"]:
                continue
            if free:
                self._api.change(pod, {"spec": {"nodeName": free.pop(0)}})
                continue
            told = f"0/{len(self._hosts)} nodes are available: {len(self._hosts)} Too many pods."
            said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            pod["status"]["conditions"] = [said | {"message": told}]
