"""Kubernetes API: the requests to its server, and what its refusals mean to the user.

Kubeconfig, its plugins for logging in, and a pod's own account are lightkube's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_mntrain.model.errors import MissingLibraryError, MntrainError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.sources.kubernetes.objects import Part

if TYPE_CHECKING:
    from lightkube import AsyncClient

UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 401, 403, 404
TOO_MANY, BROKEN = 429, 500

INSTALL = "pip install 'jupyter-mntrain[kubernetes]'"


class ObjectKind(NamedTuple):
    """A kind of object, as the API server identifies it."""

    group: str
    version: str
    kind: str
    plural: str
    is_namespaced: bool = True

    @property
    def full_name(self) -> str:
        """Name of the kind in access rules (RBAC)."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


JOBSETS = ObjectKind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
TRAINJOBS = ObjectKind("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")
WORKLOADS = ObjectKind("kueue.x-k8s.io", "v1beta2", "Workload", "workloads")
OLDER_WORKLOADS = WORKLOADS._replace(version="v1beta1")
SECRETS = ObjectKind("", "v1", "Secret", "secrets")
PODS = ObjectKind("", "v1", "Pod", "pods")
EVENTS = ObjectKind("", "v1", "Event", "events")
NODES = ObjectKind("", "v1", "Node", "nodes", is_namespaced=False)
POLICIES = ObjectKind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")


class KubernetesApi:
    """A connection to the API server; see :func:`connected`.

    Raises:
        RefusedError: by every method: ``no-scheduler`` where the API server cannot be asked,
            ``scheduler-refused`` where it says no.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    @property
    def namespace(self) -> str:
        return str(self._client.namespace)

    async def create(self, kind: ObjectKind, made: Part, *, is_trial: bool = False) -> Part:
        """Create an object.

        Args:
            is_trial: the API server checks it, and keeps nothing.
        """
        with _translated(kind, "create", self.namespace):
            obj = _resource(kind).from_dict(made)
            return _plain(await self._client.create(obj, dry_run=is_trial))

    async def get(self, kind: ObjectKind, name: str) -> Part | None:
        """Return an object; ``None`` if none has that name."""
        from httpx2 import HTTPStatusError

        with _translated(kind, "get", self.namespace):
            try:
                return _plain(await self._client.get(_resource(kind), name))
            except HTTPStatusError as error:
                if error.response.status_code != NOT_FOUND:
                    raise
                return None

    async def listed(self, kind: ObjectKind, *, labels: str = "", fields: str = "") -> list[Part]:
        """List objects of the namespace; none if the cluster does not know the kind.

        Args:
            labels: ``name=value``: only those with this label; ``fields`` likewise.
        """
        from httpx2 import HTTPStatusError

        told: dict[str, Any] = {"labels": _selected(labels), "fields": _selected(fields)}
        with _translated(kind, "list", self.namespace):
            try:
                found = self._client.list(_resource(kind), **told)
                return [_plain(one) async for one in found]
            except HTTPStatusError as error:
                if error.response.status_code != NOT_FOUND:
                    raise
                return []

    async def patch(self, kind: ObjectKind, name: str, change: Part) -> None:
        from lightkube.types import PatchType

        with _translated(kind, "patch", self.namespace):
            how = PatchType.MERGE
            await self._client.patch(_resource(kind), name, change, patch_type=how)

    async def delete(self, kind: ObjectKind, name: str) -> None:
        """Delete an object and what belongs to it. Does nothing if it is already gone."""
        from httpx2 import HTTPStatusError
        from lightkube.types import CascadeType

        with _translated(kind, "delete", self.namespace):
            try:
                await self._client.delete(_resource(kind), name, cascade=CascadeType.FOREGROUND)
            except HTTPStatusError as error:
                if error.response.status_code != NOT_FOUND:
                    raise


@asynccontextmanager
async def connected(namespace: str = "") -> AsyncIterator[KubernetesApi]:
    """Connect as the kubeconfig says, or with the service account when inside a pod.

    Args:
        namespace: empty = the kubeconfig's.

    Raises:
        MissingLibraryError: lightkube is not installed.
        RefusedError: there is no cluster to connect to.
    """
    try:
        from lightkube import AsyncClient, ConfigError
    except ImportError as error:
        raise MissingLibraryError("lightkube is not installed", fix=INSTALL) from error
    try:
        client = AsyncClient(namespace=namespace or None, field_manager="mntrain")
    except (ConfigError, OSError, ValueError) as error:
        raise RefusedError(
            f"no Kubernetes cluster is set up here: {error}",
            kind=Kind.NO_SCHEDULER,
            fix="set KUBECONFIG, or put your kubeconfig at ~/.kube/config; 'kubectl get pods' "
            "shows whether it works",
        ) from error
    async with client:
        yield KubernetesApi(client)


@contextmanager
def _translated(kind: ObjectKind, verb: str, namespace: str) -> Iterator[None]:
    """Turn errors of the API server into ours."""
    import httpx2
    from lightkube import ApiError

    try:
        yield
    except httpx2.HTTPStatusError as error:
        code = error.response.status_code
        # A proxy before the API server answers with a page of its own.
        message = str(error) if isinstance(error, ApiError) else f"it answers with code {code}"
        raise refusal(kind, verb, namespace, code, message) from error
    except (httpx2.HTTPError, OSError) as error:
        raise RefusedError(
            f"the Kubernetes API server does not answer: {error}",
            kind=Kind.NO_SCHEDULER,
            fix="'kubectl get pods' shows whether it works; a VPN may be needed",
        ) from error


def refusal(kind: ObjectKind, verb: str, namespace: str, code: int, message: str) -> MntrainError:
    """Make the error for a refusal, with its cause and a fix. Pure."""
    told = f"Kubernetes: {message}"
    where = f"in namespace {namespace}" if kind.is_namespaced else "in the cluster"
    if code == UNAUTHORIZED:
        fix = "log in again; 'kubectl get pods' shows whether it works"
        cause = "the login to the Kubernetes cluster has expired, or is wrong"
        return RefusedError(cause, kind=Kind.NO_SCHEDULER, fix=fix)
    if code == TOO_MANY or code >= BROKEN:
        fix = "try again; if that does not help, show this to the administrators"
        return RefusedError(told, kind=Kind.NO_SCHEDULER, fix=fix)
    if code == FORBIDDEN and "quota" in message:
        fix = "ask for less, or ask the administrators for a larger ResourceQuota"
    elif code == FORBIDDEN:
        fix = f"ask the administrators for the right to {verb} {kind.full_name} {where}"
    elif code == NOT_FOUND and message.startswith("namespaces "):
        fix = "choose another --namespace, or ask the administrators to make it"
    elif code == NOT_FOUND:
        told = f"the Kubernetes cluster has no {kind.kind}s"
        fix = f"ask the administrators to install {kind.group or kind.kind}, or use another --kind"
    else:
        fix = "change what it names, or ask the administrators about the rule"
    return RefusedError(told, kind=Kind.SCHEDULER_REFUSED, fix=fix)


def _selected(told: str) -> dict[str, str] | None:
    name, _, value = told.partition("=")
    return {name: value} if name else None


def _resource(kind: ObjectKind) -> Any:
    """Return lightkube's class for a kind of object."""
    from lightkube import generic_resource
    from lightkube.resources import core_v1, networking_v1

    for module in (core_v1, networking_v1):
        known = getattr(module, kind.kind, None)
        if known is not None and kind.group in ("", "networking.k8s.io"):
            return known
    make = (
        generic_resource.create_namespaced_resource
        if kind.is_namespaced
        else generic_resource.create_global_resource
    )
    return make(kind.group, kind.version, kind.kind, kind.plural)


def _plain(found: Any) -> Part:
    told: Mapping[str, Any] = found.to_dict()
    return dict(told)
