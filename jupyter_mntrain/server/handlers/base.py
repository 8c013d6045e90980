"""Request handling: checks the caller and the body, and turns errors into replies."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, ParamSpec, TypeVar

import msgspec
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from tornado.web import HTTPError

from jupyter_mntrain.model.errors import (
    JobNotFoundError,
    MntrainError,
    NodeError,
    RefusedError,
    TrustError,
)
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, is_job_id
from jupyter_mntrain.server.cluster_opening import Opening
from jupyter_mntrain.server.updates import PageUpdates

log = logging.getLogger("mntrain.server")
T = TypeVar("T")
P = ParamSpec("P")

RESOURCE = "mntrain"
"""What Jupyter's authorizer is asked about."""

STATUS: dict[type[MntrainError], HTTPStatus] = {
    JobNotFoundError: HTTPStatus.NOT_FOUND,
    RefusedError: HTTPStatus.CONFLICT,
    NodeError: HTTPStatus.BAD_GATEWAY,
    TrustError: HTTPStatus.CONFLICT,
}
"""Of our errors; those that are not here are bad input."""

KINDS = {
    HTTPStatus.FORBIDDEN: (Kind.NOT_ALLOWED, "this user is not allowed to do that"),
    HTTPStatus.NOT_FOUND: (Kind.NO_SUCH_ROUTE, "unknown route"),
    HTTPStatus.METHOD_NOT_ALLOWED: (Kind.NO_SUCH_ROUTE, "unknown method of this route"),
}


class RequestRefusedError(HTTPError):
    """An HTTP error whose body is a :class:`Problem`."""

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(status, problem.cause)
        self.problem = problem


class HubHandler(JupyterHandler):
    """Reaches the one watcher of the cluster, and answers every refusal as :class:`Problem`."""

    auth_resource = RESOURCE

    def initialize(self, opening: Opening) -> None:
        self._opening = opening

    async def hub(self) -> PageUpdates:
        """The watcher, which the first who asks opens."""
        return await self._opening.hub()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        problem, status = as_problem(error, status_code)
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(problem))

    def log_exception(self, *args: Any) -> None:
        """What a person can cause is an answer, not an incident."""
        if not isinstance(args[1], MntrainError | HTTPError):
            super().log_exception(*args)


class MntrainHandler(HubHandler, APIHandler):
    """Takes and answers JSON."""

    async def work(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what waits for nodes in a thread; a route waits for its own requests only."""
        return await self._opening.work(type(self).__name__, partial(call, *args, **kwargs))

    @property
    def person(self) -> str:
        """Who asks, for people: a user name may be a number that nobody knows."""
        user = self.current_user
        return str(user.display_name or user.name or user.username)

    def body_as(self, kind: type[T]) -> T:
        """The validated body; an empty one is ``{}``."""
        try:
            return msgspec.json.decode(self.request.body or b"{}", type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise refusal(400, Kind.BAD_REQUEST, f"the request is not valid: {error}") from error

    def job_id(self, text: str) -> JobId:
        if not is_job_id(text):
            raise refusal(
                404, Kind.NO_SUCH_JOB, f"{text!r} is not a job id", "job ids look like j-0123abcd"
            )
        return JobId(text)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A number in the query.

        Raises:
            RequestRefusedError: 400 with the range.
        """
        text = self.get_query_argument(name, "")
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            hint = f"use a number from {least} to {most}"
            raise refusal(400, Kind.BAD_REQUEST, f"{name}={text!r} is out of range", hint)
        return value

    def answer(self, content: Any, status: int = 200) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(content))


def refusal(status: int, kind: Kind, cause: str, fix: str = "") -> RequestRefusedError:
    return RequestRefusedError(status, Problem(kind=kind, cause=cause, fix=fix))


def as_problem(error: BaseException | None, status: int) -> tuple[Problem, int]:
    """What to answer, and with which status."""
    match error:
        case RequestRefusedError(problem=problem):
            return problem, status
        case MntrainError():
            status = next((s for kind, s in STATUS.items() if isinstance(error, kind)), 400)
            return error.problem, int(status)
        case HTTPError():
            kind, cause = KINDS.get(
                HTTPStatus(status), (Kind.BAD_REQUEST, HTTPStatus(status).phrase)
            )
            return Problem(kind=kind, cause=error.log_message or cause), status
        case _:
            cause, fix = "the Jupyter server extension failed", "see its log"
            return Problem(kind=Kind.BROKEN, cause=cause, fix=fix), 500
