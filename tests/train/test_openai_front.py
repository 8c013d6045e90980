"""Front of ``mntrain serve``: OpenAI's client and Open WebUI's requests, on a stand-in server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from jupyter_mntrain.train.answering.openai_front import front
from jupyter_mntrain.train.answering.serving import known_fields

NAME, DIRECTORY = "qwen-sft", "/data/run/served/j-1"
HELLO = [{"role": "user", "content": "Hello"}]


class _Behind(RequestHandler):
    """As transformers serve: it takes only its directory, and cannot list the models."""

    async def post(self) -> None:
        asked = json.loads(self.request.body)
        if unknown := asked.keys() - known_fields()[self.request.path]:
            self.set_status(422)
            self.finish({"detail": f"Unexpected fields in the request: {unknown}"})
            return
        if asked.get("model") != DIRECTORY:
            self.set_status(400)
            self.finish({"detail": f"Server is pinned to '{DIRECTORY}'"})
            return
        answer = {"id": "1", "created": 1, "model": DIRECTORY, "object": "chat.completion"}
        if not asked["stream"]:
            message = {"role": "assistant", "content": "Hello you"}
            self.finish(answer | {"choices": [{"index": 0, "message": message}], "asked": asked})
            return
        self.set_header("Content-Type", "text/event-stream")
        for word in ("Hello", " you"):
            piece = answer | {"choices": [{"index": 0, "delta": {"content": word}}]}
            self.write(f"data: {json.dumps(piece)}\n\n")
            await self.flush()

    def get(self) -> None:
        self.set_status(500)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Of a front and the server behind it, in a thread of their own."""
    loop, ports = asyncio.new_event_loop(), list[int]()

    def listen(app: Application) -> str:
        sockets = bind_sockets(0, "127.0.0.1")
        HTTPServer(app).add_sockets(sockets)
        ports.append(sockets[0].getsockname()[1])
        return f"http://127.0.0.1:{ports[-1]}"

    async def begin() -> None:
        behind = listen(Application([(r".*", _Behind)]))
        listen(front(NAME, DIRECTORY, behind, known_fields()))

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(begin(), loop).result()
    yield f"http://127.0.0.1:{ports[1]}/v1"
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as made:
        yield made


def test_any_name_that_it_lists_can_be_asked(client: openai.OpenAI) -> None:
    names = [one.id for one in client.models.list()]
    assert names == [NAME]
    assert client.models.retrieve(NAME).id == NAME
    for name in (*names, DIRECTORY, ""):
        answer = client.chat.completions.create(model=name, messages=HELLO)  # type: ignore[call-overload]
        assert answer.choices[0].message.content == "Hello you"


def test_another_name_is_not_found_and_the_right_one_is_named(client: openai.OpenAI) -> None:
    for ask in (
        lambda: client.models.retrieve("gpt-4"),
        lambda: client.chat.completions.create(model="gpt-4", messages=HELLO),  # type: ignore[call-overload]
    ):
        with pytest.raises(openai.NotFoundError, match=NAME) as caught:
            ask()
        assert caught.value.code == "model_not_found"


def test_a_stream_comes_in_pieces(client: openai.OpenAI) -> None:
    pieces = client.chat.completions.create(model=NAME, messages=HELLO, stream=True)  # type: ignore[call-overload]
    assert [one.choices[0].delta.content for one in pieces] == ["Hello", " you"]


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"stream": True, "stream_options": {"include_usage": True}}, "text/event-stream"),
        ({"stream": False, "max_completion_tokens": 50}, "application/json"),
        ({"min_p": 0.05, "top_k": 40, "repetition_penalty": 1.1, "x": {}}, "application/json"),
    ],
)
def test_what_open_webui_sends_is_answered(url: str, more: dict[str, Any], kind: str) -> None:
    headers = {"Authorization": "Bearer none", "X-OpenWebUI-User-Name": "Ann"}
    listed = httpx.get(f"{url}/models", headers=headers)
    name = listed.json()["data"][0]["id"]
    asked = {"model": name, "messages": HELLO, **more}
    answer = httpx.post(f"{url}/chat/completions", json=asked, headers=headers)
    assert (answer.status_code, answer.headers["Content-Type"].partition(";")[0]) == (200, kind)
    assert "you" in answer.text


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff"])
def test_a_broken_request_is_refused(url: str, body: bytes) -> None:
    json_type = {"Content-Type": "application/json"}
    answer = httpx.post(f"{url}/chat/completions", content=body, headers=json_type)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["application/json", "text/plain", ""])
def test_no_request_undoes_what_keeps_turns_apart(url: str, kind: str) -> None:
    given = {"sanitize_control_tokens": False, "chat_template": "{{ 1 }}", "enable_thinking": True}
    asked = json.dumps({"messages": HELLO, "chat_template_kwargs": given})
    answer = httpx.post(f"{url}/chat/completions", content=asked, headers={"Content-Type": kind})
    assert answer.json()["asked"]["chat_template_kwargs"] == {"enable_thinking": True}


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("value", [-1, 0, 1.5, "many", True])
def test_a_length_that_is_none_is_refused(url: str, field: str, value: object) -> None:
    answer = httpx.post(f"{url}/chat/completions", json={"messages": HELLO, field: value})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field


def test_a_model_without_a_chat_template_takes_no_conversation() -> None:
    async def ask() -> list[httpx.Response]:
        (socket,) = bind_sockets(0, "127.0.0.1")
        server = HTTPServer(front(NAME, DIRECTORY, "http://127.0.0.1:1", has_template=False))
        server.add_sockets([socket])
        where = f"http://127.0.0.1:{socket.getsockname()[1]}/v1"
        async with httpx.AsyncClient() as calls:
            chat = await calls.post(f"{where}/chat/completions", json={"messages": HELLO})
            text = await calls.post(f"{where}/completions", json={"prompt": "Once"})
        server.stop()
        return [chat, text]

    chat, text = asyncio.run(ask())
    assert (chat.status_code, chat.json()["error"]["code"]) == (400, "no_chat_template")
    assert text.status_code == 502  # it was passed on


def test_a_server_behind_that_is_gone_is_said(client: openai.OpenAI) -> None:
    gone = front(NAME, DIRECTORY, "http://127.0.0.1:1")

    async def ask() -> httpx.Response:
        (socket,) = bind_sockets(0, "127.0.0.1")
        server = HTTPServer(gone)
        server.add_sockets([socket])
        async with httpx.AsyncClient() as calls:
            where = f"http://127.0.0.1:{socket.getsockname()[1]}/v1/chat/completions"
            answer = await calls.post(where, json={"messages": HELLO})
        server.stop()
        return answer

    answer = asyncio.run(ask())
    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "server_error"
