"""Records of a session: what is asked of its ranks, and what they answer.

Requests and events are sent as frames: the length in four bytes, then msgpack. A rank numbers its
events, so that whoever was cut off asks for those after the last one that arrived.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from jupyter_mntrain.model._record import Record

IDLE_S = 8 * 3600.0
"""A session without a cell for a night ends."""

LENGTH_BYTES = 4
LARGEST_FRAME = 64 * 2**20
"""Bytes of the largest frame: a variable is sent in several."""

End = Literal["ok", "error", "interrupted", "skipped"]


class Hello(Record, frozen=True, tag=True):
    """Ask how a rank is."""


class Run(Record, frozen=True, tag=True):
    """Run a cell.

    Args:
        cell: its number, counted by the driver; one that was run before is followed instead.
        code: its text.
        groups: how often the process group has been formed again; a rank that is behind does
            so first, with all others.
    """

    cell: int
    code: str
    groups: int = 0


class Follow(Record, frozen=True, tag=True):
    """Send the events of a cell again, and those to come.

    Args:
        after: number of the last event that has arrived.
    """

    cell: int
    after: int = 0


class Interrupt(Record, frozen=True, tag=True):
    """End the running cell with ``KeyboardInterrupt``.

    Args:
        breaks: also close the connections between ranks: a collective cannot be ended otherwise.
    """

    cell: int
    breaks: bool = False


class Where(Record, frozen=True, tag=True):
    """Ask which line of the running cell the rank is at."""


class Complete(Record, frozen=True, tag=True):
    """Ask for completions of code.

    Args:
        position: of the cursor, in characters.
    """

    code: str
    position: int


class Inspect(Record, frozen=True, tag=True):
    """Ask for the documentation of the name at the cursor; as :class:`Complete`."""

    code: str
    position: int
    detail: int = 0


class Answer(Record, frozen=True, tag=True):
    """Answer what a cell has asked with ``input``, or a debugger at its prompt."""

    text: str


class Pull(Record, frozen=True, tag=True):
    """Send the value of a variable."""

    name: str


class Push(Record, frozen=True, tag=True):
    """Set a variable.

    Args:
        name: an identifier.
        value: with its data.
    """

    name: str
    value: Value


class Value(Record, frozen=True):
    """A value as it is sent: never pickled.

    Args:
        kind: ``json``, or an array of torch or numpy.
        dtype, shape: of an array.
        data: JSON, or the array's bytes in C order, little endian.
    """

    kind: Literal["json", "torch", "numpy"]
    data: bytes
    dtype: str = ""
    shape: tuple[int, ...] = ()


Request = Hello | Run | Follow | Interrupt | Where | Complete | Inspect | Answer | Pull | Push


class SessionRequest(Record, frozen=True):
    """What a driver asks of ranks of one node.

    Args:
        attempt: that it means.
        ranks: of that node.
        after: number of the last event of a cell that has arrived, by rank: what follows is sent.
    """

    attempt: int
    ranks: tuple[int, ...]
    request: Request
    after: dict[int, int] = {}


class State(Record, frozen=True, tag=True):
    """How a rank is.

    Args:
        rank: in the session.
        cell: number of the newest cell; 0 before the first.
        is_running: whether that cell is running.
        groups: how often the process group has been formed again.
        is_broken: its connections were closed, so that the group must be formed again.
        failed_cell: number of the newest cell with an error, which ``%debug`` looks into; 0 if none
            has failed.
        device: of the rank, as torch names it.
    """

    rank: int
    cell: int = 0
    is_running: bool = False
    groups: int = 0
    is_broken: bool = False
    failed_cell: int = 0
    device: str = ""


class Text(Record, frozen=True, tag=True):
    """Text that a cell has written.

    Args:
        is_error: to stderr.
    """

    rank: int
    number: int
    text: str
    is_error: bool = False


class Shown(Record, frozen=True, tag=True):
    """What a cell shows, as Jupyter has it.

    Args:
        data: by MIME type; bytes are in base64, as Jupyter sends them.
        metadata: likewise.
        is_result: of the last expression.
        identity: of a display that is updated later; empty otherwise.
        is_update: takes the place of the display with this identity.
        clears: erases the cell's output so far, before what follows (``clear_output``).
    """

    rank: int
    number: int
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    is_result: bool = False
    identity: str = ""
    is_update: bool = False
    clears: bool = False


class Asked(Record, frozen=True, tag=True):
    """A cell waits for a line: of ``input``, or at a debugger's prompt."""

    rank: int
    number: int
    prompt: str


class Lost(Record, frozen=True, tag=True):
    """Output that was dropped, because there was more than a rank keeps.

    Args:
        size_bytes: about how much.
    """

    rank: int
    number: int
    size_bytes: int


class Done(Record, frozen=True, tag=True):
    """A cell has ended on a rank.

    Args:
        error: class of its exception; empty without.
        message: of the exception.
        traceback: in lines, colored for terminals.
        line: of the cell, that was running when it failed.
        is_broken: as in :class:`State`.
    """

    rank: int
    number: int
    end: End
    took_s: float
    error: str = ""
    message: str = ""
    traceback: tuple[str, ...] = ()
    line: int | None = None
    is_broken: bool = False


class At(Record, frozen=True, tag=True):
    """Where a rank is.

    Args:
        line: of the cell; ``None`` between cells.
        source: that line.
        call: the function of ``torch.distributed`` that it is in; empty if in none.
        stack: of its main thread, innermost last.
    """

    rank: int
    line: int | None = None
    source: str = ""
    call: str = ""
    stack: str = ""


class Completions(Record, frozen=True, tag=True):
    """Completions, each for the text from ``begin`` to ``end``, in characters."""

    rank: int
    matches: tuple[str, ...]
    begin: int
    end: int


class Described(Record, frozen=True, tag=True):
    """What is known of a name, by MIME type; empty if nothing is."""

    rank: int
    data: dict[str, str] = {}


class Pulled(Record, frozen=True, tag=True):
    """The value of a variable, or why it cannot be sent."""

    rank: int
    value: Value | None = None
    cause: str = ""
    fix: str = ""


class Silent(Record, frozen=True, tag=True):
    """A rank does not answer: said by its node.

    Args:
        cause: why, as far as the node knows.
        has_ended: its process has.
    """

    rank: int
    cause: str
    has_ended: bool = False


Event = State | Text | Shown | Asked | Lost | Done | At | Completions | Described | Pulled | Silent


def frame_ends(data: bytes | bytearray) -> Iterator[int]:
    """Yield where each whole frame at the begin of ``data`` ends.

    Raises:
        ValueError: what follows is no frame.
    """
    begin = 0
    while len(data) >= begin + LENGTH_BYTES:
        size = int.from_bytes(data[begin : begin + LENGTH_BYTES], "big")
        if size > LARGEST_FRAME:
            raise ValueError(f"a frame of {size} bytes")
        begin += LENGTH_BYTES + size
        if len(data) < begin:
            return
        yield begin


def frames(data: bytearray) -> list[Event]:
    """Take the whole frames off the begin of ``data``, and return their events.

    Raises:
        ValueError: what follows is no frame.
    """
    found: list[Event] = []
    begin = 0
    for end in frame_ends(data):
        found.append(event_decoder.decode(bytes(data[begin + LENGTH_BYTES : end])))
        begin = end
    del data[:begin]
    return found


_encoder = msgspec.msgpack.Encoder()
request_decoder = msgspec.msgpack.Decoder(Request)
event_decoder = msgspec.msgpack.Decoder(Event)


def frame(record: Request | Event) -> bytes:
    """Return a record with its length before it.

    Raises:
        ValueError: it is larger than :data:`LARGEST_FRAME`.
    """
    data = _encoder.encode(record)
    if len(data) > LARGEST_FRAME:
        raise ValueError(f"{len(data)} bytes are more than {LARGEST_FRAME}")
    return len(data).to_bytes(LENGTH_BYTES, "big") + data
