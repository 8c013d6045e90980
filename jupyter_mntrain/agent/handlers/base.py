"""What every request goes through: who may ask, what a body may be, how a refusal looks."""

from __future__ import annotations

import ipaddress
import logging
from typing import Any, TypeVar

import msgspec
from tornado.web import HTTPError, RequestHandler

from jupyter_mntrain.agent.node import Node
from jupyter_mntrain.agent.watches import Watches
from jupyter_mntrain.model.api import CLUSTER_HEADER, Problem
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, RefusedError

log = logging.getLogger("mntrain.agent")
T = TypeVar("T")

_STATUS: dict[type[MntrainError], int] = {RefusedError: 409, JobNotFoundError: 404}


class AgentHandler(RequestHandler):
    """Checks cluster, Host and content type; answers errors as :class:`Problem`."""

    def initialize(self, node: Node, watches: Watches) -> None:
        self.node = node
        self.watches = watches

    def prepare(self) -> None:
        self._refuse_foreign_host()
        self._refuse_other_cluster()
        if self.request.method in {"POST", "PUT", "DELETE"}:
            self._refuse_forms()

    def body_as(self, kind: type[T]) -> T:
        """The validated body.

        Raises:
            HTTPError: 400 naming the field.
        """
        try:
            return msgspec.json.decode(self.request.body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self.problem(400, "bad-request", f"the request is not valid: {error}") from error

    def number_argument(self, name: str, default: int) -> int:
        text = self.get_query_argument(name, str(default))
        try:
            return int(text)
        except ValueError:
            raise self.problem(400, "bad-request", f"{name}={text!r} is not a number") from None

    def answer(self, content: Any, status: int = 200) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(content))

    def problem(self, status: int, code: str, message: str, hint: str | None = None) -> HTTPError:
        error = HTTPError(status)
        error.problem = Problem(code=code, message=message, hint=hint)  # type: ignore[attr-defined]
        return error

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, MntrainError):
            status_code = _STATUS.get(type(error), 400)
            where = f"{error.node}: " if error.node else ""
            problem = Problem(code=error.code, message=f"{where}{error.cause}", hint=error.fix)
        else:
            problem = getattr(error, "problem", None) or Problem(
                code=f"http-{status_code}", message=self._reason
            )
        self.answer(problem, status_code)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        if not isinstance(value, MntrainError):
            super().log_exception(typ, value, tb)

    def _refuse_foreign_host(self) -> None:
        """Only names that are ours: a web page cannot rebind its own name to this port."""
        host = self.request.host_name
        try:
            is_address = bool(ipaddress.ip_address(host))
        except ValueError:
            is_address = False
        if not is_address and host != "localhost":
            raise self.problem(
                421, "foreign-host", f"this agent is not {host!r}", "ask it by its IP address"
            )

    def _refuse_other_cluster(self) -> None:
        asked = self.request.headers.get(CLUSTER_HEADER)
        if asked != self.node.cluster:
            raise self.problem(
                421,
                "other-cluster",
                f"{self.node.name} belongs to cluster {self.node.cluster!r}, not {asked!r}",
                f"use --cluster {self.node.cluster}, or restart the agent with --cluster {asked}",
            )

    def _refuse_forms(self) -> None:
        """A page in a browser can send forms anywhere, but JSON only with our permission."""
        content = self.request.headers.get("Content-Type", "")
        if content.partition(";")[0].strip() != "application/json":
            raise self.problem(415, "not-json", "changing requests must be application/json")


class NotFound(AgentHandler):
    def prepare(self) -> None:
        raise self.problem(404, "no-such-route", f"there is no {self.request.path}")
