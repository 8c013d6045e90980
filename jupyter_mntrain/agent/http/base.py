"""Agent handler: checks the caller, bounds streams, and keeps an audit log."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, ParamSpec, TypeVar

from tornado.http1connection import HTTP1Connection
from tornado.httputil import HTTPHeaders
from tornado.iostream import IOStream, StreamClosedError
from tornado.web import HTTPError, stream_request_body

from jupyter_mntrain.agent.access.callers import NotAllowedError, for_viewer, lines_for_viewer
from jupyter_mntrain.agent.access.limits import MAX_BODY_BYTES, TooManyError
from jupyter_mntrain.agent.failure.own_errors import unexpected
from jupyter_mntrain.agent.gang.watch import WatchTasks
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.http.json_handler import JsonHandler, refusal
from jupyter_mntrain.model.api import Route
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.trust.certificates import Role, Subject

log = logging.getLogger("mntrain.agent")

P = ParamSpec("P")
T = TypeVar("T")

_LENGTH = re.compile(r"[0-9]{1,19}")

DRAINED_BYTES = 64 * 2**20
"""How much of a larger body is read and discarded: else its sender never sees the answer."""

SLOW_READER_S = 10.0
"""A reader that reads nothing for this long is disconnected. It can resume by number."""


Roles = frozenset[Role]

DRIVERS: Roles = frozenset({"driver"})
WATCHING: Roles = frozenset({"driver", "viewer"})
GANG: Roles = frozenset({"driver", "node"})
ALL: Roles = frozenset({"driver", "viewer", "node"})


class AgentHandler(JsonHandler):
    """Base of the agent's request handlers: it checks the caller.

    A handler of a route names it, and for each method who may send it:
    ``class X(AgentHandler, route=Route.X, get=WATCHING)``. All other requests are refused to all. A
    node is limited further: it may act only on jobs that a driver has placed on both nodes.
    """

    route: ClassVar[Route | None] = None
    """``None`` for requests that no route takes."""

    roles: ClassVar[Mapping[str, Roles]] = {}

    statuses = {
        JobNotFoundError: 404,
        NotAllowedError: 403,
        TooManyError: 429,
        RefusedError: 409,
    }

    has_hung_up = False
    caller: Subject

    def __init_subclass__(cls, route: Route | None = None, **roles: Roles) -> None:
        super().__init_subclass__()
        cls.route = route
        cls.roles = {method.upper(): allowed for method, allowed in roles.items()}

    def initialize(self, node: LocalNode, watch_tasks: WatchTasks) -> None:
        self.node = node
        self.watch_tasks = watch_tasks

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:  # noqa: ARG002 - tornado's
        """Log an unexpected error under an id, which the answer names."""
        if isinstance(value, Exception) and not isinstance(value, MntrainError | HTTPError):
            asked = f"{self.request.method} {self.request.path} failed"
            self.broken = unexpected(value, asked, node=self.node.name)

    def prepare(self) -> None:
        if self._stream.closed():
            # The caller has hung up before its request was looked at: nobody to check or answer.
            self.finish()
            return
        shown = self.request.get_ssl_certificate(binary_form=True)
        self.caller, self._certificate = self.node.trust.caller(shown)  # type: ignore[arg-type]
        if self.route is not None:
            self._refuse_other_roles()

    def _refuse_other_roles(self) -> None:
        allowed = self.roles.get(self.request.method or "")
        if allowed is None or self.caller.role not in allowed:
            if allowed is None and self.caller.role == "driver":
                raise HTTPError(405)
            raise self.not_allowed()

    def not_allowed(self) -> NotAllowedError:
        if self.caller.role == "viewer":
            return NotAllowedError(
                "a read-only driver's certificate does not allow this",
                fix="ask the cluster's owner for an invitation that is not read-only",
            )
        return NotAllowedError(
            f"a {self.caller.role}'s certificate does not allow this",
            fix="use a driver of the cluster",
        )

    def encode(self, content: object) -> bytes:
        """Encode an answer without what the caller may not see. Every answer passes here."""
        return super().encode(self.seen(content))

    def seen(self, content: T) -> T:
        """Remove secrets from an answer to a read-only driver."""
        if self.sees_secrets:
            return content
        return for_viewer(content, self.secrets(), hides_output=self.hides_output)

    def seen_lines(self, block: bytes) -> bytes:
        """Remove secrets from whole lines of a journal for a read-only driver."""
        if self.sees_secrets:
            return block
        return lines_for_viewer(block, self.secrets(), hides_output=self.hides_output)

    @property
    def sees_secrets(self) -> bool:
        return hasattr(self, "caller") and self.caller.role in {"driver", "node"}

    @property
    def hides_output(self) -> bool:
        """Whether the requested job keeps back what its ranks print from read-only drivers."""
        return any(job.record.spec.hides_output for job in self._requested())

    def secrets(self) -> tuple[str, ...]:
        """Return the secret values of the requested job, or of all jobs if none is requested."""
        jobs = self.node.jobs.all() if self._asked_job is None else self._requested()
        return tuple(dict.fromkeys(value for job in jobs for value in job.secrets))

    @property
    def _asked_job(self) -> str | None:
        # tornado refuses a method that it does not know before it has looked at the path.
        found: str | None = getattr(self, "path_kwargs", {}).get("job_id")
        return found

    def _requested(self) -> Iterator[LocalJob]:
        """Yield the job that is requested, if one is and it is known."""
        with suppress(JobNotFoundError):
            yield self.node.jobs.get(JobId(self._asked_job or ""))

    def job(self, text: str) -> LocalJob:
        """Return a job by its id.

        Raises:
            RequestRefusedError: 404 if it is malformed.
            JobNotFoundError: it is not known here.
        """
        return self.node.jobs.get(self.job_id(text))

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Count a long-lived answer while it is sent.

        Raises:
            TooManyError: too many are open.
        """
        with (
            self.node.streams.held(self.caller.uri),
            self.node.trust.connected(self._certificate, self._stream),
        ):
            yield

    @property
    def _stream(self) -> IOStream:
        connection = self.request.connection
        assert isinstance(connection, HTTP1Connection)  # noqa: S101 - a server's request has one
        return connection.stream

    def on_connection_close(self) -> None:
        self.has_hung_up = True

    async def slowly(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run slow work in a thread pool of its own, and return its result."""
        return await in_threads(self.node.threads.slow, work, *args, **named)

    @property
    def caller_name(self) -> str:
        """The caller's name in the audit log."""
        return f"{self.caller.role} {self.caller.name}"

    @contextmanager
    def audited(self, what: str, **about: str) -> Iterator[None]:
        """Log who did something, and how it ended.

        Args:
            about: what it concerns: a job, an attempt, an address.
        """
        outcome = "failed"
        try:
            yield
            outcome = "done"
        except MntrainError as error:
            outcome = f"refused: {error.cause}"
            raise
        finally:
            where = self.request.remote_ip or ""
            self.node.audit.note(what, who=self.caller_name, where=where, outcome=outcome, **about)

    async def send_block(self, block: bytes) -> None:
        """Send a block and wait until it is flushed, so that no buffer grows without bound.

        Raises:
            StreamClosedError: the reader is gone, or too slow and was disconnected.
        """
        self.write(block)
        try:
            await asyncio.wait_for(self.flush(), SLOW_READER_S)
        except TimeoutError:
            self.detach().close()
            raise StreamClosedError from None


async def in_threads(of: Executor, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Run blocking work in a thread, and return its result."""
    ready = partial(work, *args, **named)
    return await asyncio.get_running_loop().run_in_executor(of, ready)


def body_length(headers: HTTPHeaders) -> int | None:
    """Return the announced length of a body; ``None`` if there is none or it is not a valid length.

    tornado answers the latter with 400. int() would take other scripts' digits, +1 and 1_000, and
    fails for thousands of digits.
    """
    text = headers.get("Content-Length", "")
    return int(text) if _LENGTH.fullmatch(text) else None


class NotFound(AgentHandler):
    def prepare(self) -> None:
        super().prepare()
        raise refusal(404, Kind.NO_SUCH_ROUTE, f"no such route: {self.request.path}")


@stream_request_body
class TooLarge(AgentHandler):
    """Handler that refuses a body over the limit, and discards it."""

    def prepare(self) -> None:
        super().prepare()
        if (body_length(self.request.headers) or 0) > DRAINED_BYTES:
            raise self._refusal()
        self.request.connection.set_max_body_size(DRAINED_BYTES)  # type: ignore[union-attr]

    def data_received(self, chunk: bytes) -> None:
        pass

    def put(self, *_: str, **__: str) -> None:
        raise self._refusal()

    get = post = delete = put

    def _refusal(self) -> HTTPError:
        limit = MAX_BODY_BYTES >> 20
        return refusal(
            413,
            Kind.TOO_LARGE,
            f"the request has more than {limit} MiB",
            "send only small files; put data sets and weights on every node or on shared storage",
        )
