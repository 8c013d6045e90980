"""OpenAI front end: adds to ``transformers serve`` what clients expect of ``/v1`` and it lacks.

It lists one model by one name, where the server behind it lists the hub's cache (and fails without
one) and takes only its directory's path; a name that is not served is refused as OpenAI refuses it.
A field that the server behind does not know is left out: it would refuse the whole request. Nobody
who asks can forge a turn: the server behind reads special tokens in messages as text
(:data:`SAFE`), and no request changes that.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Set
from typing import Any, Final

from tornado.httpclient import AsyncHTTPClient, HTTPError, HTTPRequest
from tornado.httputil import HTTPHeaders
from tornado.iostream import StreamClosedError
from tornado.web import Application, RequestHandler

LOGGER = logging.getLogger(__name__)
ANSWER_S = 3600.0
"""Longest time for one answer of the server: a long text on a CPU."""
LARGEST_BYTES = 100 * 2**20
"""Largest request to it: requests contain pictures."""
OWNER: Final = "mntrain"
SAFE: Final = {"sanitize_control_tokens": True}
"""Arguments of ``apply_chat_template``, from transformers 5.20 on."""
_TEMPLATE: Final = "chat_template_kwargs"
_KEPT: Final = frozenset({*SAFE, "chat_template"})
"""Arguments that clients may not set."""
_OF_CHAT: Final = ("/chat/completions", "/responses")
_LENGTHS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Fields of requests with how long an answer may be, in tokens."""
_HOP: Final = frozenset({"connection", "content-length", "transfer-encoding", "content-encoding"})
"""Headers of one connection, not of an answer."""


def front(
    name: str,
    directory: str,
    behind: str,
    fields: Mapping[str, Set[str]] | None = None,
    *,
    has_template: bool = True,
) -> Application:
    """Make the web application.

    Args:
        name: of the model, as clients see it.
        directory: as the server behind names it.
        behind: that server's URL, without a path.
        fields: of requests, by path, that the server behind knows; of other paths, all.
        has_template: the model has a chat template: without, it continues plain text only.
    """
    model = {"id": name, "object": "model", "created": int(time.time()), "owned_by": OWNER}
    told = {"model": model, "directory": directory, "behind": behind, "fields": fields or {}}
    return Application(
        [
            (r"/(?:v1/)?models", _Models, told),
            (r"/(?:v1/)?models/(.+)", _OneModel, told),
            (r".*", _Passed, {**told, "has_template": has_template}),
        ]
    )


class _Handler(RequestHandler):
    def initialize(
        self, model: dict[str, Any], directory: str, behind: str, fields: Mapping[str, Set[str]]
    ) -> None:
        self.model, self.directory, self.behind, self.fields = model, directory, behind, fields

    def set_default_headers(self) -> None:
        self.set_header("Content-Type", "application/json")

    def refuse(self, status: int, told: str, code: str, param: str | None = None) -> None:
        """Answer as OpenAI does, whose clients show the message."""
        self.set_status(status)
        error = {"message": told, "type": "invalid_request_error", "param": param, "code": code}
        self.finish({"error": error})

    def refuse_model(self, asked: object) -> None:
        told = f"The model {asked!r} is not served here. Use {self.model['id']!r}."
        self.refuse(404, told, "model_not_found", "model")

    def is_served(self, asked: object) -> bool:
        return asked in (self.model["id"], self.directory)


class _Models(_Handler):
    def get(self) -> None:
        self.finish({"object": "list", "data": [self.model]})


class _OneModel(_Handler):
    def get(self, asked: str) -> None:
        if not self.is_served(asked):
            self.refuse_model(asked)
            return
        self.finish(self.model)


class _Passed(_Handler):
    """Passes all other requests to the server behind, and its answers back as they arrive."""

    _is_left = False

    def initialize(self, *, has_template: bool, **told: Any) -> None:  # type: ignore[override]
        super().initialize(**told)
        self.has_template = has_template

    async def get(self) -> None:
        await self._pass(None)

    async def post(self) -> None:
        body = self.request.body
        # The server behind reads JSON whatever it is called.
        if not self.request.headers.get("Content-Type", "").startswith("multipart/"):
            try:
                asked = json.loads(body)
            except ValueError as error:
                self.refuse(400, f"The request is not JSON: {error}", "invalid_json")
                return
            if not isinstance(asked, dict):
                self.refuse(400, "The request is not a JSON object", "invalid_json")
                return
            if not self.is_served(asked.get("model") or self.model["id"]):
                self.refuse_model(asked["model"])
                return
            if self._refuses(asked):
                return
            if isinstance(given := asked.get(_TEMPLATE), dict):
                asked[_TEMPLATE] = {key: one for key, one in given.items() if key not in _KEPT}
            if unknown := asked.keys() - self.fields.get(self.request.path, asked.keys()):
                left_out = ", ".join(sorted(map(repr, unknown)))
                LOGGER.warning("not known by transformers serve, left out: %s", left_out)
                asked = {key: one for key, one in asked.items() if key not in unknown}
            # OpenAI's default; the server behind streams responses that do not say.
            body = json.dumps({"stream": False, **asked, "model": self.directory}).encode()
        await self._pass(body)

    def _refuses(self, asked: Mapping[str, Any]) -> bool:
        """Refuse requests that the server behind would answer with status 500 and no message."""
        if not self.has_template and self.request.path.endswith(_OF_CHAT):
            told = "This model has no chat template: ask /v1/completions for a continuation of text"
            self.refuse(400, told, "no_chat_template", "messages")
            return True
        for name in _LENGTHS:
            value = asked.get(name)
            if value is not None and (type(value) is not int or value < 1):
                told = f"{name} is {value!r}, not a whole number of at least 1"
                self.refuse(400, told, "invalid_value", name)
                return True
        return False

    async def _pass(self, body: bytes | None) -> None:
        request = HTTPRequest(
            self.behind + self.request.uri,
            method=self.request.method or "GET",
            headers={"Content-Type": self.request.headers.get("Content-Type", "")},
            body=body,
            request_timeout=ANSWER_S,
            streaming_callback=self._forward,
            header_callback=self._header,
            decompress_response=False,
        )
        try:
            await AsyncHTTPClient().fetch(request, raise_error=False)
        except (HTTPError, OSError) as error:
            if not (self._headers_written or self._is_left):
                self.refuse(502, f"The model's server does not answer: {error}", "server_error")
                return
        if not (self._finished or self._is_left):
            await self.finish()

    def _header(self, line: str) -> None:
        if line.startswith("HTTP/"):
            self.set_status(int(line.split()[1]))
        elif ":" in line:
            name, value = next(iter(HTTPHeaders.parse(line).get_all()))
            if name.lower() not in _HOP:
                self.set_header(name, value)

    def on_connection_close(self) -> None:
        self._is_left = True

    def _forward(self, piece: bytes) -> None:
        if self._is_left:
            raise StreamClosedError  # ends the request behind, and what is computed for it
        self.write(piece)
        self.flush()
