"""Kubernetes objects: creates those of a request, as dictionaries or as YAML for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_mntrain.model.sources.allocation_limits import NOTICE
from jupyter_mntrain.model.sources.source import (
    PYTHON,
    SECRETS,
    SLOT,
    STATE,
    NodesRequest,
    SlotCommand,
    slot_name,
)
from jupyter_mntrain.sources.kubernetes.options import (
    NAME,
    SHARED_MEMORY,
    TRAINJOB,
    grace_s,
    labels_of,
    tolerations_of,
)
from jupyter_mntrain.sources.kubernetes.resources import AskedResources, limits

# Pod template: what every node of a request is made from. Pure.
# One template serves both objects that it is wrapped in; see :mod:`.objects`.


CONTAINER = "node"
"""Also the name that training runtimes give to theirs."""

INDEX = "MNTRAIN_SLOT_INDEX"
INDEX_OF = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
"""The Job controller numbers the pods of an indexed Job from 0; one that replaces another has its
number."""

JOB_LABEL = "mntrain/allocation"
"""All pods of one request have it, with the request's name as its value."""

SECRETS_PATH, STATE_PATH = "/run/mntrain/secrets", "/var/lib/mntrain"

SECRETS_MODE = 0o400

NETWORKS = "k8s.v1.cni.cncf.io/networks"
REQUIRED, PREFERRED = (f"kueue.x-k8s.io/podset-{how}-topology" for how in ("required", "preferred"))

AGENT_PORT = 8765

PYTHON_OF_IMAGE = "python3"

Part = dict[str, Any]


def container(request: NodesRequest, command: SlotCommand, name: str, asks: AskedResources) -> Part:
    """Make the container that runs the agent as process 1, the only one that gets TERM.

    Args:
        name: of the objects of this request.
    """
    words = command.filled(
        {
            SLOT: slot_name(NAME, 0).removesuffix("0") + f"$({INDEX})",
            SECRETS: SECRETS_PATH,
            STATE: f"{STATE_PATH}/{name}",
            PYTHON: _literal(request.option("image-python") or PYTHON_OF_IMAGE),
        },
        _literal,
    )
    index = {"fieldRef": {"fieldPath": INDEX_OF}}
    told: Part = {
        "name": CONTAINER,
        "image": request.option("image"),
        "command": list(words),
        # Before all that refer to it.
        "env": [
            {"name": INDEX, "valueFrom": index},
            {"name": NOTICE, "value": str(grace_s(request))},
            *({"name": key, "value": _literal(of)} for key, of in command.environment.items()),
        ],
        "ports": [{"name": "agent", "containerPort": AGENT_PORT}],
        "resources": _resources(request, asks),
        "securityContext": _rights(asks),
        "volumeMounts": [
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108 - not a temporary file
            {"name": "secrets", "mountPath": SECRETS_PATH, "readOnly": True},
            {"name": "state", "mountPath": STATE_PATH},
        ],
    }
    return {key: value for key, value in told.items() if value}


def _literal(text: str) -> str:
    """Escape text in which Kubernetes would expand ``$(NAME)`` as a variable."""
    return text.replace("$", "$$")


def _resources(request: NodesRequest, asks: AskedResources) -> Part:
    told = limits(request, asks)
    # What is not told is taken from the limits: the pod is of the class that is evicted last.
    return {"limits": told} if told else {}


def _rights(asks: AskedResources) -> Part:
    """Return the right to lock memory, which RDMA needs."""
    return {"capabilities": {"add": ["IPC_LOCK"]}} if asks.rdma else {}


def volumes(request: NodesRequest, name: str) -> list[Part]:
    """Return the volumes that :func:`container` mounts."""
    size = request.option("shm") or SHARED_MEMORY
    claim = request.option("storage")
    kept: Part = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
    return [
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": size}},
        {"name": "secrets", "secret": {"secretName": name, "defaultMode": SECRETS_MODE}},
        {"name": "state", **kept},
    ]


def metadata(request: NodesRequest, name: str) -> Part:
    """Return the labels and annotations of the pods."""
    told = {
        NETWORKS: request.option("network"),
        REQUIRED: request.option("topology"),
        PREFERRED: request.option("near"),
    }
    annotations = {key: value for key, value in told.items() if value}
    labels: Part = {"labels": {JOB_LABEL: name}}
    return labels | ({"annotations": annotations} if annotations else {})


def placement(request: NodesRequest, asks: AskedResources) -> Part:
    """Return the part of a pod's spec that says where, as whom and how it runs. It can also patch a
    training runtime.
    """
    user = request.option("user")
    told: Part = {
        "terminationGracePeriodSeconds": grace_s(request),
        "nodeSelector": labels_of(request) | dict(asks.model),
        "tolerations": tolerations_of(request),
        "serviceAccountName": request.option("account"),
        "imagePullSecrets": _named(request.option("pull-secret")),
        # A secret belongs to root: to its group, other users read it.
        "securityContext": {"runAsUser": int(user), "fsGroup": int(user)} if user else {},
    }
    return {key: value for key, value in told.items() if value}


def _named(name: str) -> list[Part]:
    return [{"name": name}] if name else []


def template(request: NodesRequest, command: SlotCommand, name: str, asks: AskedResources) -> Part:
    """Make the whole pod template."""
    priority = request.option("pod-priority")
    return {
        "metadata": metadata(request, name),
        "spec": {
            "restartPolicy": "Never",
            **({"priorityClassName": priority} if priority else {}),
            **placement(request, asks),
            "containers": [container(request, command, name, asks)],
            "volumes": volumes(request, name),
        },
    }


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
