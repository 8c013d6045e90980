"""A scripted agent's routes for the doctor: facts that the test changes, and ways that work."""

from __future__ import annotations

import time

import msgspec

from jupyter_mntrain.agent.machine.facts import read_script_there
from jupyter_mntrain.model.api import PortStatus
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.machine import (
    AskedPath,
    AskedScript,
    FoundPath,
    MachineQuestion,
)
from jupyter_mntrain.model.records.doctor.paths import PathHeard, PathsAsked, PathTicket
from tests.doctor.faults.workload import WHOLE
from tests.doctor.paths import RANDOM, blocked_path, working_path
from tests.standin.faults import Refuse, ScriptedRefusalError
from tests.standin.handler import Handler


class _Script(Handler):
    route = "script"

    def post(self) -> None:
        self.answer(read_script_there(self.body_as(AskedScript)))


class _Facts(Handler):
    route = "facts"

    def post(self) -> None:
        if (facts := self.agent.facts) is None:
            raise ScriptedRefusalError(
                Refuse(cause="no such route", kind=Kind.NO_SUCH_ROUTE, status=404)
            )
        asked = self.body_as(MachineQuestion).paths
        paths = (*facts.paths, *map(self._found, asked))
        self.answer(msgspec.structs.replace(facts, time_s=time.time(), paths=paths))

    def _found(self, asked: AskedPath) -> FoundPath:
        lacks = asked.path in self.agent.lacks
        return FoundPath(
            use=asked.use,
            path=asked.path,
            kind="missing" if lacks else "folder",
            is_writable=not lacks,
            asked=asked.path,
            files=WHOLE if asked.use == "model" and not lacks else {},
        )


class _PathsListen(Handler):
    route = "paths"

    def post(self) -> None:
        self.answer(PathTicket(token="0" * 16, port=RANDOM))


class _PathsTry(Handler):
    """All of them work, but those that the test blocks."""

    route = "paths"

    def post(self) -> None:
        targets = self.body_as(PathsAsked).targets
        blocked = self.agent.blocked
        self.answer(
            [
                blocked_path(target) if target.peer in blocked else working_path(target)
                for target in targets
            ]
        )


class _PathsEnd(Handler):
    route = "paths"

    def post(self) -> None:
        self.answer(PathHeard())


class _Port(Handler):
    route = "port"

    def get(self, port: str) -> None:
        number, address = int(port), self.agent.info.addresses[0].rpartition(":")[0]
        taken = Problem(kind=Kind.PORT_TAKEN, cause=f"port {number} is in use", fix="use another")
        problem = taken if number in self.agent.taken_ports else None
        self.answer(PortStatus(port=number, address=address, problem=problem))


DOCTOR_ROUTES = [
    (r"/v1/port/(\d+)", _Port),
    (r"/v1/node/facts", _Facts),
    (r"/v1/node/script", _Script),
    (r"/v1/node/paths/listen", _PathsListen),
    (r"/v1/node/paths/try", _PathsTry),
    (r"/v1/node/paths/end", _PathsEnd),
]
