"""Endpoint: the socket of a rank, on which its node's agent asks for drivers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.session import (
    LARGEST_FRAME,
    LENGTH_BYTES,
    Answer,
    Complete,
    Event,
    Follow,
    Hello,
    Inspect,
    Interrupt,
    Pull,
    Pulled,
    Push,
    Request,
    Run,
    Where,
    frame,
    request_decoder,
)
from jupyter_mntrain.session.output import CellOutput, pieces
from jupyter_mntrain.session.shell import SessionShell
from jupyter_mntrain.session.values import packed, unpacked
from jupyter_mntrain.telemetry.session_socket import short_path

LOOK_S: Final = 1.0
"""How often a silent cell's reader is looked at."""


class Endpoint:
    """Answers requests, each connection in a thread of its own.

    Args:
        path: of the socket; its folder is the agent's alone.
    """

    def __init__(self, shell: SessionShell, path: Path) -> None:
        self._shell = shell
        self._socket = socket.socket(socket.AF_UNIX)
        path.parent.mkdir(parents=True, exist_ok=True)
        with short_path(path) as short:
            self._socket.bind(short)
        self._socket.listen(64)
        threading.Thread(target=self._accept, name="session", daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, msgspec.MsgspecError):
            request = request_decoder.decode(_read(connection))
            for event in self._answer(request):
                connection.sendall(frame(event))

    def _answer(self, request: Request) -> Iterator[Event]:
        shell = self._shell
        match request:
            case Run():
                yield from self._events(shell.submit(request), 0)
            case Follow():
                output = shell.output_of(request.cell)
                if output is not None:
                    yield from self._events(output, request.after)
            case Where():
                yield shell.where()
            case Complete():
                yield shell.complete(request.code, request.position)
            case Inspect():
                yield shell.inspect(request.code, request.position, request.detail)
            case Pull() | Push():
                yield self._exchanged(request)
            case Hello() | Interrupt() | Answer():
                self._tell(request)
                yield shell.state()

    def _tell(self, request: Hello | Interrupt | Answer) -> None:
        if isinstance(request, Interrupt):
            self._shell.interrupt(request.cell, breaks=request.breaks)
        elif isinstance(request, Answer):
            self._shell.answer(request.text)

    def _events(self, output: CellOutput, number: int) -> Iterator[Event]:
        while True:
            events, is_over = output.after(number, LOOK_S)
            yield from pieces(events)
            for event in events:
                number = max(number, event.number)  # type: ignore[union-attr]
            if is_over and not events:
                return
            if not events:
                yield self._shell.state()  # ends this thread if nobody reads any more

    def _exchanged(self, request: Pull | Push) -> Pulled:
        shell = self._shell
        try:
            if isinstance(request, Push):
                shell.names[request.name] = unpacked(request.value)
                return Pulled(shell.rank)
            if request.name not in shell.names:
                return Pulled(
                    shell.rank,
                    cause=f"there is no variable {request.name} on rank {shell.rank}",
                    fix="see its names: %who",
                )
            return Pulled(shell.rank, packed(shell.names[request.name], request.name))
        except MntrainError as error:
            return Pulled(shell.rank, cause=error.problem.cause, fix=error.problem.fix)


def _read(connection: socket.socket) -> bytes:
    size = int.from_bytes(_exactly(connection, LENGTH_BYTES), "big")
    if size > LARGEST_FRAME:
        raise OSError("too large")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        piece = connection.recv(min(2**20, count - len(found)))
        if not piece:
            raise OSError("cut off")
        found += piece
    return bytes(found)
