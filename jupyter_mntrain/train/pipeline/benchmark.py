"""Benchmark: times messages like those that training sends.

``python -m jupyter_mntrain.train.pipeline.benchmark``, under torchrun, with the process group that
training has. Rank 0 prints each result as a line.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles

import psutil
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from jupyter_mntrain.metrics.benchmark.transports import read_transport
from jupyter_mntrain.model.errors import MntrainError, NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import size_text
from jupyter_mntrain.model.records.doctor.benchmark import (
    LARGEST_BYTES,
    BenchedLine,
    BenchedPair,
    BenchedRank,
    BenchedSize,
    Operation,
    Transport,
    written_line,
)
from jupyter_mntrain.telemetry.problem_file import leave_with
from jupyter_mntrain.train.world import World, gathered, join_world

ROW_S = 0.5
"""Each message size is repeated for this long; what takes longer is done once."""
LONGEST_S = 10.0
"""A larger size that would take longer than this is left out."""
PAIRS_S = 60.0
"""For messages between all ordered pairs together: many pairs, or slow ones, get smaller
messages."""
ROUND_TRIPS = 200
"""Round trips of the smallest message between two ranks, and the longest time for them."""
ROUND_TRIPS_S = 0.5
TIMEOUT_S = 120.0
"""A rank that waits for another one longer than this ends."""

SMALLEST_BYTES = 1024
GROWTH = 4
"""Factor from one message size to the next."""

TRIED_BYTES = (SMALLEST_BYTES, 4 << 20)
"""Messages whose values are compared: NCCL sends small and large ones in different ways."""

MEMORY_SHARE = 0.1
"""Largest message, as a share of free memory."""

FLOAT_BYTES = 4
MOST_RUNS = 1000

_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
"""Renamed in torch 2.13, which warns of the older name."""


@record
def main(argv: list[str] | None = None) -> None:
    """Verify that messages arrive unchanged, and time them, also between all pairs of nodes."""
    parser = argparse.ArgumentParser(prog="python -m jupyter_mntrain.train.pipeline.benchmark")
    parser.add_argument("--largest", type=int, default=LARGEST_BYTES, metavar="BYTES")
    arguments = parser.parse_args(argv)
    with join_world("auto", TIMEOUT_S) as world:
        CollectiveBenchmark(world, arguments.largest).run()


class CollectiveBenchmark:
    """Times messages between all ranks. All methods are collective: every rank calls them.

    Args:
        world: all ranks of the job.
        largest_bytes: of a message.
    """

    def __init__(self, world: World, largest_bytes: int) -> None:
        self._world = world
        # One rank without a GPU has all of them use Gloo, as in training.
        kinds = gathered(world, (world.device.type, world.host))
        self._on_gpus = all(kind == "cuda" for kind, _ in kinds)
        self._device = world.device if self._on_gpus else torch.device("cpu")
        self._hosts = [host for _, host in kinds]
        self._largest_bytes = min(largest_bytes, *gathered(world, self._fitting_bytes()))

    def run(self) -> None:
        """Measure everything, and have rank 0 print it.

        Raises:
            NodeError: a rank received other values than were sent.
        """
        self._refuse_wrong_values()
        ends = self._ends()
        self._grow("send", lambda size: self._sending(ends[0], ends[1], size))
        for operation in ("all_reduce", "all_gather"):
            self._grow(operation, lambda size, one=operation: self._together(one, size))  # type: ignore[misc]
        self._between_all(ends)
        for one in gathered(self._world, self._own_rank()):
            self._say(one)

    def _refuse_wrong_values(self) -> None:
        """Check that known values arrive, between neighbors and between all ranks of a node.

        Cards that read each other's memory may copy wrong ones: see the check ``gpu-peers``.
        """
        ranks = range(self._world.size)
        pairs = [
            (one, other)
            for one in ranks
            for other in ranks
            if one != other
            and (self._hosts[one] == self._hosts[other] or other == (one + 1) % len(ranks))
        ]
        wrong = [
            (*pair, size)
            for size in TRIED_BYTES
            for pair in pairs
            if not self._arrives(*pair, size // FLOAT_BYTES)
        ]
        found = sorted(one for some in gathered(self._world, wrong) for one in some)
        if found:
            raise _of_wrong_values(found, self._hosts, on_gpus=self._on_gpus)

    def _arrives(self, sender: int, receiver: int, count: int) -> bool:
        """Whether the receiver gets what the sender sends; true on other ranks."""
        if self._world.rank not in {sender, receiver}:
            return True
        sent = torch.arange(count, device=self._device).add_(sender).float()
        if self._world.rank == sender:
            dist.send(sent, receiver)
            return True
        received = torch.zeros_like(sent)
        dist.recv(received, sender)
        return torch.equal(received, sent)

    def _ends(self) -> list[int]:
        """Return the first rank of each node; all ranks if there is only one node."""
        firsts = list({host: rank for rank, host in reversed([*enumerate(self._hosts)])}.values())
        return sorted(firsts) if len(firsts) > 1 else [*range(self._world.size)]

    def _grow(self, operation: Operation, make: Callable[[int], Callable[[int], float]]) -> None:
        """Time an operation with growing messages, up to the largest size or a time limit."""
        size = SMALLEST_BYTES
        while size <= self._largest_bytes:
            ranks = 2 if operation == "send" else self._world.size
            seconds, runs = self._repeated(make(size))
            self._say(BenchedSize(operation, size, seconds, runs, ranks))
            if seconds * GROWTH > LONGEST_S:
                return
            size *= GROWTH

    def _repeated(self, run: Callable[[int], float]) -> tuple[float, int]:
        """Return the mean seconds of one run, repeated for some time; the same on all ranks."""
        first_s = self._agreed(run(1))
        if first_s >= ROW_S:
            return first_s, 1
        # The first one may have had to connect: measure one by a few.
        first_s = self._agreed(run(3))
        runs = max(1, min(MOST_RUNS, round(ROW_S / max(first_s, 1e-7))))
        return self._agreed(run(runs)), runs

    def _agreed(self, seconds: float) -> float:
        """Return the slowest rank's time."""
        told = torch.tensor([seconds], dtype=torch.float64)
        dist.all_reduce(told, op=dist.ReduceOp.MAX)
        return float(told.item())

    def _together(self, operation: Operation, size: int) -> Callable[[int], float]:
        ranks = self._world.size
        each = max(1, size // FLOAT_BYTES // ranks)
        whole = torch.zeros(each * ranks, device=self._device)
        own = torch.zeros(each, device=self._device)

        def run(times: int) -> float:
            dist.all_reduce(torch.zeros(1))
            begun_s = time.perf_counter()
            for _ in range(times):
                if operation == "all_reduce":
                    dist.all_reduce(whole)
                else:
                    _all_gather(whole, own)
            self._finish()
            return (time.perf_counter() - begun_s) / times

        return run

    def _sending(self, sender: int, receiver: int, size: int) -> Callable[[int], float]:
        """Send messages one way; a byte comes back at the end to confirm them."""
        message = torch.zeros(max(1, size // FLOAT_BYTES), device=self._device)
        told = torch.zeros(1, device=self._device)
        mine = self._world.rank

        def run(times: int) -> float:
            dist.all_reduce(torch.zeros(1))
            begun_s = time.perf_counter()
            if mine == sender:
                for _ in range(times):
                    dist.send(message, receiver)
                dist.recv(told, receiver)
                self._finish()
                return (time.perf_counter() - begun_s) / times
            if mine == receiver:
                for _ in range(times):
                    dist.recv(message, sender)
                dist.send(told, sender)
                self._finish()
            return 0.0

        return run

    def _between_all(self, ends: list[int]) -> None:
        """Time messages for every ordered pair, one pair at a time."""
        pairs = [(one, other) for one in ends for other in ends if one != other]
        size = self._largest_bytes
        for sender, receiver in pairs:
            latencies = self._round_trips(sender, receiver)
            run = self._sending(sender, receiver, SMALLEST_BYTES * GROWTH**4)
            run(1)
            quick_s = self._agreed(run(1))
            # Many pairs, or slow ones, get smaller messages.
            bytes_per_s = SMALLEST_BYTES * GROWTH**4 / max(quick_s, 1e-7)
            while size > SMALLEST_BYTES and size / bytes_per_s * len(pairs) > PAIRS_S:
                size //= GROWTH
            seconds, _ = self._repeated(self._sending(sender, receiver, size))
            if self._world.rank == 0:
                last = quantiles(latencies, n=100)[-1] if len(latencies) > 1 else latencies[0]
                pair = BenchedPair(
                    sender, receiver, size, seconds, median(latencies), last, len(latencies)
                )
                self._say(pair)

    def _round_trips(self, sender: int, receiver: int) -> list[float]:
        """Return half of each round trip of the smallest message; only rank 0 gets them."""
        message = torch.zeros(SMALLEST_BYTES // FLOAT_BYTES, device=self._device)

        def there_and_back() -> float:
            begun_s = time.perf_counter()
            if self._world.rank == sender:
                dist.send(message, receiver)
                dist.recv(message, receiver)
            elif self._world.rank == receiver:
                dist.recv(message, sender)
                dist.send(message, sender)
            self._finish()
            return (time.perf_counter() - begun_s) / 2

        there_and_back()
        is_end = self._world.rank == sender
        one_s = self._agreed(there_and_back() if is_end else (there_and_back(), 0.0)[1])
        times = max(1, min(ROUND_TRIPS, round(ROUND_TRIPS_S / max(2 * one_s, 1e-7))))
        found = [there_and_back() for _ in range(times)]
        return gathered(self._world, found)[sender]

    def _own_rank(self) -> BenchedRank:
        name = torch.cuda.get_device_name(self._device) if self._on_gpus else "cpu"
        return BenchedRank(
            rank=self._world.rank,
            node=self._world.host,
            device=name,
            backend="nccl" if self._on_gpus else "gloo",
            transport=own_transport() if self._on_gpus else Transport(),
        )

    def _fitting_bytes(self) -> int:
        """Return the largest message that fits into this rank's memory."""
        if self._on_gpus:
            return int(torch.cuda.mem_get_info(self._device)[0] * MEMORY_SHARE)
        neighbors = self._hosts.count(self._world.host)
        return int(psutil.virtual_memory().available * MEMORY_SHARE) // neighbors

    def _finish(self) -> None:
        if self._on_gpus:
            torch.cuda.synchronize(self._device)

    def _say(self, line: BenchedLine) -> None:
        if self._world.is_head:
            print(written_line(line), flush=True)  # noqa: T201 - the job's log is its output


def _of_wrong_values(
    found: Sequence[tuple[int, int, int]], hosts: Sequence[str], *, on_gpus: bool
) -> NodeError:
    """Return the error for messages that arrived with wrong values."""
    sender, receiver, size = found[0]
    is_one_node = hosts[sender] == hosts[receiver]
    where = hosts[sender] if is_one_node else f"{hosts[sender]} and {hosts[receiver]}"
    more = f", and {len(found) - 1} more of such messages" if len(found) > 1 else ""
    fix = "test the memory and the network cards of both nodes"
    if is_one_node and on_gpus:
        fix = "launch with --env NCCL_P2P_DISABLE=1, or switch ACS and the IOMMU off in its BIOS"
    return NodeError(
        f"rank {receiver} did not receive the values that rank {sender} sent, {size_text(size)} "
        f"on {where}{more}",
        kind=Kind.NCCL,
        fix=fix,
    )


def own_transport() -> Transport:
    """Read what NCCL logged about this process, in the file that the launch named."""
    path = Path(os.environ.get("NCCL_DEBUG_FILE", ""))
    # %h is the host name, %p the process.
    pattern = re.sub(r"%h", "*", path.name).replace("%p", str(os.getpid()))
    logs = sorted(path.parent.glob(pattern)) if pattern else []
    return read_transport("".join(one.read_text(errors="replace") for one in logs))


if __name__ == "__main__":
    try:
        main()
    except MntrainError as error:
        leave_with(error)
