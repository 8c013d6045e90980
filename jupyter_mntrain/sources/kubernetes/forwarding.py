"""Port forwarding: runs ``kubectl port-forward`` from this machine's loopback to pods.

lightkube does not forward. One child per pod: kubectl does not follow one to its successor.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from asyncio.subprocess import PIPE, STDOUT, Process
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.sources.kubernetes.objects import AGENT_PORT

START_S = 20.0
"""Longest wait until kubectl forwards a port to a pod: a second, if the API server is near."""

HOST = "127.0.0.1"

# The shell reads what this process never writes: it ends kubectl once this process has ended,
# however that was.
_TIED = """
exec 3<&0
"$@" 3<&- < /dev/null &
child=$!
{ read -r _ <&3; kill "$child"; } 2> /dev/null &
wait "$child"
code=$?
kill $! 2> /dev/null
exit $code
"""

_LISTENS = re.compile(rf"Forwarding from {re.escape(HOST)}:(\d+) ->")


class PodForwards:
    """The running port forwards, one for each slot's current pod."""

    def __init__(self) -> None:
        self._children: dict[str, _Forward] = {}

    async def addresses(self, pods: Mapping[str, str], namespace: str) -> dict[str, str]:
        """Return the local addresses at which agents are reached, by slot, without pods that just
        ended.

        Args:
            pods: their names, by slot. Forwards to others end.

        Raises:
            RefusedError: there is no kubectl, or this user may not forward.
        """
        program = shutil.which("kubectl")
        if program is None and pods:
            raise RefusedError(
                "kubectl is not installed here: it forwards ports to pods",
                kind=Kind.NO_SCHEDULER,
                fix="install it, or work in a pod of the cluster, with --reach direct",
            )
        for slot, child in list(self._children.items()):
            if pods.get(slot) != child.pod or not child.is_alive:
                await self._children.pop(slot).close()
        new = {slot: pod for slot, pod in pods.items() if slot not in self._children}
        begun = await asyncio.gather(
            *(_Forward.begin(str(program), pod, namespace) for pod in new.values())
        )
        self._children |= dict(zip(new, begun, strict=True))
        told = {slot: child.port for slot, child in self._children.items()}
        for child in begun:
            if child.port is None and "forbidden" in child.said.lower():
                await self.close()
                raise _forbidden(child, namespace)
        return {slot: f"{HOST}:{port}" for slot, port in told.items() if port is not None}

    async def close(self) -> None:
        """End all forwards."""
        children, self._children = list(self._children.values()), {}
        await asyncio.gather(*(child.close() for child in children))


class _Forward:
    """A ``kubectl port-forward`` process."""

    def __init__(self, pod: str, process: Process) -> None:
        self.pod = pod
        self.port: int | None = None
        self._process = process
        self._lines: deque[str] = deque(maxlen=3)
        self._listens = asyncio.Event()
        # It says a line for each connection: unread, they would stop it.
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def begin(cls, program: str, pod: str, namespace: str) -> _Forward:
        """Start the process; return once it listens, or has failed to."""
        to = ("--namespace", namespace, f"pod/{pod}", f":{AGENT_PORT}")
        words = (program, "port-forward", "--address", HOST, *to)
        # Its own session: Ctrl-C is for the command that waits.
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", _TIED, "sh", *words),
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,
        )
        begun = cls(pod, process)
        with suppress(TimeoutError):
            await asyncio.wait_for(begun._listens.wait(), START_S)
        return begun

    @property
    def is_alive(self) -> bool:
        return self.port is not None and self._process.returncode is None

    @property
    def said(self) -> str:
        """Its last lines of output."""
        return " ".join(self._lines)

    async def close(self) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        self._process.stdin.close()
        await self._reading
        await self._process.wait()

    async def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        async for line in self._process.stdout:
            text = line.decode(errors="replace").strip()
            self._lines.append(text)
            if self.port is None and (found := _LISTENS.match(text)):
                self.port = int(found[1])
                self._listens.set()
        self._listens.set()


def _forbidden(child: _Forward, namespace: str) -> RefusedError:
    return RefusedError(
        f"kubectl may not forward to pods: {child.said}",
        kind=Kind.SCHEDULER_REFUSED,
        fix=f"ask the administrators for the right to create pods/portforward in namespace "
        f"{namespace}, or work in a pod of the cluster",
    )
