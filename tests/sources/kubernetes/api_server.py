"""API server: a small one, which takes only what the real schemas allow. Its wire is the real one.

What it cannot show: webhooks, rules in CEL, scheduling. Tests write what controllers would.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from tests.sources.kubernetes.schemas import InvalidObjectError, validate

NAMESPACE, TOKEN = "ml", "a-users-token"

PLURALS = {
    "jobsets": "jobset.x-k8s.io/v1alpha2",
    "trainjobs": "trainer.kubeflow.org/v1alpha1",
    "workloads": "kueue.x-k8s.io/v1beta2",
    "secrets": "v1",
    "pods": "v1",
    "events": "v1",
    "nodes": "v1",
    "networkpolicies": "networking.k8s.io/v1",
}


class ApiServer:
    """Its objects, and what it has been told to refuse.

    Args:
        kubeconfig: a file that leads here.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.log: list[str] = []
        """Verb and object of every change, in their order."""
        self.forbidden: set[tuple[str, str]] = set()
        """Verb and plural."""
        self.missing: set[str] = set()
        """Plurals of kinds that are not installed."""
        self.token = TOKEN
        self._uids = 0

    def put(self, plural: str, **fields: Any) -> dict[str, Any]:
        """Keep an object as a controller writes it."""
        made = {"apiVersion": PLURALS[plural], "metadata": {}} | fields
        self._uids += 1
        made["metadata"] = {"uid": f"uid-{self._uids}", "namespace": NAMESPACE} | made["metadata"]
        validate(made)
        self.objects[plural, made["metadata"]["name"]] = made
        return made

    def change(self, one: dict[str, Any], change: dict[str, Any]) -> None:
        """Merge a change into an object, if it is valid with it.

        Raises:
            InvalidObjectError: it is not.
        """
        changed = deepcopy(one)
        _merge(changed, change)
        validate(changed)
        _merge(one, change)

    def of(self, plural: str) -> list[dict[str, Any]]:
        return [one for (kind, _), one in self.objects.items() if kind == plural]

    def names(self, plural: str) -> list[str]:
        return [name for kind, name in self.objects if kind == plural]


class Handler(RequestHandler):
    def initialize(self, server: ApiServer) -> None:
        self.api = server

    def finish(self, chunk: Any = None) -> Any:
        # Without a charset, as API servers send it: clients compare.
        body = json.dumps(chunk)
        self.set_header("Content-Type", "application/json")
        return super().finish(body)

    def _refuse(self, code: int, message: str) -> None:
        self.set_status(code)
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        self.finish(status | {"message": message})

    def _may(self, verb: str, version: str, plural: str, namespace: str | None) -> bool:
        if self.request.headers.get("Authorization") != f"Bearer {self.api.token}":
            self._refuse(401, "Unauthorized")
        elif PLURALS.get(plural) != version or plural in self.api.missing:
            self._refuse(404, "the server could not find the requested resource")
        elif (verb, plural) in self.api.forbidden:
            self._refuse(403, f'{plural} is forbidden: User "me" cannot {verb} resource "{plural}"')
        elif namespace not in (None, NAMESPACE):
            self._refuse(404, f'namespaces "{namespace}" not found')
        else:
            return True
        return False

    def get(self, version: str, namespace: str | None, plural: str, name: str | None) -> None:
        if not self._may("get" if name else "list", version, plural, namespace):
            return
        if name:
            found = self.api.objects.get((plural, name))
            if found is None:
                self._refuse(404, f'{plural} "{name}" not found')
            else:
                self.finish(found)
            return
        of = self.api.of(plural)
        labels = self.get_query_argument("labelSelector", "")
        fields = self.get_query_argument("fieldSelector", "")
        kept = [one for one in of if _has(one["metadata"].get("labels", {}), labels)]
        kept = [one for one in kept if not fields or _field(one, fields)]
        self.finish({"metadata": {"resourceVersion": "1"}, "items": kept})

    def post(self, version: str, namespace: str | None, plural: str, name: str | None) -> None:
        if not self._may("create", version, plural, namespace):
            return
        made = json.loads(self.request.body)
        try:
            validate(made)
        except InvalidObjectError as error:
            self._refuse(422, f"invalid: {error}")
            return
        if self.get_query_argument("dryRun", "") == "All":
            self.api.log.append(f"try {plural}")
            self.finish(made)
        else:
            self.api.log.append(f"create {plural}")
            self.finish(self.api.put(plural, **made))

    def patch(self, version: str, namespace: str | None, plural: str, name: str) -> None:
        if not self._may("patch", version, plural, namespace):
            return
        assert self.request.headers["Content-Type"] == "application/merge-patch+json"
        found = self.api.objects[plural, name]
        try:
            self.api.change(found, json.loads(self.request.body))
        except InvalidObjectError as error:
            self._refuse(422, f"invalid: {error}")
            return
        self.api.log.append(f"patch {plural}")
        self.finish(found)

    def delete(self, version: str, namespace: str | None, plural: str, name: str) -> None:
        if not self._may("delete", version, plural, namespace):
            return
        found = self.api.objects.pop((plural, name), None)
        if found is None:
            self._refuse(404, f'{plural} "{name}" not found')
            return
        # What it owns goes with it.
        uid = found["metadata"]["uid"]
        for key, one in list(self.api.objects.items()):
            if uid in [owner["uid"] for owner in one["metadata"].get("ownerReferences", ())]:
                del self.api.objects[key]
        self.api.log.append(f"delete {plural}")
        self.finish({"kind": "Status", "apiVersion": "v1", "status": "Success"})


def _has(labels: dict[str, str], selector: str) -> bool:
    told = (one.split("=") for one in selector.split(",") if one)
    return all(labels.get(name) == value for name, value in told)


def _field(one: dict[str, Any], selector: str) -> bool:
    path, value = selector.split("=")
    found: Any = one
    for part in path.split("."):
        found = found.get(part, {})
    return bool(found == value)


def _merge(into: dict[str, Any], change: dict[str, Any]) -> None:
    for key, value in change.items():
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


@asynccontextmanager
async def serving(folder: Path, address: str = "127.0.0.1") -> AsyncIterator[ApiServer]:
    """An API server at an address of this machine; by default loopback."""
    socket, port = bind_unused_port(address=address)
    cluster = {"name": "c", "cluster": {"server": f"http://{address}:{port}"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "me", "namespace": NAMESPACE}}
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "contexts": [context],
        "current-context": "x",
        "users": [{"name": "me", "user": {"token": TOKEN}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(told))
    server = ApiServer(path)
    route = r"/(?:api|apis)/((?:[^/]+/)?v[^/]+)(?:/namespaces/([^/]+))?/([^/]+)(?:/([^/]+))?"
    http = HTTPServer(Application([(route, Handler, {"server": server})]))
    http.add_socket(socket)
    try:
        yield server
    finally:
        http.stop()
        await http.close_all_connections()
