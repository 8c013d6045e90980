"""Timing: times work on the device without synchronizing it, and transfers between stages."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

import msgspec
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage

from jupyter_mntrain.recipe.instructions import Computing
from jupyter_mntrain.telemetry.callbacks.device_number import DeviceNumber
from jupyter_mntrain.train.pipeline.transfers import Comparison
from jupyter_mntrain.train.world import World, gathered

# Link timing: measures transfer times between stages, between two training steps.


TRIES = 3
FREE_SHARE = 0.8
"""Share of a GPU's free memory that additional microbatches in flight may use."""


class Links(NamedTuple):
    """Measured times of a pipeline; the same on every rank.

    Args:
        compute_s: forward and backward of a microbatch, per stage.
        transfer_s: round trip of a microbatch, per boundary; 0 within a node.
        most: microbatches in flight that fit into memory, per stage.
    """

    compute_s: tuple[float, ...]
    transfer_s: tuple[float, ...]
    most: tuple[int, ...]


def measure_links(
    world: World,
    sizes: Sequence[tuple[int, int]],
    compute_s: float,
    ahead: int,
    microbatches: int,
) -> Links:
    """Time a microbatch's round trip between neighbors on different nodes. Collective.

    Args:
        world: the ranks of a pipeline. Several pipelines measure at once, as they will train.
        sizes: bytes of a message forth and back, per boundary.
        compute_s: seconds per microbatch on this rank.
        ahead: current number of microbatches in flight on this rank.
    """
    hosts = gathered(world, world.host)
    mine = 0.0
    # One boundary at a time, so that each link is otherwise idle.
    for stage in range(world.size - 1):
        if hosts[stage] != hosts[stage + 1]:
            forth, back = (
                torch.empty(size, dtype=torch.uint8, device=world.device) for size in sizes[stage]
            )
            if world.rank == stage:
                peer = world.in_job(stage + 1)
                mine = min(_there_and_back(forth, back, peer, world.group) for _ in range(TRIES))
            elif world.rank == stage + 1:
                peer = world.in_job(stage)
                for _ in range(TRIES):
                    dist.recv(forth, peer, world.group)
                    dist.send(back, peer, world.group)
        dist.barrier(world.group)
    own = (compute_s, mine, most_in_flight(world.device, ahead, microbatches))
    computing, transfers, most = zip(*gathered(world, own), strict=True)
    return Links(computing, transfers[:-1], most)


def most_in_flight(device: torch.device, ahead: int, microbatches: int) -> int:
    """Estimate how many microbatches fit, from the GPU memory used so far; on a CPU, all."""
    if device.type != "cuda":
        return microbatches
    base = torch.cuda.memory_allocated(device)
    each = (torch.cuda.max_memory_allocated(device) - base) / ahead
    free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - base
    room = FREE_SHARE * free - each * ahead
    return ahead + max(0, int(room // each)) if each > 0 else microbatches


def _there_and_back(
    forth: torch.Tensor, back: torch.Tensor, peer: int, group: dist.ProcessGroup | None
) -> float:
    begun = time.perf_counter()
    dist.send(forth, peer, group)
    dist.recv(back, peer, group)
    if back.is_cuda:
        torch.cuda.synchronize(back.device)
    return time.perf_counter() - begun


# Stopwatch: times work on the device without synchronizing it.
#
# On a GPU a mark is a CUDA event, read once the step has ended anyway; on a CPU it is the clock.
# Stages are measured by wrapping methods of the *instance*; torch's classes stay unchanged.


P = ParamSpec("P")
R = TypeVar("R")

Mark = Any
"""Clock seconds as a float, or a CUDA event; opaque outside of :class:`Stopwatch`."""

Sending = Literal["SEND_F", "SEND_B"]

_COMPUTE: dict[str, Computing] = {
    "forward_one_chunk": "F",
    "backward_one_chunk": "B",
    "backward_weight_one_chunk": "W",
}
_SENT: dict[str, Sending] = {"get_fwd_send_ops": "SEND_F", "get_bwd_send_ops": "SEND_B"}
_RECEIVED = ("get_fwd_recv_ops", "get_bwd_recv_ops")
_CODING = "coding"


class Stopwatch:
    """Marks moments on a device, and reads the seconds between them once they have passed."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        if not self._is_cuda:
            # Called before and after each computation: a method around the clock costs, too.
            self.mark = time.perf_counter  # type: ignore[method-assign]

    def mark(self) -> Mark:
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def wait(self, mark: Mark) -> None:
        """Return once the device has passed ``mark``."""
        if self._is_cuda:
            mark.synchronize()

    def seconds(self, begin: Mark, end: Mark) -> float:
        seconds: float = begin.elapsed_time(end) / 1000 if self._is_cuda else end - begin
        return seconds

    def age(self, passed: Mark) -> float:
        """Return the seconds since a passed mark; on a GPU 0, as its host has waited for it."""
        return 0.0 if self._is_cuda else time.perf_counter() - passed

    def total(self, timed: Iterable[Timed]) -> float:
        """Return the total seconds."""
        if not self._is_cuda:
            return float(sum([one.end - one.begin for one in timed]))
        return sum(self.seconds(one.begin, one.end) for one in timed)


class Timed(msgspec.Struct, frozen=True, gc=False):
    """One timed computation.

    A step may have hundreds, made between its computations: no other record is made as fast.

    Args:
        kind: ``None`` for a part of what was computed before: the loss of a forward pass.
        microbatch: of one pass over the schedule.
    """

    begin: Mark
    end: Mark
    kind: Computing | None = None
    stage: int = -1
    microbatch: int = -1


class Posted(NamedTuple):
    """A message whose sending has started."""

    at: Mark
    kind: Sending
    stage: int
    microbatch: int
    peer: int


class Metered(NamedTuple):
    """What a rank computed and exchanged in a step; bytes are by peer.

    Args:
        left_out: begin and end of what is no computing, within what was timed.
        coded: begin and end of encoding and decoding messages; what is within a pass is left out.
        compared: what was sent, with what is received of it.
    """

    timed: list[Timed]
    posted: list[Posted]
    sent_bytes: dict[int, int]
    received_bytes: dict[int, int]
    left_out: list[tuple[Mark, Mark]]
    coded: list[tuple[Mark, Mark]]
    compared: list[Compared]

    def compute_s(self, stopwatch: Stopwatch) -> float:
        """Return the seconds of computing, once the device has passed all marks."""
        return computed_s(stopwatch, self.timed, self.left_out)

    def coding_s(self, stopwatch: Stopwatch) -> float:
        """Return the seconds of encoding and decoding, likewise."""
        return sum(stopwatch.seconds(*marks) for marks in self.coded)


class Compared(NamedTuple):
    """A comparison of what was sent with what is received, which the device may still be making.

    Args:
        boundary: the stage before it.
        is_gradient: else activations.
        sums: of the squares of what was sent, and of what was lost.
    """

    boundary: int
    is_gradient: bool
    sums: DeviceNumber

    def ratio_db(self) -> float | None:
        """Return signal to noise in decibels; ``None`` if nothing was sent, or nothing lost."""
        signal, noise = self.sums.read_all()
        return 10.0 * math.log10(signal / noise) if signal > 0 and noise > 0 else None


def computed_s(
    stopwatch: Stopwatch, timed: Iterable[Timed], left_out: Iterable[tuple[Mark, Mark]]
) -> float:
    """Return the timed seconds without the excluded ones."""
    return stopwatch.total(timed) - sum(stopwatch.seconds(*marks) for marks in left_out)


class StageMeter:
    """Counts seconds of computing and bytes exchanged by this rank's stages since :meth:`reset`.

    What is left out is no computing: ranks gather and scatter sharded weights within a pass.
    """

    def __init__(self, stopwatch: Stopwatch) -> None:
        self.sent_bytes: dict[int, int] = {}
        self.received_bytes: dict[int, int] = {}
        self._stopwatch = stopwatch
        self._timed: list[Timed] = []
        self._posted: list[Posted] = []
        self._left_out: list[tuple[Mark, Mark]] = []
        self._coded: list[tuple[Mark, Mark]] = []
        self._compared: list[Compared] = []
        self._computing = 0
        self._exchange_begin: Mark | None = None

    def attach(self, stage: PipelineStage) -> None:
        """Start measuring ``stage``."""
        setattr(stage, _CODING, self.coding)
        for name, kind in _COMPUTE.items():
            setattr(stage, name, self._computed(getattr(stage, name), kind, stage.stage_index))
        for name, sends in _SENT.items():
            setattr(stage, name, self._sent(getattr(stage, name), sends, stage.stage_index))
        for name in _RECEIVED:
            setattr(stage, name, _counted(getattr(stage, name), self.received_bytes))

    @staticmethod
    def detach(stage: PipelineStage) -> None:
        """Stop measuring ``stage``: restore its methods."""
        for name in (*_COMPUTE, *_SENT, *_RECEIVED, _CODING):
            vars(stage).pop(name, None)

    def timed(self, function: Callable[P, R]) -> Callable[P, R]:
        """Wrap ``function`` so that its time counts as computing."""

        @wraps(function)
        def measured(*args: P.args, **kwargs: P.kwargs) -> R:
            self._computing += 1
            begin = self._stopwatch.mark()
            try:
                return function(*args, **kwargs)
            finally:
                self._timed.append(Timed(begin, self._stopwatch.mark()))
                self._computing -= 1

        return measured

    def _computed(
        self, function: Callable[..., Any], kind: Computing, stage: int
    ) -> Callable[..., Any]:
        """Wrap a stage's method, whose first argument is the microbatch."""

        @wraps(function)
        def measured(microbatch: int, *args: Any, full_backward: bool = True, **kwargs: Any) -> Any:
            done: Computing = kind
            if not full_backward:
                done, kwargs["full_backward"] = "I", False
            self._computing += 1
            begin = self._stopwatch.mark()
            try:
                return function(microbatch, *args, **kwargs)
            finally:
                end = self._stopwatch.mark()
                self._timed.append(Timed(begin, end, done, stage, microbatch))
                self._computing -= 1

        return measured

    def begin_exchange(self) -> None:
        """Mark the start of waiting for other ranks, until :meth:`end_exchange`."""
        if self._computing and self._exchange_begin is None:
            self._exchange_begin = self._stopwatch.mark()

    def end_exchange(self) -> None:
        """Exclude the time since :meth:`begin_exchange` from the computing time."""
        if self._exchange_begin is not None:
            self._left_out.append((self._exchange_begin, self._stopwatch.mark()))
            self._exchange_begin = None

    @contextmanager
    def coding(self) -> Iterator[None]:
        """Count what is done inside as encoding or decoding, and not as computing."""
        begin = self._stopwatch.mark()
        yield
        marks = (begin, self._stopwatch.mark())
        self._coded.append(marks)
        if self._computing:
            self._left_out.append(marks)

    def compared(self, made: Iterable[Comparison]) -> None:
        """Keep comparisons, to be read once the device has made them."""
        self._compared += [
            Compared(one.boundary, one.is_gradient, DeviceNumber(one.sums)) for one in made
        ]

    def _sent(
        self, operations: Callable[..., Any], kind: Sending, stage: int
    ) -> Callable[..., Any]:
        """Wrap a stage's method that returns what is sent, just before it is."""
        counted = _counted(operations, self.sent_bytes)

        @wraps(operations)
        def measured(microbatch: int) -> Any:
            found = counted(microbatch)
            if found:
                at, peer = self._stopwatch.mark(), found[0].peer
                self._posted.append(Posted(at, kind, stage, microbatch, peer))
            return found

        return measured

    def passed_on(self, size_bytes: int, *, sent_to: int, received_from: int) -> None:
        """Count bytes of a ring all-reduce."""
        for counts, peer in ((self.sent_bytes, sent_to), (self.received_bytes, received_from)):
            counts[peer] = counts.get(peer, 0) + size_bytes

    def exchanged(self, peer: int, size_bytes: int) -> None:
        """Count a transfer of the same size in both directions."""
        self.passed_on(size_bytes, sent_to=peer, received_from=peer)

    def compute_s(self) -> float:
        return computed_s(self._stopwatch, self._timed, self._left_out)

    def take(self) -> Metered:
        """Return what was counted, to be read once the device has passed it; reset the counts."""
        counts = dict(self.sent_bytes), dict(self.received_bytes)
        marks = (self._left_out, self._coded)
        taken = Metered(self._timed, self._posted, *counts, *marks, self._compared)
        self._timed, self._posted = [], []
        self._left_out, self._coded, self._compared = [], [], []
        self.reset()
        return taken

    def reset(self) -> None:
        self._timed.clear()
        self._posted.clear()
        self._left_out.clear()
        self._coded.clear()
        self._compared.clear()
        self.sent_bytes.clear()
        self.received_bytes.clear()


def _counted(operations: Callable[..., Any], counts: dict[int, int]) -> Callable[..., Any]:
    @wraps(operations)
    def measured(*args: Any, **kwargs: Any) -> Any:
        found = operations(*args, **kwargs)
        for operation in found:
            peer = operation.peer
            counts[peer] = counts.get(peer, 0) + operation.tensor.nbytes
        return found

    return measured
