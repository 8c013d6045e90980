"""Rank hooks: ranks record how they end, and their stacks when the agent asks.

torchrun records how its ranks' processes end.

Standard library only, for any Python of at least 3.8: the rank's need not be the agent's. Files are
in ``$MNTRAIN_METRICS_DIR``, by rank.

* ``exit-R.json``: the exception that escaped, and that Python ended by itself. Without it, the rank
  was ended from outside, crashed, or called ``os._exit``.
* ``exits.ndjson``: exit codes of torchrun's children, by pid.
* ``crash-R.txt``: stacks at a crash (SIGSEGV, SIGABRT …), from :mod:`faulthandler`.
* ``stacks-R.txt``: stacks on :data:`STACK_SIGNAL`, even while the main thread waits in C++.
"""

from __future__ import annotations

import atexit
import builtins
import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from typing import Any, MutableMapping  # noqa: UP035 - Python 3.8

DIRECTORY_VARIABLE = "MNTRAIN_METRICS_DIR"
TIMEOUT_VARIABLE = "MNTRAIN_COLLECTIVE_TIMEOUT_S"
OWNER_VARIABLE = "MNTRAIN_RANK_PID"
"""Process that is the rank: those that it starts inherit its environment, and are not."""

STACK_SIGNAL = int(getattr(signal, "SIGRTMIN", 34)) + 10
"""Unused elsewhere as far as we know: glibc takes the first two real-time signals, schedulers take
SIGUSR1 and SIGUSR2."""

EXIT_FILE = "exit-{}.json"
EXITS_FILE = "exits.ndjson"
CRASH_FILE = "crash-{}.txt"
STACK_FILE = "stacks-{}.txt"

OBJECTS_OF_IMPORTS = 100_000
"""Made by torchrun before it looks for garbage: what importing torch makes stays, and looking at it
every 700 objects took a tenth of the 1.6 s of a processor (medians of 4)."""

MOST_MESSAGE = 2000
MOST_FRAMES = 30
MOST_THREADS = 3
MOST_CAUSES = 5


def install(environment: MutableMapping[str, str]) -> None:
    """Install the hooks if this process is a rank, or torchrun."""
    directory, rank = environment.get(DIRECTORY_VARIABLE, ""), environment.get("RANK", "")
    if not directory or OWNER_VARIABLE in environment:
        return
    if not (rank and "LOCAL_RANK" in environment):
        _note_exits(os.path.join(directory, EXITS_FILE))
        _hook_torchrun(directory)
        gc.set_threshold(OBJECTS_OF_IMPORTS, 50, 100)
        return
    environment[OWNER_VARIABLE] = str(os.getpid())
    _ExitRecord(os.path.join(directory, EXIT_FILE.format(rank))).install()
    faulthandler.enable(file=_opened(directory, CRASH_FILE.format(rank)), all_threads=True)
    answer_with_stacks(directory, rank)
    _hook_torch(directory, rank, environment.get(TIMEOUT_VARIABLE))


def _note_exits(path: str) -> None:
    """Record each child's exit code as this process learns it.

    :mod:`subprocess` takes :func:`os.waitpid` when it is imported, later than this.
    """
    wait = os.waitpid

    def waitpid(pid: int, options: int, /) -> tuple[int, int]:
        found = wait(pid, options)
        if found[0] > 0:
            _append(path, {"pid": found[0], "status": found[1], "monotonic_s": time.monotonic()})
        return found

    os.waitpid = waitpid


def _append(path: str, line: dict[str, Any]) -> None:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return  # a full disk
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    except OSError:
        return
    finally:
        os.close(file)


def answer_with_stacks(directory: str, rank: str) -> None:
    """Make this process append its stacks to its file on :data:`STACK_SIGNAL`."""
    try:
        file = _opened(directory, STACK_FILE.format(rank))
        faulthandler.register(STACK_SIGNAL, file=file, all_threads=True, chain=False)
    except (OSError, ValueError, RuntimeError):
        return  # a full disk, or an unsupported system: stacks are then unavailable


def _hook_torch(directory: str, rank: str, timeout: str | None) -> None:
    try:  # next to this file
        import mntrain_call_hooks  # type: ignore[import-not-found]
        import mntrain_timeout_hook  # type: ignore[import-not-found]
    except ImportError:
        return
    mntrain_call_hooks.answer_with_calls(directory, rank)
    if timeout:
        mntrain_timeout_hook.wait_at_most(timeout, mntrain_call_hooks.after_import)


def _hook_torchrun(directory: str) -> None:
    try:  # next to this file
        import mntrain_call_hooks
        import mntrain_grace_hook  # type: ignore[import-not-found]
    except ImportError:
        return
    mntrain_grace_hook.give_grace(directory, mntrain_call_hooks.after_import)


def _opened(directory: str, name: str) -> int:
    # Open for as long as the process lives: a signal handler must not open anything.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    return os.open(os.path.join(directory, name), flags, 0o600)


class _ExitRecord:
    """Records how this process ends, as soon as that is known."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._pid = os.getpid()
        self._escaped: dict[str, Any] | None = None
        self._in_threads: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def install(self) -> None:
        self._next_hook, sys.excepthook = sys.excepthook, self._on_exception
        self._next_thread_hook, threading.excepthook = threading.excepthook, self._on_thread
        self._write(is_over=False)
        # Registered first, so it runs last: after all that the script registers.
        atexit.register(self._on_exit)

    def _on_exception(self, kind: Any, error: BaseException, trace: Any) -> None:
        self._note(error)
        self._next_hook(kind, error, trace)

    def _on_thread(self, arguments: Any) -> None:
        if arguments.exc_value is not None and len(self._in_threads) < MOST_THREADS:
            self._in_threads.append(_told(arguments.exc_value))
            self._write(is_over=False)
        self._next_thread_hook(arguments)

    def _on_exit(self) -> None:
        # A script may have replaced the hook. Python itself keeps what escaped.
        error = getattr(sys, "last_value", None)
        if self._escaped is None and isinstance(error, BaseException):
            self._note(error)
        self._write(is_over=True)

    def _note(self, error: BaseException) -> None:
        if self._escaped is None:
            self._escaped = _told(error)
            self._write(is_over=False)

    def _write(self, *, is_over: bool) -> None:
        if os.getpid() != self._pid:  # a forked data loader is not the rank
            return
        content: dict[str, Any] = {
            "pid": self._pid,
            "monotonic_s": time.monotonic(),
            "is_over": is_over,
            "escaped": self._escaped,
            "in_threads": self._in_threads,
            "address_bytes": _address_limit(),
        }
        beside = f"{self._path}.{self._pid}.new"
        try:
            with self._lock:
                # Its user's alone, whatever the umask: messages quote data.
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                with open(os.open(beside, flags, 0o600), "w", encoding="utf-8") as file:
                    # Half a surrogate pair, of a file name that is not UTF-8, is no valid JSON.
                    text = json.dumps(content, ensure_ascii=False)
                    file.write(text.encode("utf-8", "replace").decode("utf-8"))
                os.replace(beside, self._path)
        except (OSError, ValueError):
            return  # a full disk


def _address_limit() -> int | None:
    """Return the limit of this process's address space in bytes; ``None`` if unlimited."""
    import resource  # of POSIX, and drivers import this module, too

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _told(error: BaseException) -> dict[str, Any]:
    """Return an exception as data; its text may fail or be huge.

    Of a group, return what it contains.
    """
    text = _text(error)
    group: Any = getattr(builtins, "BaseExceptionGroup", ())  # of Python 3.11
    while isinstance(error, group):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "kind": type(error).__name__,
        "module": type(error).__module__,
        "message": _message(error),
        "monotonic_s": time.monotonic(),
        "frames": [[one.filename, one.lineno, one.name] for one in frames[-MOST_FRAMES:]],
        "traceback": text,
        "causes": _causes(error),
    }


def _causes(error: BaseException) -> list[str]:
    """Return the causes of an exception, the nearest first: ``Type: message``."""
    lines: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(lines) < MOST_CAUSES:
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
        if cause is not None:
            lines.append(f"{type(cause).__name__}: {_message(cause)}")
    return lines


def _message(error: BaseException) -> str:
    try:
        return str(error)[:MOST_MESSAGE]
    except Exception:  # the script's own __str__
        return ""


def _text(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(
            type(error), error, error.__traceback__, limit=MOST_FRAMES
        )
        return "".join(lines)[-10 * MOST_MESSAGE :]
    except Exception:  # the script's own __str__ or __repr__
        return ""
