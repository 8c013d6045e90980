"""Kubernetes objects: creates those of a request, as dictionaries or as YAML for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_mntrain.model.sources.request import NodesRequest, SlotCommand
from jupyter_mntrain.sources.kubernetes.options import TRAINJOB
from jupyter_mntrain.sources.kubernetes.pod import (
    AGENT_PORT,
    CONTAINER,
    JOB_LABEL,
    Part,
    container,
    metadata,
    placement,
    template,
    volumes,
)
from jupyter_mntrain.sources.kubernetes.resources import AskedResources

REPLICATED_JOB = "node"
"""Also the name in the training runtimes that Kubeflow ships."""

QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
MANAGER = "mntrain"
MANAGED_BY = "app.kubernetes.io/managed-by"

MOST_RESTARTS = 3
"""Times that a JobSet begins again after a pod was lost in a way that its Job does not mend."""


def workload(request: NodesRequest, command: SlotCommand, name: str, asks: AskedResources) -> Part:
    """Make the JobSet or TrainJob. It is created suspended, and starts once its secret exists and
    Kueue, if there is a queue, has admitted it.
    """
    made = _trainjob if request.option("kind") == TRAINJOB else _jobset
    return made(request, command, name, asks)


def _jobset(request: NodesRequest, command: SlotCommand, name: str, asks: AskedResources) -> Part:
    limit: Part = {} if request.time_s is None else {"activeDeadlineSeconds": int(request.time_s)}
    # Drained, preempted or evicted: its pod is replaced alone, and is the same slot again.
    moved = {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    job: Part = {
        "completionMode": "Indexed",
        "completions": request.nodes,
        "parallelism": request.nodes,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [moved]},
        **limit,
        "template": template(request, command, name, asks),
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(request, name),
        "spec": {
            "suspend": True,
            # Agents look for each other before they are ready.
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": MOST_RESTARTS},
            "replicatedJobs": [
                {"name": REPLICATED_JOB, "replicas": 1, "template": {"spec": job}},
            ],
        },
    }


def _trainjob(request: NodesRequest, command: SlotCommand, name: str, asks: AskedResources) -> Part:
    """Make a TrainJob: the same pod as a patch of a training runtime, without its ``torchrun``."""
    own = container(request, command, name, asks)
    trainer: Part = {
        **({"image": own["image"]} if "image" in own else {}),
        "command": own["command"],
        "env": own["env"],
        "numNodes": request.nodes,
        **({"resourcesPerNode": own["resources"]} if "resources" in own else {}),
    }
    patched = {key: own[key] for key in ("securityContext", "volumeMounts") if key in own}
    pod: Part = {
        **placement(request, asks),
        "containers": [{"name": CONTAINER, **patched}],
        "volumes": volumes(request, name),
    }
    job = {"template": {"metadata": metadata(request, name), "spec": pod}}
    patch = {"replicatedJobs": [{"name": REPLICATED_JOB, "template": {"spec": job}}]}
    limit: Part = {} if request.time_s is None else {"activeDeadlineSeconds": int(request.time_s)}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": _metadata(request, name),
        "spec": {
            "suspend": True,
            "runtimeRef": {"name": request.option("runtime")},
            **limit,
            "trainer": trainer,
            "runtimePatches": [
                {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": patch}}}
            ],
        },
    }


def secret(request: NodesRequest, values: Mapping[str, str], name: str, owner: str) -> Part:
    """Make the secret that every pod mounts. It is deleted with the workload.

    Args:
        owner: uid of the workload; empty where it does not exist yet.
    """
    made = workload_reference(request, name, owner)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            **_metadata(request, name, queued=False),
            **({"ownerReferences": [made]} if owner else {}),
        },
        "type": "Opaque",
        "stringData": dict(values),
    }


def workload_reference(request: NodesRequest, name: str, uid: str) -> Part:
    """Make the owner reference to the workload, for objects that are deleted with it."""
    is_trainjob = request.option("kind") == TRAINJOB
    version, kind = (
        ("trainer.kubeflow.org/v1alpha1", "TrainJob")
        if is_trainjob
        else ("jobset.x-k8s.io/v1alpha2", "JobSet")
    )
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid}


def network_policy(request: NodesRequest, name: str, owner: str) -> Part:
    """Make a network policy that allows, where others isolate the pods, all traffic between them
    and the agents' port from the namespace, where the notebook is.
    """
    between = {"podSelector": {"matchLabels": {JOB_LABEL: name}}}
    made = workload_reference(request, name, owner)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            **_metadata(request, name, queued=False),
            **({"ownerReferences": [made]} if owner else {}),
        },
        "spec": {
            **between,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {"from": [between]},
                {"from": [{"podSelector": {}}], "ports": [{"protocol": "TCP", "port": AGENT_PORT}]},
            ],
            # Names are resolved, and images and data may be anywhere.
            "egress": [{}],
        },
    }


def rendered(request: NodesRequest, command: SlotCommand, name: str, asks: AskedResources) -> str:
    """Render the objects as YAML for ``kubectl apply``, with placeholders for the values of
    secrets.
    """
    import yaml  # takes a while: not when the extension is loaded

    values = dict.fromkeys(command.secrets, "(made when it is submitted)")
    objects = (
        workload(request, command, name, asks),
        secret(request, values, name, ""),
        network_policy(request, name, ""),
    )
    return "---\n".join(
        yaml.safe_dump(one, sort_keys=False, allow_unicode=True, width=100) for one in objects
    )


def _metadata(request: NodesRequest, name: str, *, queued: bool = True) -> Part:
    labels = {MANAGED_BY: MANAGER, JOB_LABEL: name}
    if queued and request.option("local-queue"):
        labels[QUEUE] = request.option("local-queue")
    if queued and request.option("queue-priority"):
        labels[PRIORITY] = request.option("queue-priority")
    namespace: dict[str, Any] = {}
    if request.option("namespace"):
        namespace["namespace"] = request.option("namespace")
    return {"name": name, **namespace, "labels": labels}
