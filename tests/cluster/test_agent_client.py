"""Every way an agent does not answer, told apart; every answer typed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import msgspec
import pytest

from jupyter_mntrain.cluster.agent_client import AgentClient
from jupyter_mntrain.cluster.transport import open_http, split_lines
from jupyter_mntrain.model import api
from jupyter_mntrain.model.errors import (
    JobNotFoundError,
    MntrainError,
    NodeError,
    RefusedError,
    SpecError,
)
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.metrics import JournalLine
from tests.cluster.fake_agent import FakeAgent, Hang, LoseReply, LoseRequest, Refuse
from tests.cluster.samples import JOB

pytestmark = pytest.mark.anyio
MakeAgent = Callable[..., Awaitable[FakeAgent]]


@pytest.fixture
async def http(anyio_backend: str) -> AsyncIterator[httpx.AsyncClient]:
    async with open_http() as client:
        yield client


async def failure(client: AgentClient, timeout_s: float = 5.0) -> NodeError:
    with pytest.raises(NodeError) as caught:
        await client.node_info(timeout_s=timeout_s)
    assert caught.value.fix
    assert "\n" not in str(caught.value)
    return caught.value


async def test_an_agent_says_who_it_is(http: httpx.AsyncClient, agent_here: MakeAgent) -> None:
    agent = await agent_here("node7")
    info = await AgentClient(http, agent.where, "default").node_info()
    assert info == agent.info


async def test_an_agent_is_found_by_a_name_too(
    http: httpx.AsyncClient, agent_here: MakeAgent
) -> None:
    agent = await agent_here(address="127.0.0.1")
    info = await AgentClient(http, f"localhost:{agent.port}", "default").node_info()
    assert info.name == "node1"


async def test_nobody_listens(http: httpx.AsyncClient, agent_here: MakeAgent) -> None:
    agent = await agent_here()
    await agent.die()
    error = await failure(AgentClient(http, agent.where, "default", node="node1"))
    assert error.reason == "refused"
    assert str(error).startswith(f"node1: connection refused: nothing listens on {agent.where}")
    assert "mntrain agent run" in str(error)


async def test_a_machine_that_drops_packets(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full accept queue: SYNs are dropped, as by a firewall."""
    monkeypatch.setattr("jupyter_mntrain.cluster.agent_client.CONNECT_TIMEOUT_S", 0.2)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        where = full.getsockname()
        crowd = [socket.socket() for _ in range(4)]
        try:
            for one in crowd:
                one.settimeout(0)
                one.connect_ex(where)
            error = await failure(AgentClient(http, f"127.0.0.1:{where[1]}", "default"))
        finally:
            for one in crowd:
                one.close()
    assert error.reason == "timed out"
    assert "firewall" in str(error)


async def test_an_agent_that_takes_the_request_and_says_nothing(
    http: httpx.AsyncClient, agent_here: MakeAgent
) -> None:
    agent = await agent_here()
    agent.faults["node"].append(Hang())
    error = await failure(AgentClient(http, agent.where, "default"), timeout_s=0.1)
    assert (error.reason, "does not answer" in str(error)) == ("timed out", True)


@pytest.mark.parametrize("fault", [LoseReply(), LoseRequest()])
async def test_a_reply_that_is_lost(
    http: httpx.AsyncClient, agent_here: MakeAgent, fault: LoseReply
) -> None:
    agent = await agent_here()
    agent.faults["node"].append(fault)
    assert (await failure(AgentClient(http, agent.where, "default"))).reason == "broken off"


async def test_an_agent_of_another_cluster(http: httpx.AsyncClient, agent_here: MakeAgent) -> None:
    agent = await agent_here(cluster="theirs")
    error = await failure(AgentClient(http, agent.where, "ours"))
    assert error.reason == "wrong cluster"
    assert "'theirs'" in str(error)


async def test_an_agent_of_another_protocol(http: httpx.AsyncClient, agent_here: MakeAgent) -> None:
    agent = await agent_here(protocol=99)
    error = await failure(AgentClient(http, agent.where, "default"))
    assert (error.reason, "protocol 99" in str(error)) == ("protocol", True)


@pytest.mark.parametrize(
    "speech",
    [
        b"220 smtp.example ESMTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nOops",
    ],
)
async def test_somebody_else_listens_there(http: httpx.AsyncClient, speech: bytes) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(speech)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        error = await failure(AgentClient(http, f"127.0.0.1:{port}", "default"))
    assert (error.reason, "not an mntrain agent" in str(error)) == ("not an agent", True)


async def test_a_name_nobody_has(http: httpx.AsyncClient) -> None:
    error = await failure(AgentClient(http, "no-such-machine.invalid:8765", "default"))
    assert error.reason == "unreachable"
    assert "no-such-machine.invalid" in str(error)


async def test_an_environment_with_a_proxy_changes_nothing(
    agent_here: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    agent = await agent_here()
    async with open_http() as http:
        assert (await AgentClient(http, agent.where, "default").node_info()).name == "node1"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Refuse(code="refused", status=409), RefusedError),
        (Refuse(code="something new", status=403), RefusedError),
        (Refuse(code="bad-spec", status=400), SpecError),
        (Refuse(code="no-such-job", status=404), JobNotFoundError),
        (Refuse(code="http-500", status=500), NodeError),
    ],
)
async def test_a_refusal_is_the_agents_own_words(
    http: httpx.AsyncClient, agent_here: MakeAgent, fault: Refuse, kind: type[MntrainError]
) -> None:
    agent = await agent_here()
    fault.message = "node1: GPU 0 is promised"
    agent.faults["job"].append(fault)
    with pytest.raises(kind) as caught:
        await AgentClient(http, agent.where, "default", node="node1").job(JOB)
    assert str(caught.value) == "node1: GPU 0 is promised. Fix: come back tomorrow."
    assert getattr(caught.value, "reason", None) is None


async def test_the_typed_routes(http: httpx.AsyncClient, agent_here: MakeAgent) -> None:
    agent = await agent_here()
    client = AgentClient(http, agent.where, "default")
    request = api.LeaseRequest(job_id=JOB, attempt=1, ranks=1, hold_port=0)
    grant = await client.lease(request)
    assert (grant.address, agent.leases) == (agent.address, {(JOB, 1): request})
    await client.release(JOB, 1)
    assert agent.leases == {}
    assert await client.jobs() == []
    agent.logs[JOB] = b"0123456789"
    assert await client.log(JOB, -4, 3) == (b"678", 10)
    ticket = await client.probe_listen(api.ProbeListen(address=agent.address))
    probe = api.ProbeSend(
        interface="lo",
        source_address=agent.address,
        address=agent.address,
        port=ticket.port,
        token=ticket.token,
        peer="node1",
    )
    assert (await client.probe_send(probe)).peer == "node1"


async def test_a_stream_begins_with_hello_and_ends_with_the_connection(
    http: httpx.AsyncClient, agent_here: MakeAgent
) -> None:
    agent = await agent_here()
    messages = AgentClient(http, agent.where, "default").stream()
    assert await anext(messages) == api.Hello(node=agent.info, jobs=())
    agent.say(api.Goodbye(reason="maintenance"))
    assert await anext(messages) == api.Goodbye(reason="maintenance")
    await agent.die()
    with pytest.raises((NodeError, StopAsyncIteration)):
        await anext(messages)


async def test_a_journal_from_where_it_was_left(
    http: httpx.AsyncClient, agent_here: MakeAgent
) -> None:
    agent = await agent_here()
    job_id = JobId("j-0000000f")
    agent.steps(job_id, 0, range(1, 6))
    lines = AgentClient(http, agent.where, "default").journal(job_id, since=3, follow=False)
    assert [line.seq async for line in lines] == [4, 5]


async def test_a_newer_agents_journal_is_read_but_for_what_is_new_in_it(
    http: httpx.AsyncClient, agent_here: MakeAgent
) -> None:
    class Dream(msgspec.Struct, tag_field="kind", tag="from_the_future"):
        depth: int = 3

    agent = await agent_here()
    job_id = JobId("j-0000000f")
    agent.steps(job_id, 0, range(1, 3))
    journal = agent.journals[job_id]
    journal.insert(1, JournalLine(seq=9, attempt=1, body=Dream()))  # type: ignore[arg-type]
    lines = AgentClient(http, agent.where, "default").journal(job_id, since=0, follow=False)
    assert [line.seq async for line in lines] == [1, 2]


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_lines_are_split_at_newlines_only_wherever_chunks_end() -> None:
    text = '{"a":"x\u2028y\x85"}\n{}\n\nunfinished'.encode()
    for cut in range(len(text)):
        lines = [line async for line in split_lines(chunks(text[:cut], text[cut:]))]
        assert lines == ['{"a":"x\u2028y\x85"}'.encode(), b"{}"]
