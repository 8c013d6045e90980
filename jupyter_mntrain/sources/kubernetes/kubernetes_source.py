"""Kubernetes as a source of nodes: a JobSet or a TrainJob whose pods are the slots."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.sources.source import (
    Allocation,
    NodeSource,
    NodesRequest,
    Slot,
    SlotCommand,
    SourceOption,
)
from jupyter_mntrain.sources.kubernetes.api import (
    EVENTS,
    JOBSETS,
    NODES,
    OLDER_WORKLOADS,
    PODS,
    POLICIES,
    SECRETS,
    TRAINJOBS,
    WORKLOADS,
    KubernetesApi,
    ObjectKind,
    connected,
)
from jupyter_mntrain.sources.kubernetes.forwarding import PodForwards
from jupyter_mntrain.sources.kubernetes.objects import (
    AGENT_PORT,
    JOB_LABEL,
    REPLICATED_JOB,
    Part,
    network_policy,
    rendered,
    secret,
    workload,
)
from jupyter_mntrain.sources.kubernetes.options import (
    DIRECT,
    FORWARD,
    NAME,
    OPTIONS,
    TITLE,
    TRAINJOB,
    check,
    object_name,
)
from jupyter_mntrain.sources.kubernetes.policies import Pod, blocked
from jupyter_mntrain.sources.kubernetes.resources import AskedResources, asked, offered
from jupyter_mntrain.sources.kubernetes.state import (
    FoundObjects,
    Object,
    allocation_of,
    newest,
)

IN_A_POD = "KUBERNETES_SERVICE_HOST"
"""Set in every container."""


class KubernetesSource(NodeSource):
    """Requests nodes from the API server that the kubeconfig names, or in a pod, from its own
    cluster.
    """

    name = NAME
    title = TITLE
    agent_port = AGENT_PORT

    def __init__(self) -> None:
        self._forwards = PodForwards()

    def options(self) -> tuple[SourceOption, ...]:
        return OPTIONS

    def render(self, request: NodesRequest, command: SlotCommand) -> str:
        check(request)
        return rendered(request, command, object_name(request, "1"), asked(request, None))

    async def check(self, request: NodesRequest) -> None:
        check(request)
        async with connected(request.option("namespace")) as api:
            asks = await _asked(api, request)
            made = workload(request, SlotCommand(("true",)), object_name(request, "check"), asks)
            await api.create(_kind(request), made, is_trial=True)

    async def submit(self, request: NodesRequest, command: SlotCommand) -> Allocation:
        check(request)
        name = object_name(request, secrets.token_hex(3))
        async with connected(request.option("namespace")) as api:
            made = workload(request, command, name, await _asked(api, request))
            outer = await api.create(_kind(request), made)
            try:
                await _complete(api, request, command, outer)
            except BaseException:
                await api.delete(_kind(request), name)
                raise
            begun = await api.get(_kind(request), name)
            return allocation_of(FoundObjects(begun or outer, ()), request)

    async def look(self, allocation_id: str, request: NodesRequest) -> Allocation:
        try:
            async with connected(request.option("namespace")) as api:
                outer = await api.get(_kind(request), allocation_id)
                if outer is None:
                    cause = f"{allocation_id} is gone from Kubernetes: somebody has deleted it"
                    fix = "launch again for other nodes"
                    raise RefusedError(cause, kind=Kind.SCHEDULER_REFUSED, fix=fix)
                return allocation_of(await _found(api, request, outer), request)
        except RefusedError as error:
            slots = tuple(Slot(name) for name in request.slots)
            return Allocation(allocation_id, NAME, "unknown", slots, problem=error.problem)

    async def addresses(self, allocation_id: str, request: NodesRequest) -> dict[str, str]:
        """Return the agents' addresses by slot; none if the API server cannot be reached now.

        Raises:
            RefusedError: ports would have to be forwarded, and cannot.
        """
        try:
            async with connected(request.option("namespace")) as api:
                listed = await api.listed(PODS, labels=f"{JOB_LABEL}={allocation_id}")
        except RefusedError:
            return {}
        found = {index: pod for index, pod in newest(listed).items() if _is_reachable(pod)}
        running = {request.slots[index]: pod for index, pod in found.items()}
        if _reach(request) == DIRECT:
            return {slot: f"{_ip(pod)}:{AGENT_PORT}" for slot, pod in running.items()}
        names = {slot: str(pod["metadata"]["name"]) for slot, pod in running.items()}
        return await self._forwards.addresses(names, api.namespace)

    async def close(self) -> None:
        await self._forwards.close()

    async def save(self, allocation_id: str, request: NodesRequest) -> None:
        """Stop the agents like an eviction by Kueue: they have the grace period to save."""
        async with connected(request.option("namespace")) as api:
            outer = await api.get(_kind(request), allocation_id)
            told = None if outer is None else await _kueue(api, outer)
            if told is not None:
                # Kueue would start again what somebody else has suspended.
                kind, found = told
                await api.patch(kind, found["metadata"]["name"], {"spec": {"active": False}})
            else:
                await api.patch(_kind(request), allocation_id, {"spec": {"suspend": True}})

    async def give_back(self, allocation_id: str, request: NodesRequest) -> None:
        async with connected(request.option("namespace")) as api:
            await api.delete(_kind(request), allocation_id)
            # Its owner takes it along, but only once every pod has ended.
            await api.delete(SECRETS, allocation_id)

    async def hindrance(self, allocation_id: str, request: NodesRequest) -> Problem | None:
        """Find a network policy that blocks traffic between the pods, if this user may read
        policies.
        """
        with suppress(RefusedError):
            async with connected(request.option("namespace")) as api:
                found = await api.listed(PODS, labels=f"{JOB_LABEL}={allocation_id}")
                policies = await api.listed(POLICIES)
                return blocked(policies, [_end(pod, api.namespace) for pod in found])
        return None


def _reach(request: NodesRequest) -> str:
    told = request.option("reach")
    if told in (DIRECT, FORWARD):
        return told
    return DIRECT if IN_A_POD in os.environ else FORWARD


def _is_reachable(pod: Object) -> bool:
    is_going = bool(pod["metadata"].get("deletionTimestamp"))
    return not is_going and bool(_ip(pod)) and pod["status"].get("phase") == "Running"


def _ip(pod: Object) -> str:
    return str((pod.get("status") or {}).get("podIP") or "")


def _kind(request: NodesRequest) -> ObjectKind:
    return TRAINJOBS if request.option("kind") == TRAINJOB else JOBSETS


async def _asked(api: KubernetesApi, request: NodesRequest) -> AskedResources:
    """Resolve the resources. Users who may not list nodes get only those that are given by name."""
    try:
        nodes = await api.listed(NODES)
    except RefusedError as error:
        if error.kind is not Kind.SCHEDULER_REFUSED:
            raise
        return asked(request, None)
    return asked(request, offered(nodes))


async def _complete(
    api: KubernetesApi, request: NodesRequest, command: SlotCommand, outer: Part
) -> None:
    """Create the objects that belong to the workload, then let it start."""
    name, uid = outer["metadata"]["name"], outer["metadata"]["uid"]
    await api.create(SECRETS, secret(request, command.secrets, name, uid))
    with suppress(RefusedError):  # not everyone may see or make policies
        own = [Pod({JOB_LABEL: name}, api.namespace) for _ in range(2)]
        if blocked(await api.listed(POLICIES), own) is not None:
            await api.create(POLICIES, network_policy(request, name, uid))
    if not request.option("local-queue"):
        await api.patch(_kind(request), name, {"spec": {"suspend": False}})


async def _found(api: KubernetesApi, request: NodesRequest, outer: Part) -> FoundObjects:
    name = outer["metadata"]["name"]
    pods = await api.listed(PODS, labels=f"{JOB_LABEL}={name}")
    told, is_readable = None, True
    if request.option("local-queue"):
        try:
            told = await _kueue(api, outer)
        except RefusedError:
            is_readable = False
    events: list[Part] = []
    if len(pods) < request.nodes:
        with suppress(RefusedError):
            job = f"{name}-{REPLICATED_JOB}-0"
            events = await api.listed(EVENTS, fields=f"involvedObject.name={job}")
    return FoundObjects(outer, pods, told and told[1], is_readable, events)


async def _kueue(api: KubernetesApi, outer: Part) -> tuple[ObjectKind, Part] | None:
    """Find Kueue's object for a workload, and its kind; ``None`` if there is none."""
    for kind in (WORKLOADS, OLDER_WORKLOADS):
        for found in await api.listed(kind):
            if outer["metadata"]["uid"] in _owners(found):
                return kind, found
    return None


def _owners(one: Part) -> list[str]:
    return [owner["uid"] for owner in one["metadata"].get("ownerReferences") or ()]


def _end(pod: Part, namespace: str) -> Pod:
    return Pod(pod["metadata"].get("labels") or {}, namespace, ip=_ip(pod))
