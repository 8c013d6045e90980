"""Times of stages and links that a step is simulated with, and the step that results. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from jupyter_mntrain.recipe.orders import StageAction

Pair = tuple[int, int]
"""Sender's and receiver's rank."""


class StageTimes(NamedTuple):
    """Seconds that one stage computes per microbatch.

    Args:
        forward: with the loss, on the last stage.
        backward: of inputs and weights together.
        inputs: of the gradients of inputs alone.
        weights: of the gradients of weights alone.
    """

    forward: float
    backward: float
    inputs: float
    weights: float

    def of(self, kind: str) -> float:
        match kind:
            case "F":
                return self.forward
            case "B":
                return self.backward
            case "I":
                return self.inputs
            case _:
                return self.weights


SOCKET_BYTES: Final = 512 << 10
"""What a socket's send buffer holds, roughly: Linux lets it grow with what is under way."""


class LinkTimes(NamedTuple):
    """Seconds of one message on a link, in one direction.

    Args:
        latency: one way.
        occupied: bytes / capacity.
        buffered: of that, what its sender need not wait for: its socket holds it.
    """

    latency: float = 0.0
    occupied: float = 0.0
    buffered: float = 0.0

    @property
    def seconds(self) -> float:
        """From the begin of a message to its arrival."""
        return self.latency + self.occupied


FREE = LinkTimes()
"""Between ranks of one node."""


class BusySpan(NamedTuple):
    """What a rank or a link is busy with, in seconds from the step's begin."""

    action: StageAction
    begin_s: float
    end_s: float


class Simulated(NamedTuple):
    """A simulated step, without the optimizer.

    Args:
        seconds: until the last action's end.
        computing: spans per rank, in order.
        messages: spans per link, in order; its action is the sender's.
    """

    seconds: float
    computing: tuple[tuple[BusySpan, ...], ...]
    messages: Mapping[Pair, tuple[BusySpan, ...]]

    def computing_s(self, rank: int) -> float:
        return sum(span.end_s - span.begin_s for span in self.computing[rank])

    def bubble(self, rank: int) -> float:
        """Share of the step in which a rank does not compute."""
        return 1.0 - self.computing_s(rank) / self.seconds if self.seconds > 0 else 0.0

    def busy(self, link: Pair) -> float:
        """Share of the step in which a link is occupied."""
        spans = self.messages.get(link, ())
        return sum(span.end_s - span.begin_s for span in spans) / self.seconds if spans else 0.0
