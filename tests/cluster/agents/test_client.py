"""Agent client: every way an agent fails to answer gets its own error; every answer is typed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from jupyter_mntrain.cluster.agents import transport
from jupyter_mntrain.cluster.agents.client import AgentClient, Connector
from jupyter_mntrain.cluster.agents.transport import split_lines
from jupyter_mntrain.model import api
from jupyter_mntrain.model.errors import (
    JobNotFoundError,
    MntrainError,
    NodeError,
    RefusedError,
    SpecError,
)
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.lifecycle.listing import JobPage, JobQuery
from jupyter_mntrain.model.records.metrics import JournalLine
from jupyter_mntrain.model.records.probes import ProbeListen, ProbeSend
from jupyter_mntrain.model.text.log_parts import LogPart
from jupyter_mntrain.trust.certificates import (
    Subject,
)
from jupyter_mntrain.trust.driver_membership import DriverMembership
from tests import trusted
from tests.cluster.agents.conftest import MakeAgent, failure
from tests.standin.faults import Hang, LoseReply, LoseRequest, Refuse
from tests.standin.jobs import JOB
from tests.wording import says

pytestmark = pytest.mark.anyio


async def test_an_agent_says_who_it_is(connector: Connector, agent_here: MakeAgent) -> None:
    agent = await agent_here("node7")
    info = await AgentClient(connector, agent.where).node_info()
    assert info == agent.info


async def test_an_agent_is_found_by_a_name_too(connector: Connector, agent_here: MakeAgent) -> None:
    agent = await agent_here(address="127.0.0.1")
    info = await AgentClient(connector, f"localhost:{agent.port}").node_info()
    assert info.name == "node1"


@pytest.mark.wording
async def test_nobody_listens(connector: Connector, agent_here: MakeAgent) -> None:
    agent = await agent_here()
    await agent.die()
    error = await failure(AgentClient(connector, agent.where, node="node1"))
    assert error.kind is Kind.CONNECTION_REFUSED
    assert str(error).startswith(f"node1: connection refused: nothing listens on {agent.where}")
    assert says("mntrain agent run", str(error))
    nameless = await failure(AgentClient(connector, agent.where))
    assert str(nameless).startswith(f"{agent.where}: connection refused: nothing listens there")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the first request, too, which asks who answers: before the connector is made."""
    for module in ("client", "transport"):
        for limit in ("ANSWER_TIMEOUT_S", "CONNECT_TIMEOUT_S"):
            monkeypatch.setattr(f"jupyter_mntrain.cluster.agents.{module}.{limit}", 0.2)


async def test_a_machine_that_drops_packets(impatient: None, connector: Connector) -> None:
    """A full accept queue: SYNs are dropped, as by a firewall."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        where = full.getsockname()
        crowd = [socket.socket() for _ in range(4)]
        try:
            for one in crowd:
                one.settimeout(0)
                one.connect_ex(where)
            error = await failure(AgentClient(connector, f"127.0.0.1:{where[1]}"))
        finally:
            for one in crowd:
                one.close()
    assert error.kind is Kind.NO_ANSWER
    assert says("firewall", str(error))


async def test_an_agent_that_takes_the_request_and_says_nothing(
    impatient: None, connector: Connector, agent_here: MakeAgent
) -> None:
    agent = await agent_here()
    for node_id in (None, agent.node_id):
        agent.faults["node"].append(Hang())
        error = await failure(AgentClient(connector, agent.where, node_id=node_id))
        assert error.kind is Kind.SLOW_TO_ANSWER


async def test_what_takes_long_is_not_waited_for_once_heartbeats_have_stopped(
    monkeypatch: pytest.MonkeyPatch, connector: Connector, agent_here: MakeAgent
) -> None:
    monkeypatch.setattr("jupyter_mntrain.cluster.agents.client.LOOK_S", 0.02)
    agent = await agent_here()
    agent.faults["history"].append(Hang())
    looks = iter([False, False, True])
    client = AgentClient(connector, agent.where, is_lost=lambda: next(looks))
    with pytest.raises(NodeError) as raised:
        await client.node_history(0, 60, 10)
    assert raised.value.kind is Kind.SILENT
    assert [*looks] == []


async def test_a_frozen_agent_is_told_from_a_machine_that_is_off(
    impatient: None, connector: Connector
) -> None:
    """The kernel accepts its connections; nobody answers the TLS handshake."""
    with socket.socket() as frozen:
        frozen.bind(("127.0.0.1", 0))
        frozen.listen()
        where = f"127.0.0.1:{frozen.getsockname()[1]}"
        error = await failure(AgentClient(connector, where, node_id=NodeId("id-of-node1")))
    assert error.kind is Kind.SLOW_TO_ANSWER


async def test_a_busy_agent_has_more_time_for_the_handshake_than_a_kernel_for_a_connection(
    monkeypatch: pytest.MonkeyPatch, connector: Connector, agent_here: MakeAgent
) -> None:
    agent = await agent_here()
    connect_s = 1.0  # the loop of this test may be late by a part of it
    monkeypatch.setattr("jupyter_mntrain.cluster.agents.client.CONNECT_TIMEOUT_S", connect_s)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2 * connect_s)
        there_reader, there_writer = await asyncio.open_connection(agent.address, agent.port)
        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while some := await reader.read(1 << 16):
                writer.write(some)
        writer.close()

    async with await asyncio.start_server(pass_on, "127.0.0.1", 0) as busy:
        where = f"127.0.0.1:{busy.sockets[0].getsockname()[1]}"
        client = AgentClient(connector, where, node_id=NodeId(agent.node_id))
        assert (await client.node_info()).name == agent.name


@pytest.mark.parametrize("fault", [LoseReply(), LoseRequest()])
async def test_a_question_whose_reply_is_lost_is_asked_once_more(
    connector: Connector, no_alerts: None, agent_here: MakeAgent, fault: LoseReply
) -> None:
    agent = await agent_here()
    agent.faults["node"] += [fault, fault]
    assert (await failure(AgentClient(connector, agent.where))).kind is Kind.BROKEN_OFF
    agent.faults["node"].append(fault)
    assert (await AgentClient(connector, agent.where).node_info()).name == agent.name


@pytest.mark.parametrize(
    "speech",
    [
        b"220 smtp.example ESMTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nOops",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9000,
    ],
)
async def test_somebody_else_listens_there(
    connector: Connector, speech: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MOST_ANSWER_BYTES", 8000)

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Whoever only looks at the certificate says nothing.
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(speech)
            await writer.drain()
        writer.close()

    shown = trusted.make_credentials(tmp_path, Subject(role="node", name="odd"))
    server = await asyncio.start_server(speak, "127.0.0.1", 0, ssl=shown.server)
    async with server:
        port = server.sockets[0].getsockname()[1]
        error = await failure(AgentClient(connector, f"127.0.0.1:{port}"))
    assert error.kind is Kind.NOT_AN_AGENT


async def test_a_name_nobody_has(connector: Connector) -> None:
    error = await failure(AgentClient(connector, "no-such-machine.invalid:8765"))
    assert error.kind is Kind.UNREACHABLE
    assert "no-such-machine.invalid" in str(error)


async def test_an_environment_with_a_proxy_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, agent_here: MakeAgent, own_home: None
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    identity = DriverMembership.find("default")
    assert identity is not None
    connector = Connector(identity)
    agent = await agent_here()
    assert (await AgentClient(connector, agent.where).node_info()).name == "node1"
    await connector.close()


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Refuse(kind=Kind.REFUSED, status=409), RefusedError),
        (Refuse(kind=Kind.ERROR, status=403), RefusedError),
        (Refuse(kind=Kind.BAD_SPEC, status=400), SpecError),
        (Refuse(kind=Kind.NO_SUCH_JOB, status=404), JobNotFoundError),
        (Refuse(kind=Kind.BROKEN, status=500), NodeError),
    ],
)
async def test_a_refusal_is_the_agents_own_problem(
    connector: Connector, agent_here: MakeAgent, fault: Refuse, kind: type[MntrainError]
) -> None:
    agent = await agent_here()
    fault.cause = "GPU 0 is promised"
    agent.faults["job"].append(fault)
    with pytest.raises(kind) as caught:
        await AgentClient(connector, agent.where, node="node1").job(JOB)
    problem = caught.value.problem
    assert (problem.node, problem.cause) == ("node1", "GPU 0 is promised")
    assert problem.fix == "come back tomorrow"
    assert caught.value.kind is fault.kind


async def test_the_typed_routes(connector: Connector, agent_here: MakeAgent) -> None:
    agent = await agent_here()
    client = AgentClient(connector, agent.where)
    request = api.LeaseRequest(job_id=JOB, attempt=1, ranks=1, hold_port=0)
    grant = await client.lease(request)
    assert (grant.address, agent.leases) == (agent.address, {(JOB, 1): request})
    await client.release(JOB, 1)
    assert agent.leases == {}
    assert await client.jobs(JobQuery()) == JobPage(records=())
    agent.logs[JOB] = b"0123456789"
    assert await client.log(JOB, -4, 3) == LogPart(b"678", 6, 10)
    ticket = await client.probe_listen(ProbeListen(address=agent.address))
    probe = ProbeSend(
        interface="lo",
        source_address=agent.address,
        address=agent.address,
        port=ticket.port,
        token=ticket.token,
        peer="node1",
    )
    assert (await client.probe_send(probe)).receiver == "node1"


async def test_a_stream_begins_with_hello_and_ends_with_the_connection(
    connector: Connector, agent_here: MakeAgent
) -> None:
    agent = await agent_here()
    messages = AgentClient(connector, agent.where).stream()
    assert await anext(messages) == api.Hello(node=agent.info, jobs=())
    agent.say(api.Goodbye(reason="maintenance"))
    assert await anext(messages) == api.Goodbye(reason="maintenance")
    await agent.die()
    with pytest.raises((NodeError, StopAsyncIteration)):
        await anext(messages)


async def test_a_journal_from_where_it_was_left(
    connector: Connector, agent_here: MakeAgent
) -> None:
    agent = await agent_here()
    job_id = JobId("j-0000000f")
    agent.steps(job_id, 0, range(1, 6))
    lines = AgentClient(connector, agent.where).journal(job_id, since=3, follow=False)
    assert [line.seq async for line in lines] == [4, 5]


async def test_a_newer_agents_journal_is_read_but_for_what_is_new_in_it(
    connector: Connector, agent_here: MakeAgent
) -> None:
    class Dream(msgspec.Struct, tag_field="kind", tag="from_the_future"):
        depth: int = 3

    agent = await agent_here()
    job_id = JobId("j-0000000f")
    agent.steps(job_id, 0, range(1, 3))
    journal = agent.journals[job_id]
    journal.insert(1, JournalLine(seq=9, attempt=1, body=Dream()))  # type: ignore[arg-type]
    lines = AgentClient(connector, agent.where).journal(job_id, since=0, follow=False)
    assert [line.seq async for line in lines] == [1, 2]


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_lines_are_split_at_newlines_only_wherever_chunks_end() -> None:
    text = '{"a":"x\u2028y\x85"}\n{}\n\nunfinished'.encode()
    for cut in range(len(text)):
        lines = [line async for line in split_lines(chunks(text[:cut], text[cut:]))]
        assert lines == ['{"a":"x\u2028y\x85"}'.encode(), b"{}"]


async def test_a_line_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MOST_LINE_BYTES", 100)

    async def pieces() -> AsyncIterator[bytes]:
        yield b"first\n"
        for _ in range(20):
            yield b"second\n" * 10
        while True:
            yield b"x" * 9

    lines = split_lines(pieces())
    assert [await anext(lines) for _ in range(201)][-1] == b"second"
    with pytest.raises(httpx.RemoteProtocolError):
        await anext(lines)


async def test_a_line_is_read_in_a_time_that_is_linear_in_its_length() -> None:
    """16 MB took 9.4 s when each piece was added to the rest."""
    line = b"x" * (16 << 20)

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(line), 1 << 14):
            yield line[at : at + (1 << 14)]
        yield b"\nshort\n"

    begun_s = time.process_time()
    assert [len(one) async for one in split_lines(pieces())] == [len(line), len(b"short")]
    assert time.process_time() - begun_s < 1.0


async def test_somebody_who_speaks_no_tls_is_no_agent(connector: Connector) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 smtp.example ESMTP\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        error = await failure(AgentClient(connector, f"127.0.0.1:{port}"))
    assert error.kind is Kind.NOT_AN_AGENT
