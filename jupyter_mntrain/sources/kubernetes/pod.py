"""Pod template: what every node of a request is made from. Pure.

One template serves both objects that it is wrapped in; see :mod:`.objects`.
"""

from __future__ import annotations

from typing import Any

from jupyter_mntrain.model.sources.allocation_limits import NOTICE
from jupyter_mntrain.model.sources.request import (
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
    grace_s,
    labels_of,
    tolerations_of,
)
from jupyter_mntrain.sources.kubernetes.resources import AskedResources, limits

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
