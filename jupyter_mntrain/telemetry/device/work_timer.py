"""WorkTimer: times work on a device that other programs or a CPU limit may interrupt."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import NormalDist, fmean, quantiles
from typing import NamedTuple

import torch

LEAST_ROUNDS = 3

_MIDDLE_HALF = 2 * NormalDist().inv_cdf(0.75)
"""Standard deviations from the first quartile to the third."""


class TimedRounds(NamedTuple):
    """The times of pieces of work that were run one after another, in several rounds.

    Args:
        means_s: seconds of each piece.
        variation: by how much rounds differ: their standard deviation over their median, by the
            middle half of them, so that a round that was held up says nothing.
    """

    means_s: tuple[float, ...]
    variation: float


class WorkTimer:
    """Times pieces of work in rounds.

    A limit of CPU time stops a process for most of each tenth of a second, and so stops some pieces
    of work and others not at all. On a CPU each piece is therefore timed by the seconds that this
    thread ran, and all are stretched alike, by :meth:`stretch`, at the end.

    Args:
        device: a GPU is waited for at the end of every piece.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_gpu = device.type == "cuda"
        self._clock = time.perf_counter if self._is_gpu else time.thread_time
        self._ran_s = self._passed_s = 0.0

    def timed(
        self, *work: Callable[[], object], seconds: float, least: int = LEAST_ROUNDS
    ) -> TimedRounds:
        """Time pieces of work, run in turn for ``seconds``, and at least ``least`` times.

        The first round is not counted.
        """
        for one in work:
            one()
        self._wait()
        rounds: list[list[float]] = []
        begin_s, ran_s = time.perf_counter(), self._clock()
        while len(rounds) < least or time.perf_counter() - begin_s < seconds:
            rounds.append([self._once(one) for one in work])
        self._passed_s += time.perf_counter() - begin_s
        self._ran_s += self._clock() - ran_s
        variation = _variation([sum(one) for one in rounds])
        return TimedRounds(tuple(map(fmean, zip(*rounds, strict=True))), variation)

    def stretch(self) -> float:
        """Return how much longer all of the work took than this thread ran; 1 on a GPU."""
        return max(1.0, self._passed_s / self._ran_s) if self._ran_s else 1.0

    def _once(self, work: Callable[[], object]) -> float:
        begin_s = self._clock()
        work()
        self._wait()
        return self._clock() - begin_s

    def _wait(self) -> None:
        if self._is_gpu:
            torch.cuda.synchronize()


def _variation(seconds: list[float]) -> float:
    first, middle, third = quantiles(seconds, n=4, method="inclusive")
    return (third - first) / _MIDDLE_HALF / middle if middle else 0.0
