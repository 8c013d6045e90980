"""Terminals: the command line on a host, at once, since its parent has already imported it.

Each command is a process of its own there; only the second of importing is saved.

``python -m tests.netlab.terminal SOCKET``: a server that is left alone until its host has no power.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.netlab.commands import LabError
from tests.netlab.host import Host
from tests.waiting import until

MOST_BYTES = 1 << 20


def type_on(
    host: Host,
    words: Sequence[str],
    *,
    timeout_s: float = 60.0,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """As ``host.run(["mntrain", *words])``, with the configuration that the host had when it was
    first typed on.

    Args:
        environment: more of it; no settings, which are read before.
        directory: where it is typed.
    """
    with (
        socket.socket(socket.AF_UNIX) as asked,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as errors,
    ):
        _connect(asked, host)
        asked.settimeout(timeout_s)
        place = str(directory or Path.cwd())
        request = json.dumps([place, dict(environment or {}), *words]).encode()
        socket.send_fds(asked, [request], [out.fileno(), errors.fileno()])
        try:
            code = asked.recv(16)
        except TimeoutError:
            raise subprocess.TimeoutExpired(["mntrain", *words], timeout_s) from None
        said = []
        for file in (out, errors):
            file.seek(0)
            said.append(file.read().decode())
        return subprocess.CompletedProcess(["mntrain", *words], int(code or -9), *said)


def _connect(asked: socket.socket, host: Host) -> None:
    place = host.home / "terminal"
    with suppress(OSError):
        asked.connect(str(place))
        return
    place.unlink(missing_ok=True)
    with (host.home / "terminal.log").open("ab") as log:
        server = host.popen(
            [sys.executable, "-m", "tests.netlab.terminal", str(place)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    until(lambda: place.exists() or server.poll() is not None, "a terminal")
    if server.poll() is not None:
        raise LabError(f"no terminal: {(host.home / 'terminal.log').read_text()}")
    asked.connect(str(place))


def serve(place: str) -> None:
    from jupyter_mntrain import cli

    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{place}.new")
        server.listen()
        Path(f"{place}.new").rename(place)
        while True:
            asked, _ = server.accept()
            with asked:
                if os.fork() == 0:
                    server.close()
                    _run(asked, cli.main)


def _run(asked: socket.socket, main: Callable[[list[str]], int]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, given, *_ = socket.recv_fds(asked, MOST_BYTES, 2)
    directory, environment, *words = json.loads(request)
    os.setsid()
    os.chdir(directory)
    os.environ.update(environment)
    for number, handle in enumerate(given, 1):
        os.dup2(handle, number)
        os.close(handle)
    code = 70
    try:
        code = main(words)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        asked.sendall(str(code).encode())
        os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
