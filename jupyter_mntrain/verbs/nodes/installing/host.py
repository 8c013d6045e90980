"""Host: inspects one machine, changes it where needed, and waits until the driver sees it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import DEFAULT_PORT
from jupyter_mntrain.model.errors import MntrainError, NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.verbs.nodes.installing import look
from jupyter_mntrain.verbs.nodes.installing.admission import INTERVAL_S, MULTICAST_S, admit
from jupyter_mntrain.verbs.nodes.installing.facts import Facts, Wanted, read_facts
from jupyter_mntrain.verbs.nodes.installing.plan import (
    Input,
    NodeChoices,
    Step,
    all_steps,
    changes_packages,
    look_command,
    member_of,
)
from jupyter_mntrain.verbs.nodes.installing.refusals import refuse, step_failed
from jupyter_mntrain.verbs.nodes.installing.ssh import Said, Ssh
from jupyter_mntrain.verbs.nodes.installing.wheel import Wheel

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster, NodeView

LOOK_S = 60.0
"""Timeout for a look at a host: a Python that reads a few files, twice, on a cold disk."""
SEEN_S = 30.0
"""Timeout for a node to be seen after its agent has started."""
JOBS_S = 5.0
"""Interval of asking a host whether its jobs have ended, for `upgrade --wait`."""
LOOK = Path(look.__file__)
NO_PYTHON = 127
"""The shell's exit code for a command that it does not find."""

Tell = Callable[[str], object]


class InstalledHost(Record, frozen=True):
    """The result of installing on one machine.

    Args:
        host: as the user wrote it.
        node: its name in the cluster; empty if it is none.
        changed: what was done there, in order; empty if everything was up to date.
        said: lines of the agent about its service.
        problem: why it is no node, or not the new one.
    """

    host: str
    node: str = ""
    changed: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    problem: Problem | None = None


class Host:
    """One machine, reached through ssh.

    Args:
        environment: directory of the environment there; default: the usual one.
        python: interpreter there to take instead.
        tell: is called with what is being done.
    """

    def __init__(
        self,
        ssh: Ssh,
        wanted: Wanted,
        choices: NodeChoices,
        *,
        environment: str | None,
        python: str | None,
        tell: Tell,
    ) -> None:
        self.ssh = ssh
        self.name = str(ssh.target)
        self.choices = choices
        self.wanted = msgspec.structs.replace(wanted, is_given=python is not None)
        self._port = choices.port or DEFAULT_PORT
        self._environment = environment
        self._python = python
        self._tell = tell

    @property
    def look_command(self) -> str:
        """The command that makes the machine report its facts."""
        return look_command(self.wanted.python, self._environment, self._python)

    def look(self) -> Facts:
        """Return the machine's facts. Changes nothing.

        Raises:
            NodeError: it cannot be reached, or has no Python.
        """
        self._tell("looking")
        facts = self._look()
        mine = member_of(facts, self.wanted)
        self._port = mine.port if mine else self.choices.port or facts.free_port
        if mine is None or mine.python == facts.used:
            return facts
        if self._python is not None:
            raise NodeError(
                f"its node runs under {mine.python}, not {facts.used}",
                kind=Kind.OTHER_PACKAGES,
                fix=f"leave --python out, or run there first: {mine.python} -m "
                "jupyter_mntrain.cli agent leave",
                node=self.name,
            )
        # It has joined from an environment of its owner's.
        self._python = mine.python
        self.wanted = msgspec.structs.replace(self.wanted, is_given=True)
        return self._look()

    def _look(self) -> Facts:
        said = self.ssh.run(self.look_command, stdin=LOOK, timeout_s=LOOK_S)
        if said.code == NO_PYTHON:
            wanted = ".".join(map(str, self.wanted.python))
            raise NodeError(
                "it has no Python",
                kind=Kind.NO_PYTHON,
                fix=f"install it there: sudo apt-get install python{wanted} python{wanted}-venv",
                node=self.name,
            )
        if said.code:
            raise step_failed("looking", said.err, self.name)
        return read_facts(said.out, self.name)

    def checked(self, *, waits: bool = False) -> Facts:
        """Return the machine's facts, if it can become a node of this cluster.

        Args:
            waits: until no job runs there whose packages would change.

        Raises:
            NodeError: it cannot, or not now.
        """
        before_s = time.time()
        facts = self.look()
        while waits and facts.jobs and changes_packages(facts, self.wanted):
            self._tell(f"waiting for {', '.join(facts.jobs)}")
            time.sleep(JOBS_S)
            before_s = time.time()
            facts = self._look()
        refuse(facts, self.wanted, self.name, now_s=(before_s + time.time()) / 2)
        return facts

    def steps(self, facts: Facts, wheel: Wheel) -> tuple[Step, ...]:
        """Return every command that changes the machine."""
        return tuple(all_steps(facts, self.wanted, self.choices, wheel.path.name))

    def install(self, facts: Facts, wheel: Wheel, cluster: Cluster, token: str) -> InstalledHost:
        """Do what is left to do, and wait until the node is discovered.

        Raises:
            NodeError: a command failed, or the node is not seen.
        """
        changed, said = [], ""
        mine = member_of(facts, self.wanted)
        for step in self.steps(facts, wheel):
            self._tell(step.title)
            given: dict[Input, bytes | Path] = {
                "nothing": b"",
                "token": f"{token}\n".encode(),
                "wheel": wheel.path,
            }
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(
                    self.ssh.run, step.command, stdin=given[step.stdin], timeout_s=step.timeout_s
                )
                if step.stdin == "token":
                    admit(running, cluster, self.address)
                done = running.result()
            if done.code:
                raise self._failed(step, done)
            said = done.out
            changed.append(step.title)
        answer = _answered(said)
        lines = answer.get("service") or answer.get("done", "").split("; ")
        is_right = not changes_packages(facts, self.wanted)
        if mine is not None and is_right and mine.port in facts.listening:
            changed = []
        node_id = mine.node_id if mine else str(answer.get("node_id"))
        view = self._seen(node_id, cluster)
        return InstalledHost(
            host=self.name, node=view.name, changed=tuple(changed), said=tuple(lines)
        )

    @property
    def address(self) -> str:
        """The address at which its agent should be reached: the one that ssh reaches."""
        return f"{self.ssh.hostname()}:{self._port}"

    def _failed(self, step: Step, done: Said) -> NodeError:
        """Return the error of a failed step, from an agent's data or from the text of a shell."""
        try:
            problem = msgspec.json.decode(done.err[done.err.index("{") :], type=Problem)
        except (ValueError, msgspec.DecodeError):
            return step_failed(step.title, done.err or done.out, self.name)
        if problem.kind is Kind.NO_ANSWER:
            return self._blocked()
        return NodeError.of(msgspec.structs.replace(problem, node=self.name))

    def _blocked(self) -> NodeError:
        port = self._port
        return NodeError(
            f"its agent runs, and this machine cannot connect to {self.address}",
            kind=Kind.PORT_BLOCKED,
            fix=f"open TCP port {port} there for this machine (sudo ufw allow {port}/tcp), then "
            "run this again",
            node=self.name,
        )

    def _seen(self, node_id: str, cluster: Cluster) -> NodeView:
        self._tell("waiting for the node")
        deadline = time.monotonic() + SEEN_S
        asks_s = time.monotonic() + MULTICAST_S
        while time.monotonic() < deadline:
            for view in cluster.nodes():
                if view.info and view.info.node_id == node_id and view.liveness == "up":
                    return view
            if time.monotonic() > asks_s:
                with suppress(MntrainError):  # asked again
                    cluster.discovery.add(self.address)
            time.sleep(INTERVAL_S)
        raise self._blocked()


def _answered(output: str) -> dict[str, Any]:
    try:
        return dict(json.loads(output[output.index("{") :]))
    except ValueError:
        return {}
