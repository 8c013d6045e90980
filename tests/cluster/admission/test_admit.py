"""Admitting: what a machine that has proved nothing may do to the driver that asks it."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.cluster.admission.desk import admit
from jupyter_mntrain.cluster.agents.transport import MOST_STRANGERS_BYTES
from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.trust.certificates import Subject
from tests import trusted

OFFERED = 64 * MOST_STRANGERS_BYTES
"""More than what is on its way when the driver hangs up."""


@pytest.mark.anyio
async def test_of_an_answer_without_an_end_a_megabyte_is_read(tmp_path: Path) -> None:
    sent, block, registrar = 0, bytes(1 << 16), Any

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        with suppress(asyncio.IncompleteReadError, OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % OFFERED)
            while sent < OFFERED:
                writer.write(block)
                await writer.drain()
                sent += len(block)
        writer.close()

    shown = trusted.make_credentials(tmp_path, Subject(role="node", name="odd"))
    shown.server.verify_mode = ssl.CERT_NONE
    server = await asyncio.start_server(speak, "127.0.0.1", 0, ssl=shown.server)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NodeError) as caught:
            await admit(f"127.0.0.1:{port}", registrar, ())  # type: ignore[arg-type]
    assert caught.value.kind is Kind.NOT_AN_AGENT
    assert sent < OFFERED
