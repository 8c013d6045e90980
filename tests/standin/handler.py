"""Handler of a scripted agent: does what a fault asks for, and else what its route does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from tornado.web import RequestHandler

from jupyter_mntrain.model.failure.problem import Problem
from tests.standin.faults import (
    Hang,
    Held,
    LoseReply,
    LoseRequest,
    Refuse,
    ScriptedRefusalError,
    Slow,
)

if TYPE_CHECKING:
    from tests.standin.agent import FakeAgent


class Handler(RequestHandler):
    route = ""

    def initialize(self, agent: FakeAgent) -> None:
        self.agent = agent
        self._loses_reply = False

    async def prepare(self) -> None:
        self.agent.requests.append((self.request.method or "", self.route))
        faults = self.agent.faults[self.route]
        match faults.pop(0) if faults else None:
            case Refuse() as fault:
                self.refuse(fault)
            case LoseReply():
                self._loses_reply = True
            case LoseRequest():
                self.break_off()
            case Slow(seconds=seconds):
                await asyncio.sleep(seconds)
            case Held(released=released):
                await released.wait()
            case Hang():
                await asyncio.Event().wait()

    def on_finish(self) -> None:
        self.agent.answered.append(self.route)

    def body_as(self, kind: Any) -> Any:
        return msgspec.json.decode(self.request.body, type=kind)

    def answer(self, content: Any) -> None:
        if self._loses_reply:
            self.break_off()
        else:
            self.finish(msgspec.json.encode(content))

    def refuse(self, fault: Refuse) -> None:
        self.set_status(fault.status)
        problem = Problem(kind=fault.kind, cause=fault.cause, fix=fault.fix)
        self.finish(msgspec.json.encode(problem))

    def break_off(self) -> None:
        self.request.connection.stream.close()  # type: ignore[union-attr, attr-defined]
        self._finished = True

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None))[1]
        if isinstance(error, ScriptedRefusalError):
            self.refuse(error.fault)
        else:
            super().write_error(status_code, **kwargs)

    def log_exception(self, *args: Any) -> None:
        if not isinstance(args[1], ScriptedRefusalError):
            super().log_exception(*args)
