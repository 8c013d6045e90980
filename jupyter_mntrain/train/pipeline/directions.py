"""Directions: separate process groups for what one rank sends to another and what comes back.

NCCL starts the operations of a communicator one after another: a send stands behind a receive that
was posted before it, until that one's data has come. Gradients would so hold up the activations
that a stage sends ahead. In a group of its own, each direction has a communicator of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import schedules

private: Any = schedules

Direction = tuple[int, int]
"""Sender and receiver, ranks in the job."""


def create_directions(
    wanted: Iterable[Direction], device: torch.device, timeout_s: float
) -> dict[Direction, dist.ProcessGroup]:
    """Create a group for each direction, and return those of this rank. Collective.

    Args:
        wanted: of all ranks, in the same order on each.
        timeout_s: of each operation.
    """
    # Only what stages exchange goes through them. Never with a device_id: NCCL would then put all
    # that a rank sends and receives in one queue.
    backend, timeout = ("nccl" if device.type == "cuda" else "gloo"), timedelta(seconds=timeout_s)
    made = {one: dist.new_group([*one], timeout=timeout, backend=backend) for one in wanted}
    return {one: group for one, group in made.items() if dist.get_rank() in one}


def connect(directions: Mapping[Direction, dist.ProcessGroup], device: torch.device) -> None:
    """Send a number in each direction of this rank, in the order of the groups' creation."""
    mine = dist.get_rank()
    for (sender, receiver), group in directions.items():
        number = torch.ones(1, device=device)
        function, peer = (dist.isend, receiver) if mine == sender else (dist.irecv, sender)
        for work in post([dist.P2POp(function, number, peer, group)]):
            work.wait()
        number.item()  # waits for it


def directed(
    operations: Iterable[dist.P2POp], directions: Mapping[Direction, dist.ProcessGroup]
) -> list[dist.P2POp]:
    """Move sends and receives to the groups of their directions."""
    mine = dist.get_rank()
    return [
        dist.P2POp(
            one.op,
            one.tensor,
            one.peer,
            directions[(mine, one.peer) if one.op is dist.isend else (one.peer, mine)],
        )
        for one in operations
    ]


def post(operations: Sequence[dist.P2POp]) -> list[dist.Work]:
    """Start sends or receives as torch's schedules do, over the same communicators."""
    works: list[dist.Work] = private._batch_p2p([*operations])
    return works


class ReceiveStream:
    """A separate CUDA stream on which a rank posts its receives.

    A receive begins once the stream on which it was posted gets there. On that which computes, it
    would begin after what was computed before, and its sender and all behind it would wait. On a
    CPU there are no streams.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream: torch.cuda.Stream | None = (
            torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        )
        self._is_new_step = True

    def begin_step(self) -> None:
        """Make the step's first receive wait for the steps before, which used the same buffers."""
        self._is_new_step = True

    @contextmanager
    def posting(self) -> Iterator[None]:
        """Post everything started inside on this stream; another stream waits for it."""
        if self._stream is None:
            yield
            return
        if self._is_new_step:
            # torch allocates the buffers on the computing stream before the first receive.
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
            self._is_new_step = False
        with torch.cuda.stream(self._stream):
            yield
