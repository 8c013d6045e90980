"""Stopwatch: times work on the device without synchronizing it.

On a GPU a mark is a CUDA event, read once the step has ended anyway; on a CPU it is the clock.
Stages are measured by wrapping methods of the *instance*; torch's classes stay unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch.distributed.pipelining import PipelineStage

P = ParamSpec("P")
R = TypeVar("R")

Mark = Any
"""Clock seconds as a float, or a CUDA event; opaque outside of :class:`Stopwatch`."""

_COMPUTE = ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk")
_SENT = ("get_fwd_send_ops", "get_bwd_send_ops")
_RECEIVED = ("get_fwd_recv_ops", "get_bwd_recv_ops")


class Stopwatch:
    """Marks moments on a device, and reads the seconds between them once they have passed."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"

    def mark(self) -> Mark:
        if not self._is_cuda:
            return time.perf_counter()
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


class StageMeter:
    """Counts seconds computed and bytes exchanged by this rank's stages since :meth:`reset`."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self.sent_bytes: dict[int, int] = {}
        self.received_bytes: dict[int, int] = {}
        self._stopwatch = stopwatch
        self._spans: list[tuple[Mark, Mark]] = []

    def attach(self, stage: PipelineStage) -> None:
        """Start measuring ``stage``."""
        for name in _COMPUTE:
            setattr(stage, name, self.timed(getattr(stage, name)))
        for names, counts in ((_SENT, self.sent_bytes), (_RECEIVED, self.received_bytes)):
            for name in names:
                setattr(stage, name, _counted(getattr(stage, name), counts))

    @staticmethod
    def detach(stage: PipelineStage) -> None:
        """Stop measuring ``stage``: restore its methods."""
        for name in (*_COMPUTE, *_SENT, *_RECEIVED):
            vars(stage).pop(name, None)

    def timed(self, function: Callable[P, R]) -> Callable[P, R]:
        """Wrap ``function`` so that its time counts as computing."""

        @wraps(function)
        def measured(*args: P.args, **kwargs: P.kwargs) -> R:
            begin = self._stopwatch.mark()
            try:
                return function(*args, **kwargs)
            finally:
                self._spans.append((begin, self._stopwatch.mark()))

        return measured

    def passed_on(self, size_bytes: int, *, sent_to: int, received_from: int) -> None:
        """Count bytes of a ring all-reduce."""
        for counts, peer in ((self.sent_bytes, sent_to), (self.received_bytes, received_from)):
            counts[peer] = counts.get(peer, 0) + size_bytes

    def exchanged(self, peer: int, size_bytes: int) -> None:
        """Count a transfer of the same size in both directions."""
        self.passed_on(size_bytes, sent_to=peer, received_from=peer)

    def compute_s(self) -> float:
        return sum(self._stopwatch.seconds(begin, end) for begin, end in self._spans)

    def reset(self) -> None:
        self._spans.clear()
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
