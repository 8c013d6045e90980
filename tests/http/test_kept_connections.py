"""Kept connections: used again, opened again once the other side has closed them, and broken
off."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jupyter_mntrain.http.agent_calls import Into, Reply, Request
from jupyter_mntrain.http.kept_connections import KeptConnections
from jupyter_mntrain.trust.certificates import Subject
from tests import trusted

pytestmark = pytest.mark.anyio

NODE = Subject(role="node", name="ab" * 16)


class Echo(BaseHTTPRequestHandler):
    """Answers what it gets; ``/leave`` also closes the connection, and ``/wait`` answers never."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.peers.append(self.client_address[1])
        if self.path == "/wait":
            self.server.is_asked.set()
            self.server.may_end.wait()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        # Without a word in the headers: as a server does whose patience is over.
        self.close_connection = self.path == "/leave"

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """As a node, at a free port."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), Echo)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.peers: list[int] = []
        """Ports of who asked, request by request."""
        self.is_asked, self.may_end = threading.Event(), threading.Event()

    def handle_error(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(trusted.make_credentials(tmp_path / "node", NODE).server)
    serving = threading.Thread(target=made.serve_forever, args=(0.01,))
    serving.start()
    yield made
    made.may_end.set()
    made.shutdown()
    serving.join()
    made.server_close()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[KeptConnections]:
    made = KeptConnections(trusted.make_credentials(tmp_path / "us", trusted.DRIVER).client)
    yield made
    made.close()


async def put(
    kept: KeptConnections, server: Server, path: str, body: bytes, subject: Subject = NODE
) -> bytes | None:
    address = f"127.0.0.1:{server.server_port}"
    reply = await kept.reply(address, subject.dns_name, Request("PUT", path, body), silent_s=60.0)
    assert reply is None or reply.is_success
    return None if reply is None else reply.body


async def test_requests_after_one_another_share_a_connection(
    server: Server, kept: KeptConnections
) -> None:
    for number in range(3):
        body = bytes([number]) * 3_000_000
        assert await put(kept, server, "/", body) == body
    assert len(set(server.peers)) == 1


async def test_requests_at_once_have_their_own(server: Server, kept: KeptConnections) -> None:
    bodies = [bytes([number]) * 3_000_000 for number in range(4)]
    assert await asyncio.gather(*(put(kept, server, "/", body) for body in bodies)) == bodies


async def test_a_connection_that_was_closed_meanwhile_is_opened_anew(
    server: Server, kept: KeptConnections
) -> None:
    for body in (b"one", b"two", b"three"):
        assert await put(kept, server, "/leave", body) == body
    assert len(set(server.peers)) == 3


async def test_an_answer_goes_into_its_place_while_it_comes(
    server: Server, kept: KeptConnections
) -> None:
    sent, counts = bytes(range(250)) * 1000, list[int]()
    for size, rest in ((len(sent), b""), (len(sent) - 1, sent)):
        into = Into(bytearray(size), counts.append)
        address = f"127.0.0.1:{server.server_port}"
        request = Request("PUT", "/", sent, into=into)
        reply = await kept.reply(address, NODE.dns_name, request, 60.0)
        assert reply == Reply(is_success=True, body=rest)
        assert into.content == (bytes(size) if rest else sent)
    assert counts == sorted(counts)
    assert len(counts) > 1
    assert counts[-1] == len(sent)


async def test_only_the_named_node_is_asked(server: Server, kept: KeptConnections) -> None:
    other = Subject(role="node", name="cd" * 16)
    assert await put(kept, server, "/", b"secret", other) is None
    assert server.peers == []


async def test_a_canceled_request_is_broken_off(server: Server, kept: KeptConnections) -> None:
    task = asyncio.ensure_future(put(kept, server, "/wait", b"x"))
    await asyncio.to_thread(server.is_asked.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # Its thread ends although nothing answers: else the end of this process would wait for it.
    await asyncio.to_thread(kept._threads.shutdown)
