"""A driver on macOS, as far as Linux can be one: without Linux' own names, /proc and /sys.

    python -m tests.cluster.macos

Reads command lines of ``mntrain`` as JSON, a list of words each, and prints what each said and its
exit code. JOB stands for the job that the first one has launched. Libraries are loaded before: they
have other code for macOS, which is not here.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import re
import resource
import signal
import socket
import sys
import time
from typing import Any

LINUX_ALONE: dict[Any, tuple[str, ...]] = {
    os: (
        *("posix_fadvise", "posix_fallocate", "sched_getaffinity", "sched_setaffinity"),
        *("memfd_create", "pidfd_open", "eventfd", "splice", "copy_file_range", "getrandom"),
        *("getxattr", "setxattr", "listxattr", "O_TMPFILE", "O_PATH", "O_DIRECT"),
        *("setresuid", "getresuid", "pipe2", "POSIX_FADV_DONTNEED", "preadv", "pwritev"),
    ),
    signal: (
        "SIGRTMIN",
        "SIGRTMAX",
        "SIGPWR",
        "SIGSTKFLT",
        "SIGPOLL",
        "sigtimedwait",
        "sigwaitinfo",
    ),
    socket: ("AF_NETLINK", "AF_PACKET", "SO_BINDTODEVICE", "SO_PEERCRED", "TCP_USER_TIMEOUT"),
    resource: ("prlimit", "RLIMIT_SIGPENDING", "RLIMIT_MSGQUEUE"),
    fcntl: ("F_SETPIPE_SZ", "F_ADD_SEALS"),
    time: ("CLOCK_BOOTTIME", "pthread_getcpuclockid"),
}
_LIBRARIES = (f"{os.sep}site-packages{os.sep}psutil", f"{os.sep}site-packages{os.sep}zeroconf")


def become_a_mac() -> None:
    import asyncio  # noqa: F401 - it takes what the system has, as on macOS
    import sysconfig
    import urllib.request  # noqa: F401 - it asks macOS for its proxies

    import matplotlib.font_manager  # noqa: F401 - it asks macOS for its fonts
    import platformdirs  # noqa: F401 - the folders of this test
    import psutil  # noqa: F401
    import zeroconf  # noqa: F401

    sysconfig.get_config_vars()  # of the Python that this is
    for module, names in LINUX_ALONE.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "darwin"
    sys.addaudithook(_refuse_linux)


def _refuse_linux(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("open", "os.listdir", "os.scandir") or not arguments:
        return
    path = arguments[0]
    if isinstance(path, str | bytes | os.PathLike):
        name = os.fsdecode(path)
        if name.startswith(("/proc", "/sys/")) and not _is_of_library():
            raise FileNotFoundError(2, "No such file or directory", name)


def _is_of_library() -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        if any(one in frame.f_code.co_filename for one in _LIBRARIES):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def main() -> None:
    become_a_mac()
    from jupyter_mntrain import cli

    said: list[dict[str, Any]] = []
    for line in json.load(sys.stdin):
        job = re.search(r"j-[0-9a-f]{8}", said[0]["output"]) if said else None
        words = [word.replace("JOB", job[0]) if job else word for word in line]
        print(words[0], file=sys.stderr, flush=True)  # what hangs is named by the last one
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = cli.main(words)
        said.append({"code": code, "output": output.getvalue(), "errors": errors.getvalue()})
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
