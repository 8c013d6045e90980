"""Calls: asks a rank for its latest collectives, and reads torch's flight recorder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.attempt.processes import metrics_of
from jupyter_mntrain.model.failure.calls import Call, GroupCalls
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.telemetry.startup.mntrain_call_hooks import ASK_FILE, CALLS_FILE

MOST_BYTES = 8 * 2**20
"""Maximum size of a rank's flight recorder that is read: 2000 calls are 1.2 MB."""
MOST_CALLS = 20
"""Calls per process group, and groups, that are stored per rank: every record of the job has them.
Ranks that wait for each other are a few calls apart."""
MOST_GROUPS = 4
MOST_WORD = 60

_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
}
"""torch's names in Python, from its recorder's, which are those of C++."""


class CallsRequest:
    """A request for one rank's latest collectives, and its answer.

    Args:
        directory: the attempt's.
    """

    def __init__(self, directory: Path, rank: Rank) -> None:
        metrics = metrics_of(directory)
        self._path = metrics / CALLS_FILE.format(rank)
        self._before = _identity(self._path)
        self._will_answer = _ask(metrics / ASK_FILE.format(rank))

    @property
    def is_answered(self) -> bool:
        """Return whether the answer is complete, or none will come."""
        return not self._will_answer or _identity(self._path) != self._before

    def result(self) -> tuple[GroupCalls, ...]:
        """Return the calls; empty if there was no answer."""
        if not self._will_answer or _identity(self._path) == self._before:
            return ()
        try:
            with self._path.open("rb") as file:
                return read_calls(file.read(MOST_BYTES))
        except OSError:
            return ()


class _Entry(msgspec.Struct):
    """A call as torch's recorder writes it, versions 2.x (``FlightRecorder.hpp``)."""

    profiling_name: str
    collective_seq_id: int
    process_group: tuple[str, str]
    is_p2p: bool = False
    state: str = ""
    retired: bool = False
    input_sizes: list[list[int]] = []
    input_dtypes: list[str] = []
    output_sizes: list[list[int]] = []
    output_dtypes: list[str] = []


class _Dump(msgspec.Struct):
    entries: list[_Entry] = []


def read_calls(content: bytes) -> tuple[GroupCalls, ...]:
    """Read what a rank's hooks wrote: the groups used last, with the last calls of each."""
    try:
        dumps = msgspec.json.decode(content, type=list[_Dump])
    except msgspec.MsgspecError:
        return ()
    found: dict[tuple[str, str], dict[int, Call]] = {}
    for entry in (entry for dump in dumps for entry in dump.entries if not entry.is_p2p):
        backend, _, name = entry.profiling_name.rpartition(":")
        key = (entry.process_group[0][:MOST_WORD], backend[:MOST_WORD])
        # What torch sends as one call has one number: the first names it. Used last, it is last.
        calls = found.pop(key, {})
        calls.setdefault(entry.collective_seq_id, _call(entry, name))
        found[key] = calls
    return tuple(
        GroupCalls(group=group, backend=backend, calls=tuple(calls.values())[-MOST_CALLS:])
        for (group, backend), calls in list(found.items())[-MOST_GROUPS:]
    )


def _call(entry: _Entry, name: str) -> Call:
    return Call(
        seq=entry.collective_seq_id,
        name=name[:MOST_WORD],
        tensors=_tensors(entry, name)[:MOST_WORD],
        is_over=entry.retired or entry.state == "completed",
    )


def _tensors(entry: _Entry, name: str) -> str:
    """Describe what must be the same on every rank: in all_to_all sizes may differ, in a scatter
    only the source has inputs, in a gather only the destination has outputs.
    """
    lower = name.lower()
    if "all_to_all" in lower or "alltoall" in lower or "coalesced" in lower:
        return ""
    is_scatter = lower == "scatter"
    sizes = entry.output_sizes if is_scatter else entry.input_sizes
    dtypes = entry.output_dtypes if is_scatter else entry.input_dtypes
    return ", ".join(_told(sizes, dtypes))


def _told(sizes: list[list[int]], dtypes: list[str]) -> Iterable[str]:
    for number, size in enumerate(sizes):
        dtype = dtypes[number] if number < len(dtypes) else ""
        yield f"{'x'.join(map(str, size)) or 'scalar'} {_DTYPES.get(dtype, dtype)}".rstrip()


def _ask(fifo: Path) -> bool:
    """Send a request to the hook's pipe; return whether a process reads it."""
    with suppress(OSError):  # no such hook, or its process is gone
        pipe = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return os.write(pipe, b"?") == 1
        finally:
            os.close(pipe)
    return False


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_ino, found.st_mtime_ns
