"""Call hooks: a rank writes its last torch.distributed calls to a file when its agent asks.

torch keeps them: its flight recorder (``TORCH_FR_BUFFER_SIZE``) counts the collectives of every
process group, for NCCL and, in newer versions, for Gloo. A thread waits until something is written
into a FIFO, so it costs nothing before, and answers while the main thread waits in C++.

Standard library only, for any Python of at least 3.8. Files are in ``$MNTRAIN_METRICS_DIR``, by
rank:

* ``calls-R.ask``: the FIFO.
* ``calls-R.json``: a list with what each of torch's recorders says.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Callable, Iterator  # noqa: UP035 - Python 3.8

ASK_FILE = "calls-{}.ask"
CALLS_FILE = "calls-{}.json"

_MODULE = "torch.distributed.distributed_c10d"
_RECORDERS = "torch._C._distributed_c10d"
_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""Gloo's and NCCL's, in JSON: without stacks, which would need the lock of the interpreter."""


def answer_with_calls(directory: str, rank: str) -> None:
    """Let this process write its calls when asked, once it has imported torch.distributed.

    Not before: a process without other threads may do what one with threads may not, such as fork.
    """

    def start() -> None:
        answer = _Answer(directory, rank)
        threading.Thread(target=answer.run, name="mntrain-calls", daemon=True).start()

    after_import(start)


def after_import(then: Callable[[], None], module: str = _MODULE) -> None:
    """Run a function once a module has been imported; by default, torch.distributed."""
    if module in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _AfterImport(then, module))


class _AfterImport:
    """Runs a function once after a module has been imported."""

    def __init__(self, then: Callable[[], None], module: str) -> None:
        self._then, self._module = then, module

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find the module as Python would, and wrap its loader."""
        if name != self._module or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        try:
            for finder in sys.meta_path:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    self._wrap(spec.loader)
                    return spec
        except Exception:  # what only explains a failure must never cause one
            return None
        return None

    def _wrap(self, loader: Any) -> None:
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            try:
                self._then()
            except Exception:  # no more threads, for example
                return

        loader.exec_module = exec_module


class _Answer:
    """Writes the calls each time the agent asks."""

    def __init__(self, directory: str, rank: str) -> None:
        self._asked = os.path.join(directory, ASK_FILE.format(rank))
        self._path = os.path.join(directory, CALLS_FILE.format(rank))

    def run(self) -> None:
        try:
            if not os.path.exists(self._asked):
                os.mkfifo(self._asked, 0o600)
            # Also for writing: otherwise reading ends with the first one that asks.
            asked = os.open(self._asked, os.O_RDWR | os.O_CLOEXEC)
            while os.read(asked, 4096):
                self._write()
        except Exception:  # a full disk, a file system without FIFOs: calls are then unavailable
            return

    def _write(self) -> None:
        content = b"[" + b",".join(_dumps()) + b"]"
        beside = self._path + ".new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with open(os.open(beside, flags, 0o600), "wb") as file:
            file.write(content)
        os.replace(beside, self._path)


def _dumps() -> Iterator[bytes]:
    module = sys.modules.get(_RECORDERS)
    for name in _DUMPS:
        dump = getattr(module, name, None)
        told = _called(dump) if dump is not None else None
        if told:
            yield told.encode() if isinstance(told, str) else told


def _called(dump: Callable[[], Any]) -> Any:
    try:
        return dump()
    except Exception:  # no group of that backend, or another signature
        return None
