"""Server: forks processes for those that ask, from one that has imported torch and the trainer.

Each has a pid, a session, an environment, files and a command line of its own, as ``/proc`` shows
them, too, in the namespaces of who asks. Only its parent is another. Where nobody answers, or who
asks is another user, it is started as usual.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import io
import json
import os
import re
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from jupyter_mntrain.model.environment import METRICS_VARIABLE
from jupyter_mntrain.session.forking.client import ENTERED, Process, ask, identity
from jupyter_mntrain.telemetry.session_socket import short_path

TRAINER = "jupyter_mntrain.train"
"""What begins so."""
TORCHRUN = "torch.distributed.run"
IMPORTS = (
    TORCHRUN,
    "jupyter_mntrain.train.loop",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
)
"""What is imported ahead; what is not installed, or does not work, is left to who needs it."""
EXITS_FILE = "exits.ndjson"
"""As in ``mntrain_rank_hooks.py``, whose package takes longer to import than all of this."""
PR_CAPBSET_DROP = 24  # linux/prctl.h
CAPABILITY_VERSION = 0x20080522  # linux/capability.h, the third
ROOM = 32_768
"""Bytes for the environment and the command line of a process."""
AHEAD = "--ahead"
_GAINS = re.compile(rb"torch|transformers|accelerate|lightning")
"""What a script names that would import for seconds what is imported here."""


def start(
    address: Path,
    environment: Mapping[str, str],
    *,
    is_ahead: bool = False,
    log: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a server, which ends with its standard input.

    Args:
        address: of its socket, in a folder of this user's alone.
        is_ahead: whether to import everything before anybody asks.
        log: descriptor of a file for what it prints; default: where this process does.
    """
    words = [*([AHEAD] if is_ahead else []), "-" * ROOM]
    # is_available() of torch must not initialize CUDA, which no forked process could use then.
    own = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "PADDING": "-" * ROOM}
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(address), *words],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env={**environment, **own},
        start_new_session=True,
    )


class Asked(NamedTuple):
    """A process that is wanted, with what it would have of its parent."""

    entry: list[str]
    environment: dict[str, str]
    identity: list[str]
    ends_with_asker: bool
    directory: str
    cores: list[int]
    niceness: int
    limits: list[tuple[int, int, int]]
    umask: int


def _serve(address: str, *, is_ahead: bool) -> Asked:
    """Fork a process for each connection; returns in it.

    Args:
        is_ahead: whether to import everything first; the socket is there once that is done.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if is_ahead:
        _import_gently()
    is_imported = is_ahead
    listening = socket.socket(socket.AF_UNIX)
    with short_path(Path(address)) as short:
        listening.bind(short)
    listening.listen(64)
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in ready:  # who began it has ended
            sys.exit()
        connection, _ = listening.accept()
        size, files, _, _ = socket.recv_fds(connection, 4, 2 + len(ENTERED))
        asked = Asked(**json.loads(_whole(connection, int.from_bytes(size))))
        if not is_imported:
            _import()
            is_imported = True
        if not os.fork():
            listening.close()
            try:
                _enter_watched(asked, connection, files[:2], files[2:])
                _take_off(asked.identity)
                is_alike = asked.identity == identity() and _is_linked_alike(asked.environment)
            except OSError:  # only root may
                is_alike = False
            if not is_alike:
                connection.sendall(bytes(4))
                os._exit(1)
            _become(asked, files[:2])
            connection.sendall(os.getpid().to_bytes(4))
            connection.close()
            if TORCHRUN not in asked.entry[:2]:
                _configure_torch(asked)
            return asked
        connection.close()
        for one in files:
            os.close(one)


def _whole(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (more := connection.recv(size - len(found))):
        found += more
    return found


def _is_linked_alike(environment: Mapping[str, str]) -> bool:
    """Whether the linker would find the same libraries: it reads variables at a program's begin."""
    names = {one for one in (*environment, *os.environ) if one.startswith("LD_")}
    return all(environment.get(one) == os.environ.get(one) for one in names)


def _hides(script: str) -> bool:
    """Whether a folder holds a module of a name that is imported here already."""
    with suppress(OSError):
        return any(one.stem in sys.modules for one in Path(script).parent.glob("*"))
    return True


def _import_gently() -> None:
    """Import everything while others leave a core: cells that run meanwhile go first."""

    def work() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)  # of this thread alone
        _import()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def _import() -> None:
    sys.modules["torchao"] = None  # type: ignore[assignment]  # as the trainer does
    for name in IMPORTS:
        with suppress(Exception):
            importlib.import_module(name)
    del sys.modules["torchao"]
    gc.collect()
    gc.freeze()  # or each process copies the pages of all objects when it looks for garbage


def _enter_watched(
    asked: Asked, connection: socket.socket, outputs: Iterable[int], entered: Iterable[int]
) -> None:
    """Fork into namespaces; the parent waits for the end, tells how it was, and ends.

    Raises:
        OSError: this process may not enter one.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    files = dict(zip(ENTERED, entered, strict=True))
    for name in ("user", "pid"):
        _enter(files.pop(name))
    if pid := os.fork():
        # It belongs to the attempt of what it waits for, and is none of its ranks.
        _show([f"{METRICS_VARIABLE}={asked.environment.get(METRICS_VARIABLE, '')}"], field=50)
        for one in outputs:
            os.close(one)
        if asked.ends_with_asker:
            ended = os.pidfd_open(pid)
            watched: list[Any] = [ended, connection]
            if ended not in select.select(watched, [], [])[0]:
                os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        with suppress(OSError):
            connection.sendall(status.to_bytes(4))
        os._exit(0)
    for one in files.values():
        _enter(one)


def _enter(namespace: int) -> None:
    """Enter one, unless this process is there."""
    if os.fstat(namespace).st_ino not in {
        Path(f"/proc/self/ns/{one}").stat().st_ino for one in (*ENTERED, "pid_for_children")
    }:
        _call("setns", namespace, 0)
    os.close(namespace)


def _take_off(theirs: list[str]) -> None:
    """Have no capability that who asks has not."""
    wanted, own = (
        {line.split()[0]: int(line.split()[1], 16) for line in one if line.startswith("Cap")}
        for one in (theirs, identity())
    )
    if wanted == own:
        return
    for number in range(own["CapBnd:"].bit_length()):
        if (own["CapBnd:"] & ~wanted["CapBnd:"]) >> number & 1:
            _call("prctl", PR_CAPBSET_DROP, number, 0, 0, 0)
    low, high = wanted["CapEff:"] & 0xFFFFFFFF, wanted["CapEff:"] >> 32
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0))


def _call(name: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        raise OSError(ctypes.get_errno(), name)


def _become(asked: Asked, outputs: Iterable[int]) -> None:
    """What a new program has."""
    os.setsid()
    os.umask(asked.umask)
    os.sched_setaffinity(0, asked.cores)
    os.nice(asked.niceness - os.nice(0))
    for one, soft, hard in asked.limits:
        resource.setrlimit(one, (soft, hard))
    files = [os.open(os.devnull, os.O_RDONLY), *outputs]
    for number, one in enumerate(files):
        os.dup2(one, number)
        os.close(one)
    os.chdir(asked.directory)
    _show([f"{key}={value}" for key, value in asked.environment.items()], field=50)
    _show([sys.executable, "-u", *asked.entry], field=48)
    os.environ.clear()
    os.environ.update(asked.environment)
    time.tzset()
    tempfile.tempdir = None  # of the parent's TMPDIR
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(open(number, "wb", 0, closefd=False), errors=errors, write_through=True)  # noqa: SIM115
        for number, errors in ((1, "strict"), (2, "backslashreplace"))
    )
    sys.orig_argv[:] = [sys.executable, "-u", *asked.entry]
    sys.argv = asked.entry[asked.entry[0] == "-m" :]
    # What Python looks at when it begins, where the hooks of ranks are.
    given = filter(None, asked.environment.get("PYTHONPATH", "").split(os.pathsep))
    folder = (
        asked.directory if asked.entry[0] == "-m" else str(Path(asked.entry[0]).parent.resolve())
    )
    sys.path[:1] = [folder, *given]
    sys.modules.pop("sitecustomize", None)
    with suppress(ModuleNotFoundError):
        importlib.import_module("sitecustomize")


def _configure_torch(asked: Asked) -> None:
    """Have torch read again what it has read of the environment when it was imported, and numpy
    draw other numbers than the next process.
    """
    import torch

    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # Python's own generator does by itself
    threads = asked.environment.get("OMP_NUM_THREADS", "").partition(",")[0]
    torch.set_num_threads((threads.isdecimal() and int(threads)) or len(asked.cores))
    torch.distributed.set_debug_level_from_env()  # type: ignore[attr-defined]
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    setting = next((asked.environment[one] for one in names if asked.environment.get(one)), "")
    may_use_gpus = bool(asked.environment.get("CUDA_VISIBLE_DEVICES"))
    if not may_use_gpus or not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        return
    try:
        usable = torch._C._cuda_getDeviceCount()  # noqa: SLF001 - the public one does not ask CUDA
        if setting:
            torch._C._accelerator_setAllocatorSettings(setting)  # noqa: SLF001 - there is no other
    except (RuntimeError, AttributeError):
        usable = 0
    if not usable:  # what was imported has used CUDA, which no forked process can then
        words = [sys.executable, "-u", *asked.entry]
        os.execve(sys.executable, words, asked.environment)  # noqa: S606 - as torchrun starts it


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


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class Rank(Process):
    """One of torchrun's: its end is written down as torchrun's hook does, which sees only
    processes that torchrun has forked.
    """

    def poll(self) -> int | None:
        was = self.returncode
        if super().poll() is not None and was is None:
            line = {"pid": self.pid, "status": self.status, "monotonic_s": time.monotonic()}
            path = Path(os.environ[METRICS_VARIABLE]) / EXITS_FILE
            with suppress(OSError), open(path, "a", opener=_open_private) as file:
                file.write(json.dumps(line) + "\n")
        return self.returncode


def _torchrun() -> None:
    """Run it, with ranks that are forked, too, where they are Python's."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    handler: Any = subprocess_handler.SubprocessHandler
    start = handler._popen  # noqa: SLF001 - torchrun has no hook for that

    def begin(self: Any, words: tuple[str, ...], environment: dict[str, str]) -> Any:
        files = [one.fileno() if one else n for n, one in ((1, self._stdout), (2, self._stderr))]
        if words[:2] == (sys.executable, "-u") and _may_fork(words[2:]):
            outputs = (files[0], files[1])
            if asked := ask(words[2:], environment, outputs, ends_with_asker=False):
                return Rank(asked.connection, asked.pid)
        return start(self, words, environment)

    handler._popen = begin  # noqa: SLF001
    run.main()


def _may_fork(entry: tuple[str, ...]) -> bool:
    """Whether what a rank runs finds the modules that it would import by itself."""
    if entry[0] == "-m":
        name = entry[1]
        return name.startswith(TRAINER) or name.partition(".")[0] not in sys.modules
    with suppress(OSError):
        return bool(_GAINS.search(Path(entry[0]).read_bytes())) and not _hides(entry[0])
    return False


def _script(path: str) -> None:
    """Run it as Python does."""
    main = ModuleType("__main__")
    main.__file__ = path
    sys.modules["__main__"] = main
    exec(compile(Path(path).read_bytes(), path, "exec"), vars(main))  # noqa: S102 - what it is for


def _run(entry: list[str]) -> int:
    """Run it, and return the exit code."""
    try:
        match entry:
            case ["-m", name, *_] if name == TORCHRUN:
                _torchrun()
            case ["-m", name, *_]:
                runpy.run_module(name, run_name="__main__", alter_sys=True)
            case [script, *_]:
                _script(script)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)  # noqa: T201 - as Python does
        return 1
    except Exception as error:  # noqa: BLE001  # which Python would tell
        own = error.__traceback__
        while own and own.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
            own = own.tb_next
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, own
        error.__traceback__ = own
        sys.excepthook(type(error), error, own)
        return 1
    return 0


def main(address: str, *, is_ahead: bool) -> None:
    entry = _serve(address, is_ahead=is_ahead).entry
    code = _run(entry)
    # As Python ends, except for taking all modules of torch apart, for which it needs a second.
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    for one in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            one.flush()
    # What libraries have to do at the end may be what a script is about; torch's takes 0.1 s.
    (os._exit if entry[0] == "-m" else ctypes.CDLL(None).exit)(code)


if __name__ == "__main__":
    main(sys.argv[1], is_ahead=AHEAD in sys.argv)
