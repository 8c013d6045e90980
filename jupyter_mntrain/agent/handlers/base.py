"""What every request goes through: who may ask, what a body may be, how a refusal looks."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler, stream_request_body

from jupyter_mntrain.agent.limits import TooManyError
from jupyter_mntrain.agent.node import Node
from jupyter_mntrain.agent.watches import Watches
from jupyter_mntrain.model.api import CLUSTER_HEADER, Problem
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, RefusedError
from jupyter_mntrain.model.ids import JobId, is_job_id

log = logging.getLogger("mntrain.agent")
T = TypeVar("T")

MAX_BODY_BYTES = 8 << 20
"""Of a request: recipes and scripts, no data sets."""

DRAINED_BYTES = 64 << 20
"""Of a body that is too long: read and thrown away, or the sender never sees our answer."""

SLOW_READER_S = 10.0
"""A reader that takes nothing for this long is cut off; it resumes by number when it is back."""


class AgentHandler(RequestHandler):
    """Checks cluster, Host and content type; answers errors as :class:`Problem`."""

    has_hung_up = False

    def initialize(self, node: Node, watches: Watches) -> None:
        self.node = node
        self.watches = watches

    def prepare(self) -> None:
        self._refuse_foreign_host()
        self._refuse_other_cluster()
        if self.request.method in {"POST", "PUT", "DELETE"}:
            self._refuse_forms()

    def on_connection_close(self) -> None:
        self.has_hung_up = True

    def job_id(self, text: str) -> JobId:
        if not is_job_id(text):
            raise self.problem(
                404, "no-such-job", f"{text!r} is no job id", "job ids look like j-0123abcd"
            )
        return JobId(text)

    def body_as(self, kind: type[T]) -> T:
        """The validated body.

        Raises:
            HTTPError: 400 naming the field.
        """
        try:
            return msgspec.json.decode(self.request.body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self.problem(400, "bad-request", f"the request is not valid: {error}") from error

    def number_argument(self, name: str, default: int) -> int:
        text = self.get_query_argument(name, str(default))
        try:
            return int(text)
        except ValueError:
            raise self.problem(400, "bad-request", f"{name}={text!r} is not a number") from None

    @contextmanager
    def audited(self, what: str, job: str, who: str) -> Iterator[None]:
        """Who did this, and how it ended, is kept."""
        outcome = "failed"
        try:
            yield
            outcome = "done"
        except MntrainError as error:
            outcome = f"refused: {error.cause}"
            raise
        finally:
            where = self.request.remote_ip or ""
            self.node.audit.note(what, job=job, who=who, where=where, outcome=outcome)

    def answer(self, content: Any, status: int = 200) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(content))

    async def send_block(self, block: bytes) -> None:
        """Send and wait until it is on its way: no reader is buffered for without bound.

        Raises:
            StreamClosedError: the reader is gone, or so slow that it was let go.
        """
        self.write(block)
        try:
            await asyncio.wait_for(self.flush(), SLOW_READER_S)
        except TimeoutError:
            self.detach().close()
            raise StreamClosedError from None

    def problem(self, status: int, code: str, message: str, hint: str | None = None) -> HTTPError:
        error = HTTPError(status)
        error.problem = Problem(code=code, message=message, hint=hint)  # type: ignore[attr-defined]
        return error

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, MntrainError):
            status_code = _status_of(error)
            where = f"{error.node}: " if error.node else ""
            problem = Problem(code=error.code, message=f"{where}{error.cause}", hint=error.fix)
        else:
            problem = getattr(error, "problem", None) or Problem(
                code=f"http-{status_code}", message=HTTPStatus(status_code).phrase
            )
        self.answer(problem, status_code)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        if not isinstance(value, MntrainError):
            super().log_exception(typ, value, tb)

    def _refuse_foreign_host(self) -> None:
        """Only hosts that are ours: a web page cannot rebind its own name to this port."""
        host = self.request.host_name
        if host != "localhost" and host not in self.node.bound and not _is_loopback(host):
            raise self.problem(
                403,
                "foreign-host",
                f"this agent is not {host!r}",
                f"ask it at {' or '.join(self.node.bound)}, or as localhost",
            )

    def _refuse_other_cluster(self) -> None:
        asked = self.request.headers.get(CLUSTER_HEADER)
        own = self.node.cluster
        if asked is None:
            message = f"the request names no cluster in {CLUSTER_HEADER}"
            raise self.problem(421, "other-cluster", message, f"this is cluster {own!r}")
        if asked != own:
            raise self.problem(
                421,
                "other-cluster",
                f"{self.node.name} belongs to cluster {own!r}, not {asked!r}",
                f"use --cluster {own}, or restart the agent with --cluster {asked}",
            )

    def _refuse_forms(self) -> None:
        """A page in a browser can send forms anywhere, but JSON only with our permission."""
        content = self.request.headers.get("Content-Type", "")
        if content.partition(";")[0].strip().lower() != "application/json":
            raise self.problem(415, "not-json", "changing requests must be application/json")


class NotFound(AgentHandler):
    def prepare(self) -> None:
        raise self.problem(404, "no-such-route", f"there is no {self.request.path}")


@stream_request_body
class TooLarge(AgentHandler):
    """Answers a body that is over the limit, without keeping it."""

    def prepare(self) -> None:
        length = int(self.request.headers["Content-Length"])
        if length > DRAINED_BYTES:
            raise self._refusal()
        self.request.connection.set_max_body_size(DRAINED_BYTES)  # type: ignore[union-attr]

    def data_received(self, chunk: bytes) -> None:
        pass

    def put(self, *_: str, **__: str) -> None:
        raise self._refusal()

    get = post = delete = put

    def _refusal(self) -> HTTPError:
        limit = MAX_BODY_BYTES >> 20
        return self.problem(
            413,
            "too-large",
            f"the request has more than {limit} MiB",
            "send small files along; put data sets and weights where every node can read them",
        )


def _status_of(error: MntrainError) -> int:
    if isinstance(error, JobNotFoundError):
        return 404
    if isinstance(error, TooManyError):
        return 429
    return 409 if isinstance(error, RefusedError) else 400


def _is_loopback(host: str) -> bool:
    """By number: a tunnel's end on the asker's own machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
