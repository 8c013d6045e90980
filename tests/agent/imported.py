"""Imported: ranks of the trainer that are forked from a process which has imported it.

Importing takes a rank 4 s of a processor, many times what a test of agents trains. The light
torchrun asks for its ranks here; they are processes with a pid, a session, an environment, files
and a command line of their own, as ``/proc`` shows them, too, in the namespaces of who asks. Only
their parent is another. Where nobody answers, or who asks is another user, torchrun starts
them itself. ``MNTRAIN_ALL_CASES`` does without, as it does without the light torchrun.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import io
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from jupyter_mntrain.model.environment import METRICS_VARIABLE

VARIABLE = "MNTRAIN_TESTS_IMPORTED"
"""The address of the socket."""
PROGRAMS = "jupyter_mntrain.train"
"""What begins so."""
IMPORTS = (
    "jupyter_mntrain.train.loop",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
)
EXITS_FILE = "exits.ndjson"
"""As in ``mntrain_rank_hooks.py``, whose package takes longer to import than all of this."""
ROOM = 32_768
"""Bytes for the environment and the command line of a rank."""
LIMITS = [value for name, value in vars(resource).items() if name.startswith("RLIMIT_")]
ENTERED = ("net", "uts", "pid", "mnt")
"""Namespaces of simulated hosts, in the order in which a rank enters them: ``/proc`` is the last
one's. ``pid`` is entered by its children."""


class Rank:
    """A rank that was forked, as ``subprocess.Popen`` has it: poll, returncode, stdout."""

    def __init__(self, connection: socket.socket, pid: int, stdout: io.TextIOBase) -> None:
        self.pid, self.stdout = pid, stdout
        self.returncode: int | None = None
        self._connection = connection
        connection.settimeout(0)

    def poll(self) -> int | None:
        if self.returncode is None:
            with suppress(BlockingIOError):
                told = self._connection.recv(4)
                status = int.from_bytes(told) if told else int(signal.SIGKILL)
                self.returncode = os.waitstatus_to_exitcode(status)
                # As the hook of torchrun does, which sees only processes that it has forked.
                line = {"pid": self.pid, "status": status, "monotonic_s": time.monotonic()}
                path = Path(os.environ[METRICS_VARIABLE]) / EXITS_FILE
                with suppress(OSError), path.open("a") as file:
                    file.write(json.dumps(line) + "\n")
        return self.returncode

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def begin(entry: Sequence[str], environment: dict[str, str]) -> Rank | None:
    """Start a rank, or ``None`` where it has to import by itself."""
    address = environment.get(VARIABLE)
    if not address or entry[0] != "-m" or not entry[1].startswith(PROGRAMS):
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
    except OSError:
        return None
    ours, theirs = os.pipe()
    inherited = Inherited(
        directory=str(Path.cwd()),
        cores=[*os.sched_getaffinity(0)],
        niceness=os.nice(0),
        limits=[(one, *resource.getrlimit(one)) for one in LIMITS],
    )
    asked = json.dumps([list(entry), environment, _identity(), inherited]).encode()
    entered = [os.open(f"/proc/self/ns/{one}", os.O_RDONLY) for one in ENTERED]
    socket.send_fds(connection, [len(asked).to_bytes(4)], [theirs, *entered])
    for one in (theirs, *entered):
        os.close(one)
    connection.sendall(asked)
    told = connection.recv(4)
    if not told:
        connection.close()
        os.close(ours)
        return None
    return Rank(
        connection, int.from_bytes(told), os.fdopen(ours, encoding="utf-8", errors="replace")
    )


def serve_once() -> None:
    """Have such a process for this one and all that it starts, which ends with it."""
    if VARIABLE in os.environ:
        return
    address = str(Path(tempfile.mkdtemp(prefix="mntrain-ranks-")) / "socket")
    served = subprocess.Popen(
        [sys.executable, "-m", "tests.agent.imported", address, "-" * ROOM],
        stdin=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PADDING": "-" * ROOM},
        start_new_session=True,
    )
    os.environ[VARIABLE] = address
    atexit.register(_end, served, Path(address))


def _end(served: subprocess.Popen[bytes], address: Path) -> None:
    served.kill()
    served.wait()
    address.unlink(missing_ok=True)
    address.parent.rmdir()


def _identity() -> list[str]:
    """What nobody changes for a rank: who it is, what it may do, and in which groups it counts."""
    status = Path("/proc/self/status").read_text().splitlines()
    who = [line for line in status if line.startswith(("Uid", "Gid", "Groups", "CapEff", "CapBnd"))]
    spaces = [str(Path(f"/proc/self/ns/{one}").readlink()) for one in ("cgroup", "ipc", "user")]
    return [*who, *spaces, Path("/proc/self/cgroup").read_text()]


class Inherited(NamedTuple):
    """What a process has of its parent, besides its environment."""

    directory: str
    cores: list[int]
    niceness: int
    limits: list[tuple[int, int, int]]


class Asked(NamedTuple):
    entry: list[str]
    environment: dict[str, str]
    identity: list[str]
    inherited: Inherited


def _serve(address: str) -> Asked:
    """Fork a rank for each connection; returns in a rank."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    is_imported = False
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in ready:  # who began it has ended
            sys.exit()
        connection, _ = listening.accept()
        size, (output, *entered), _, _ = socket.recv_fds(connection, 4, 1 + len(ENTERED))
        entry, environment, theirs, inherited = json.loads(_whole(connection, int.from_bytes(size)))
        asked = Asked(entry, environment, theirs, Inherited(*inherited))
        if asked.identity == _identity():
            if not is_imported:
                _import()
                is_imported = True
            if not os.fork():
                listening.close()
                _watch_a_rank(connection, output, entered)
                _become(asked, output)
                connection.sendall(os.getpid().to_bytes(4))
                connection.close()
                return asked
        connection.close()
        for one in (output, *entered):
            os.close(one)


def _whole(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (more := connection.recv(size - len(found))):
        found += more
    return found


def _import() -> None:
    sys.modules["torchao"] = None  # type: ignore[assignment]  # as the trainer does
    for name in IMPORTS:
        importlib.import_module(name)
    del sys.modules["torchao"]


def _watch_a_rank(connection: socket.socket, output: int, entered: list[int]) -> None:
    """Fork it into namespaces; its parent waits for its end, tells how it ended, and ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    files = dict(zip(ENTERED, entered, strict=True))
    _enter(files.pop("pid"))
    if pid := os.fork():
        os.close(output)
        _, status = os.waitpid(pid, 0)
        with suppress(OSError):
            connection.sendall(status.to_bytes(4))
        os._exit(0)
    for one in files.values():
        _enter(one)


def _enter(namespace: int) -> None:
    """Enter one, unless this process is there: only root may."""
    if os.fstat(namespace).st_ino not in {
        Path(f"/proc/self/ns/{one}").stat().st_ino for one in (*ENTERED, "pid_for_children")
    }:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace, 0):
            raise OSError(ctypes.get_errno(), "setns")
    os.close(namespace)


def _become(asked: Asked, output: int) -> None:
    """What a new program has."""
    inherited = asked.inherited
    os.setsid()
    os.sched_setaffinity(0, inherited.cores)
    os.nice(inherited.niceness - os.nice(0))
    for one, soft, hard in inherited.limits:
        resource.setrlimit(one, (soft, hard))
    nothing = os.open(os.devnull, os.O_RDONLY)
    for ours, number in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(ours, number)
    os.close(nothing)
    os.close(output)
    os.chdir(inherited.directory)
    _show([f"{key}={value}" for key, value in asked.environment.items()], field=50)
    _show([sys.executable, "-u", *asked.entry], field=48)
    os.environ.clear()
    os.environ.update(asked.environment)
    sys.stdout = io.TextIOWrapper(open(1, "wb", 0, closefd=False), write_through=True)  # noqa: SIM115
    sys.argv = asked.entry[1:]
    # What Python looks at when it begins, where the hooks of ranks are.
    given = filter(None, asked.environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:1] = [inherited.directory, *given]
    sys.modules.pop("sitecustomize", None)
    with suppress(ModuleNotFoundError):
        importlib.import_module("sitecustomize")


def _show(words: list[str], field: int) -> None:
    """Write over the strings that this process began with, which ``/proc`` shows.

    Args:
        field: of ``/proc/self/stat``: the address of their first byte; the next has the end.
    """
    fields = Path("/proc/self/stat").read_bytes().rpartition(b") ")[2].split()
    first, end = (int(one) for one in fields[field - 3 : field - 1])
    text = "\0".join(words).encode() + b"\0"
    if len(text) > end - first:
        raise OSError(f"{len(text)} bytes do not fit: more ROOM is needed")
    ctypes.memmove(first, text.ljust(end - first, b"\0"), end - first)


def main(address: str) -> None:
    asked = _serve(address)
    runpy.run_module(asked.entry[1], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1])
