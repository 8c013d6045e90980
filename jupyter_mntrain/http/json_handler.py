"""JSON handler: validates bodies and queries, and answers every error with a :class:`Problem`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar, TypeVar

import msgspec
from tornado.web import HTTPError, RequestHandler

from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, is_job_id

T = TypeVar("T")

LARGEST = 2**63 - 1
_NUMBER = re.compile(r"-?[0-9]{1,19}")

_OF_STATUS = {
    HTTPStatus.FORBIDDEN: (Kind.NOT_ALLOWED, "this user is not allowed to do that"),
    HTTPStatus.NOT_FOUND: (Kind.NO_SUCH_ROUTE, "unknown route"),
    HTTPStatus.METHOD_NOT_ALLOWED: (Kind.NO_SUCH_ROUTE, "unknown method of this route"),
}


class RequestRefusedError(HTTPError):
    """An HTTP error whose body is a :class:`Problem`."""

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(status, problem.cause)
        self.problem = problem


def refusal(status: int, kind: Kind, cause: str, fix: str = "") -> RequestRefusedError:
    return RequestRefusedError(status, Problem(kind=kind, cause=cause, fix=fix))


class JsonHandler(RequestHandler):
    """Request handler for JSON bodies and answers."""

    statuses: ClassVar[Mapping[type[MntrainError], int]] = {}
    """HTTP status by error class, the first that matches. Other errors are bad input (400)."""

    broken: Problem = Problem(kind=Kind.BROKEN, cause="Internal Server Error")
    """The answer to an unexpected exception."""

    def answer(self, content: object, status: int = 200) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(self.encode(content))

    def encode(self, content: object) -> bytes:
        """Encode an answer as JSON."""
        return msgspec.json.encode(content)

    def body_as(self, kind: type[T]) -> T:
        """Return the validated body; an empty one counts as ``{}``.

        Raises:
            RequestRefusedError: 400 naming the field.
        """
        try:
            return msgspec.json.decode(self.request.body or b"{}", type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise refusal(400, Kind.BAD_REQUEST, f"the request is not valid: {error}") from error

    def job_id(self, text: str) -> JobId:
        """Check the format of a job id.

        Raises:
            RequestRefusedError: 404 if it is malformed.
        """
        if is_job_id(text):
            return JobId(text)
        cause, fix = f"{text!r} is not a job id", "job ids look like j-0123abcd"
        raise refusal(404, Kind.NO_SUCH_JOB, cause, fix)

    def number(self, name: str, default: int, least: int = 0, most: int = LARGEST) -> int:
        """Read a number from the query.

        Raises:
            RequestRefusedError: 400 with the range.
        """
        text = self.get_query_argument(name, "")
        if not text:
            return default
        # int() also takes other scripts' digits, +1, 1_000 and blanks.
        is_number = _NUMBER.fullmatch(text) is not None
        value = int(text) if is_number else 0
        if not (is_number and least <= value <= most):
            fix = f"use a number from {least} to {most}"
            raise refusal(400, Kind.BAD_REQUEST, f"{name}={text!r} is out of range", fix)
        return value

    def problem_of(self, error: BaseException | None, status: int) -> tuple[Problem, int]:
        """Return the problem that answers an error, and the HTTP status."""
        match error:
            case RequestRefusedError(problem=problem):
                return problem, status
            case MntrainError(problem=problem):
                fits = (code for kind, code in self.statuses.items() if isinstance(error, kind))
                return problem, next(fits, 400)
            case HTTPError(log_message=said):
                usual = (
                    Kind.BROKEN if status >= HTTPStatus.INTERNAL_SERVER_ERROR else Kind.BAD_REQUEST
                )
                known = (usual, HTTPStatus(status).phrase)
                kind, cause = _OF_STATUS.get(HTTPStatus(status), known)
                return Problem(kind=kind, cause=said or cause), status
            case _:
                return self.broken, 500

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        self.answer(*self.problem_of(error, status_code))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log only unexpected exceptions: errors that a caller can cause are answered instead."""
        if not isinstance(value, MntrainError | HTTPError):
            super().log_exception(typ, value, tb)
