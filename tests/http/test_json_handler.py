"""JSON handler: whatever goes wrong with a request is answered as a problem, in one line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import msgspec
import pytest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, HTTPError, RequestHandler

from jupyter_mntrain.http.json_handler import JsonHandler, refusal
from jupyter_mntrain.model.errors import JobNotFoundError, RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from tests.wording import says

pytestmark = pytest.mark.anyio

Ask = Callable[..., Awaitable[httpx.Response]]


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    steps: int = 1


class Steps(JsonHandler):
    statuses = {RefusedError: 409}
    broken = Problem(kind=Kind.BROKEN, cause="the test broke", fix="see its log")

    def get(self) -> None:
        self.answer({"since": self.number("since", 5, least=1, most=9)})

    def post(self) -> None:
        self.answer(self.body_as(Wanted), 202)


class Jobs(JsonHandler):
    def get(self, job_id: str) -> None:
        self.answer({"job_id": self.job_id(job_id)})


RAISED: dict[str, Exception] = {
    "spec": SpecError("no such node", fix="add it", node="node1"),
    "refused": RefusedError("GPU 0 was taken", fix="wait for it"),
    "not-found": JobNotFoundError("no such job"),
    "refusal": refusal(413, Kind.TOO_LARGE, "the body is too long", "send less"),
    "forbidden": HTTPError(403),
    "unforeseen": ZeroDivisionError("secret of the server"),
}


class Raising(Steps):
    def get(self, name: str = "") -> None:
        raise RAISED[name]


class Unknown(JsonHandler):
    def prepare(self) -> None:
        raise HTTPError(404)


@pytest.fixture
async def ask(anyio_backend: str) -> AsyncIterator[Ask]:
    routes: list[tuple[str, type[RequestHandler]]] = [
        ("/steps", Steps),
        ("/jobs/(.*)", Jobs),
        ("/raise/(.*)", Raising),
    ]
    server = HTTPServer(Application(routes, default_handler_class=Unknown))
    socket, port = bind_unused_port()
    server.add_socket(socket)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:

        async def ask(method: str, path: str, content: bytes | None = None) -> httpx.Response:
            return await client.request(method, path, content=content)

        yield ask
    server.stop()
    await server.close_all_connections()


def problem_in(answer: httpx.Response, status: int, kind: Kind) -> Problem:
    """The problem of an answer, checked for its form."""
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/json"
    problem = msgspec.json.decode(answer.content, type=Problem)
    assert problem.kind is kind
    assert problem.cause
    assert "\n" not in str(problem)
    return problem


async def test_a_body_is_taken_and_an_empty_one_has_the_defaults(ask: Ask) -> None:
    answer = await ask("POST", "/steps", b'{"steps": 3}')
    assert (answer.status_code, answer.json()) == (202, {"steps": 3})
    assert (await ask("POST", "/steps")).json() == {"steps": 1}


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"{", "truncated"),
        (b"steps=3", "malformed"),
        (b'{"steps": "3"}', "$.steps"),
        (b'{"stpes": 3}', "stpes"),
        (b"[]", "array"),
        (b'{"steps": "\xff"}', "$.steps"),
        (b'{"a":' * 20_000, "not valid"),
    ],
    ids=["cut off", "no JSON", "wrong type", "unknown field", "no object", "no UTF-8", "too deep"],
)
async def test_a_bad_body_is_named(ask: Ask, body: bytes, cause: str) -> None:
    problem = problem_in(await ask("POST", "/steps", body), 400, Kind.BAD_REQUEST)
    assert says(cause, problem.cause)


@pytest.mark.parametrize(
    ("query", "since"), [("", 5), ("?since=", 5), ("?since=1", 1), ("?since=9", 9)]
)
async def test_a_number_of_the_query_may_lie_on_its_bounds(
    ask: Ask, query: str, since: int
) -> None:
    assert (await ask("GET", f"/steps{query}")).json() == {"since": since}


@pytest.mark.parametrize("since", ["0", "10", "-1", "soon", "1.5", "nan"])
async def test_a_number_out_of_bounds_is_refused_with_them(ask: Ask, since: str) -> None:
    problem = problem_in(await ask("GET", f"/steps?since={since}"), 400, Kind.BAD_REQUEST)
    assert says("from 1 to 9", problem.fix)


async def test_a_job_id_is_checked_for_its_form(ask: Ask) -> None:
    assert (await ask("GET", "/jobs/j-0123abcd")).json() == {"job_id": "j-0123abcd"}
    for text in ("nonsense", "j-", "..%2F..%2Fetc"):
        assert problem_in(await ask("GET", f"/jobs/{text}"), 404, Kind.NO_SUCH_JOB).fix


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nowhere", 404), ("DELETE", "/steps", 405)]
)
async def test_an_unknown_route_or_method_is_a_problem(
    ask: Ask, method: str, path: str, status: int
) -> None:
    problem_in(await ask(method, path), status, Kind.NO_SUCH_ROUTE)


@pytest.mark.parametrize(
    ("name", "status", "error"),
    [
        ("refused", 409, RAISED["refused"]),
        ("spec", 400, RAISED["spec"]),
        ("not-found", 400, RAISED["not-found"]),
    ],
)
async def test_an_error_of_ours_is_its_problem_with_the_status_of_its_class(
    ask: Ask, name: str, status: int, error: Any
) -> None:
    problem = problem_in(await ask("GET", f"/raise/{name}"), status, error.problem.kind)
    assert problem == error.problem


async def test_a_refusal_keeps_its_status_kind_and_fix(ask: Ask) -> None:
    problem = problem_in(await ask("GET", "/raise/refusal"), 413, Kind.TOO_LARGE)
    assert problem.fix
    problem_in(await ask("GET", "/raise/forbidden"), 403, Kind.NOT_ALLOWED)


async def test_what_was_not_foreseen_is_logged_and_says_nothing_of_itself(
    ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await ask("GET", "/raise/unforeseen")
    problem_in(answer, 500, Kind.BROKEN)
    assert "secret" not in answer.text
    assert "secret of the server" in caplog.text


async def test_what_a_caller_can_cause_is_not_logged_as_an_error(
    ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    await ask("GET", "/raise/refused")
    await ask("POST", "/steps", b"{")
    assert [one for one in caplog.records if one.exc_info] == []
