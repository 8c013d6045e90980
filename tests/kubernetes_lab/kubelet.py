"""Kubelet: runs the command of a pod as a process on a simulated host.

A pod has processes and mounts of its own, so that its command is process 1 and hears TERM alone,
as in a container. It has the host's network, and this machine's programs for an image.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.kubernetes_lab.jobsets import INDEX, now
from tests.netlab import Host
from tests.netlab.host import HostProcess
from tests.sources.kubernetes.api_server import ApiServer

NO_SUCH_IMAGE = "registry.example/no/such"
"""Cannot be pulled."""

IN_MEMORY = "memory"

# Arguments: what is mounted and where, in pairs; --; the command. What is missing of a path is made
# in memory: nothing is left on this machine.
_CONTAINER = """
set -e
while [ "$1" != -- ]; do
    from=$1 at=$2
    shift 2
    if ! [ -d "$at" ]; then
        above=$at
        while ! [ -d "$above" ]; do above=${above%/*}; done
        mount -t tmpfs tmpfs "${above:-/}"
        mkdir -p "$at"
    fi
    if [ "$from" = memory ]; then mount -t tmpfs tmpfs "$at"; else mount --bind "$from" "$at"; fi
done
shift
exec "$@"
"""

Object = dict[str, Any]


@dataclass
class _Running:
    process: HostProcess
    killed_s: float | None = None
    """Monotonic time of its KILL, once it was told to end."""

    def first_process(self) -> psutil.Process | None:
        """The pod's process 1."""
        try:
            (unshare,) = psutil.Process(self.process.pid).children()
            (first,) = unshare.children()
        except (psutil.NoSuchProcess, ValueError):
            return None
        return first

    def send(self, number: int) -> None:
        if (first := self.first_process()) is not None:
            first.send_signal(number)


class Kubelet:
    """Of one host.

    Args:
        folder: for volumes and logs.
    """

    def __init__(self, api: ApiServer, host: Host, folder: Path) -> None:
        self._api = api
        self._host = host
        self._folder = folder
        self._running: dict[str, _Running] = {}

    def look(self) -> None:
        """One round."""
        for pod in self._api.of("pods"):
            if pod["spec"].get("nodeName") == self._host.name:
                self._look_at(pod)

    def _look_at(self, pod: Object) -> None:
        name, is_ending = pod["metadata"]["name"], "deletionTimestamp" in pod["metadata"]
        running = self._running.get(name)
        if running is None and not is_ending and pod["status"]["phase"] == "Pending":
            self._start(pod)
        elif running is not None and (code := running.process.poll()) is not None:
            del self._running[name]
            pod["status"]["phase"] = "Failed" if code else "Succeeded"
        elif running is not None and is_ending:
            self._end(running, pod["spec"]["terminationGracePeriodSeconds"])
        elif running is None and is_ending:
            del self._api.objects["pods", name]
            self._api.log.append(f"gone {name}")

    def _end(self, running: _Running, grace_s: float) -> None:
        if running.killed_s is None:
            running.killed_s = time.monotonic() + grace_s
            running.send(signal.SIGTERM)
        elif time.monotonic() >= running.killed_s:
            self._api.log.append("kill")
            running.send(signal.SIGKILL)

    def _start(self, pod: Object) -> None:
        (container,) = pod["spec"]["containers"]
        if container["image"] == NO_SUCH_IMAGE:
            self._wait(pod, container, "ImagePullBackOff", "Back-off pulling image")
            return
        name = pod["metadata"]["name"]
        wanted = [one["secret"]["secretName"] for one in pod["spec"]["volumes"] if "secret" in one]
        if not set(wanted) <= set(self._api.names("secrets")):
            self._wait(pod, container, "ContainerCreating", "")
            return
        volumes = dict(self._volumes(pod))
        mounts = [
            word for one in container["volumeMounts"]
            for word in (volumes[one["name"]], one["mountPath"])
        ]  # fmt: skip
        home = self._made(f"pods/{name}/home")
        # Its image has what runs the tests.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        variables = _variables(container, pod) | {"PATH": path, "HOME": str(home)}
        words = [_expanded(word, variables) for word in container["command"]]
        own = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
        given = ("env", "-i", *(f"{key}={value}" for key, value in variables.items()))
        with (self._folder / f"{name}.log").open("w") as log:
            process = self._host.popen(
                [*own, "bash", "-c", _CONTAINER, "pod", *mounts, "--", *given, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._running[name] = _Running(process)
        ready = {"type": "Ready", "status": "True"}
        status = {"phase": "Running", "startTime": now(), "conditions": [ready]}
        status |= {"containerStatuses": [], "podIP": self._host.management_address}
        self._api.change(pod, {"status": status})

    def _wait(self, pod: Object, container: Object, reason: str, message: str) -> None:
        told = {"name": container["name"], "image": container["image"], "imageID": ""}
        told |= {"ready": False, "restartCount": 0}
        told["state"] = {"waiting": {"reason": reason, "message": message}}
        if pod["status"].get("containerStatuses") != [told]:
            self._api.change(pod, {"status": {"containerStatuses": [told]}})

    def _volumes(self, pod: Object) -> Iterator[tuple[str, str]]:
        """Where each volume is on this machine."""
        for one in pod["spec"]["volumes"]:
            name = one["name"]
            if "secret" in one:
                yield name, str(self._secret(pod, one["secret"]))
            elif "persistentVolumeClaim" in one:
                yield name, str(self._made(f"claims/{one['persistentVolumeClaim']['claimName']}"))
            elif one["emptyDir"].get("medium") == "Memory":
                yield name, IN_MEMORY
            else:
                yield name, str(self._made(f"pods/{pod['metadata']['name']}/{name}"))

    def _secret(self, pod: Object, of: Mapping[str, Any]) -> Path:
        """As a kubelet writes it: each file is a link into a folder that is replaced as a whole."""
        folder = self._made(f"pods/{pod['metadata']['name']}/secret")
        (folder / "..1").mkdir()
        (folder / "..data").symlink_to("..1")
        found = self._api.objects["secrets", of["secretName"]]
        for key, value in found["stringData"].items():
            (folder / "..1" / key).write_text(value)
            (folder / "..1" / key).chmod(of["defaultMode"])
            (folder / key).symlink_to(f"..data/{key}")
        return folder

    def _made(self, path: str) -> Path:
        folder = self._folder / path
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _variables(container: Object, pod: Object) -> dict[str, str]:
    told: dict[str, str] = {}
    for one in container["env"]:
        if "valueFrom" in one:
            path = one["valueFrom"]["fieldRef"]["fieldPath"]
            assert path == f"metadata.annotations['{INDEX}']"
            told[one["name"]] = pod["metadata"]["annotations"][INDEX]
        else:
            told[one["name"]] = _expanded(one["value"], told)
    return told


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` is a variable's value, or itself if there is none; ``$$`` is ``$``."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)
