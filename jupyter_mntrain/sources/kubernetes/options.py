"""Options of the Kubernetes backend, and what they mean for the pods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from jupyter_mntrain.model.errors import SpecError, shortened
from jupyter_mntrain.model.sources.source import NodesRequest, SourceOption, checked_values

NAME, TITLE = "kubernetes", "Kubernetes"

JOBSET, TRAINJOB = "jobset", "trainjob"
AUTO, NONE = "auto", "none"
DIRECT, FORWARD = "direct", "forward"

LEAST_GRACE_S = 30
GRACE_S = 300
"""From TERM to KILL: a save has to fit. Kubernetes gives 30 s by default."""

SHARED_MEMORY = "16Gi"
"""Size limit of /dev/shm. Containers get 64 MiB by default: NCCL and data loaders die of it."""

OPTIONS = (
    SourceOption(
        "image", help="container image with this package and PyTorch", example="lab/train"
    ),
    SourceOption(
        "image-python",
        help="interpreter in the image that has this package",
        example="/opt/bin/python",
    ),
    SourceOption("namespace", help="namespace; by default that of your kubeconfig", example="ml"),
    SourceOption(
        "kind",
        help="what is created: a JobSet, or a TrainJob of a runtime that exists",
        kind="choice",
        choices=(JOBSET, TRAINJOB),
    ),
    SourceOption(
        "runtime", help="ClusterTrainingRuntime of a TrainJob", example="torch-distributed"
    ),
    SourceOption("local-queue", help="Kueue's LocalQueue", example="team-a"),
    SourceOption("queue-priority", help="Kueue's WorkloadPriorityClass", example="low"),
    SourceOption("pod-priority", help="PriorityClass of the pods", example="batch"),
    SourceOption("cpu", help="processors per node", example="16"),
    SourceOption("memory", help="memory per node", example="128Gi"),
    SourceOption("shm", help="size limit of /dev/shm", example=SHARED_MEMORY),
    SourceOption("gpu-resource", help="name of the GPUs' resource", example="nvidia.com/gpu"),
    SourceOption(
        "rdma",
        help="RDMA resource per node, and how many; auto takes what the nodes offer",
        example="rdma/hca_shared_devices_a=1",
    ),
    SourceOption("network", help="second network of the pods (Multus)", example="ml/roce"),
    SourceOption(
        "storage", help="PersistentVolumeClaim that keeps records and logs", example="runs"
    ),
    SourceOption("grace", help="seconds from the end's notice to the end", example=str(GRACE_S)),
    SourceOption(
        "topology", help="node label whose value all nodes must share (Kueue)", example="rack"
    ),
    SourceOption("near", help="node label whose value they should share (Kueue)", example="block"),
    SourceOption("node", help="label that nodes must have", kind="lines", example="pool=train"),
    SourceOption(
        "tolerate", help="taint that is tolerated", kind="lines", example="gpu:NoSchedule"
    ),
    SourceOption(
        "reach",
        help="how this machine reaches the pods: at their addresses, or by kubectl port-forward; "
        "auto: at their addresses from inside of a pod",
        kind="choice",
        choices=(AUTO, DIRECT, FORWARD),
    ),
    SourceOption("pull-secret", help="secret for the image's registry", example="registry"),
    SourceOption("account", help="service account of the pods", example="trainer"),
    SourceOption(
        "user", help="numeric user of the processes; by default the image's", example="1000"
    ),
)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|[kMGTPE]|[KMGTPE]i)?")
_RESOURCE = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?")
_GPUS = re.compile(r"(?:gpu:)?(?:(?P<model>[A-Za-z][\w.-]*):)?(?P<count>\d+)")

LONGEST_NAME = 40
"""Pods add ``-node-0-1023-xxxxx``, and a label holds 63 characters."""


class Gpus(NamedTuple):
    """GPUs of each node. ``model`` is a value of the nodes' label, or empty."""

    each: int = 0
    model: str = ""


class Amount(NamedTuple):
    """An amount of a resource, per node."""

    resource: str
    each: int = 1


def check(request: NodesRequest) -> None:
    """Check that the options are valid, without asking the cluster.

    Raises:
        SpecError: they cannot.
    """
    checked_values(TITLE, OPTIONS, request.options)
    option = request.option
    gpus_of(request)
    if not option("image") and option("kind") != TRAINJOB:
        raise SpecError("no --image", fix="give one that has this package and PyTorch installed")
    if option("kind") == TRAINJOB and not option("runtime"):
        fix = "give --runtime: 'kubectl get clustertrainingruntimes' lists them"
        raise SpecError("a TrainJob needs a runtime", fix=fix)
    if option("kind") == TRAINJOB and option("pod-priority"):
        fix = "leave it out: the runtime of a TrainJob sets it"
        raise SpecError("a TrainJob takes no --pod-priority", fix=fix)
    for name in ("topology", "near", "queue-priority"):
        if option(name) and not option("local-queue"):
            fix = f"give --local-queue as well, or leave --{name} out"
            raise SpecError(f"--{name} works only with Kueue", fix=fix)
    if option("topology") and option("near"):
        raise SpecError("--topology and --near exclude each other", fix="give one of them")
    for name, form, fix in _FORMS:
        for value in request.options.get(name, ()):
            if not form.fullmatch(value):
                raise SpecError(f"--{name}: {shortened(value)!r} has the wrong form", fix=fix)
    labels_of(request), tolerations_of(request), grace_s(request), rdma_of(request)


_FORMS = (
    *((name, _NAME, "use lower-case letters, digits, '-' and '.'")
      for name in ("namespace", "runtime", "local-queue", "queue-priority", "pod-priority",
                   "storage", "pull-secret", "account")),
    *((name, _QUANTITY, "write a number, with a unit such as Gi where bytes are meant")
      for name in ("cpu", "memory", "shm")),
    *((name, _RESOURCE, "write a name such as cloud.google.com/rack")
      for name in ("gpu-resource", "topology", "near")),
    ("user", re.compile(r"\d{1,9}"), "write the number: 'id -u' prints yours"),
)  # fmt: skip


def gpus_of(request: NodesRequest) -> Gpus:
    """Parse the GPUs of each node: ``4``, ``gpu:4``, ``gpu:MODEL:4`` or ``MODEL:4``.

    Raises:
        SpecError: it is none of these.
    """
    if not request.gpus:
        return Gpus()
    if not (found := _GPUS.fullmatch(request.gpus.strip())):
        fix = "write 4, gpu:4, MODEL:4 or gpu:MODEL:4"
        raise SpecError(f"--gpus: {shortened(request.gpus)!r} is not a number of GPUs", fix=fix)
    return Gpus(int(found["count"]), found["model"] or "")


def rdma_of(request: NodesRequest) -> Amount | None:
    """Parse the RDMA resource; ``None`` if there is to be none, or it is to be found on the nodes.

    Raises:
        SpecError: it is not a name and a number.
    """
    told = request.option("rdma")
    if told in ("", AUTO, NONE):
        return None
    name, _, count = told.partition("=")
    if not _RESOURCE.fullmatch(name) or "/" not in name or not (count or "1").isdecimal():
        fix = "write rdma/NAME or rdma/NAME=1; 'kubectl describe node' shows the names"
        raise SpecError(f"--rdma: {shortened(told)!r} is not a resource", fix=fix)
    return Amount(name, int(count or 1))


def grace_s(request: NodesRequest) -> int:
    """Return the seconds between TERM and KILL.

    Raises:
        SpecError: too few for a save, or not a number.
    """
    told = request.option("grace") or str(GRACE_S)
    if not told.isdecimal() or int(told) < LEAST_GRACE_S:
        fix = f"write a number of seconds, at least {LEAST_GRACE_S}: a checkpoint is saved in them"
        raise SpecError(f"--grace: {shortened(told)!r} leaves no time to save", fix=fix)
    return int(told)


def labels_of(request: NodesRequest) -> dict[str, str]:
    """Parse the labels that nodes must have.

    Raises:
        SpecError: one is not a name and a value.
    """
    found = {}
    for told in request.options.get("node", ()):
        name, is_given, value = told.partition("=")
        if not is_given or not _RESOURCE.fullmatch(name):
            raise SpecError(f"--node: {shortened(told)!r} is not a label", fix="write NAME=VALUE")
        found[name] = value
    return found


def tolerations_of(request: NodesRequest) -> list[Mapping[str, str]]:
    """Parse the taints that pods tolerate.

    Raises:
        SpecError: one is not a taint.
    """
    found: list[Mapping[str, str]] = []
    for told in request.options.get("tolerate", ()):
        name_value, _, effect = told.partition(":")
        name, is_given, value = name_value.partition("=")
        if not _RESOURCE.fullmatch(name) or effect not in _EFFECTS:
            fix = (
                "write NAME, NAME:EFFECT or NAME=VALUE:EFFECT, as 'kubectl describe node' shows it"
            )
            raise SpecError(f"--tolerate: {shortened(told)!r} is not a taint", fix=fix)
        one = {"key": name, "operator": "Equal" if is_given else "Exists"}
        one |= {"value": value} if is_given else {}
        found.append(one | ({"effect": effect} if effect else {}))
    return found


_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")


def object_name(request: NodesRequest, number: str) -> str:
    """Make a unique name for the objects from the request's name and a suffix.

    Args:
        number: makes it unique; a few lower-case letters and digits.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", request.name.lower()).strip("-")
    kept = plain[: LONGEST_NAME - len(number) - 1].strip("-")
    if not kept or not kept[0].isalpha():
        kept = f"mntrain-{kept}"[: LONGEST_NAME - len(number) - 1].strip("-")
    return f"{kept}-{number}"
