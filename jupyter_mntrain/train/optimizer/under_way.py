"""Under way: an average over replicas that is made behind computing, by a thread of its own."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, TimeoutError  # noqa: A004 - before Python 3.11 another one
from dataclasses import dataclass, field
from threading import Thread
from typing import NamedTuple

import torch
import torch.distributed as dist

from jupyter_mntrain.telemetry.progress import EVERY_S, ProgressWriter, Tally
from jupyter_mntrain.train.optimizer.averaging import average


class Averages(NamedTuple):
    """What arrived: flat, float32, in host memory; and the bytes that this rank sent for it."""

    means: Sequence[torch.Tensor]
    sent_bytes: int = 0


@dataclass
class UnderWay:
    """The average of a fragment, which may not be here yet.

    Args:
        fragment: its number.
        step: after which replicas took their differences.
        size_bytes: of the differences.
    """

    fragment: int
    step: int
    size_bytes: int = 0
    averages: Future[Averages] = field(default_factory=Future)
    _done_bytes: int = 0

    def wait(self, what: str, progress: ProgressWriter) -> Averages:
        """The average, once it is here.

        Args:
            what: is said to be done while this waits.

        Raises:
            RuntimeError: the network failed.
        """
        if self.averages.done():
            return self.averages.result()
        tally, told = Tally(progress, what, self.size_bytes, "B"), 0
        while True:
            try:
                found = self.averages.result(timeout=EVERY_S)
            except TimeoutError:
                tally.add(self._done_bytes - told)
                told = self._done_bytes
            else:
                tally.end()
                return found

    def begin(self, learned: Sequence[torch.Tensor], dtype: str, group: dist.ProcessGroup) -> None:
        """Average these differences, which are overwritten, in a thread.

        The group is used for nothing else meanwhile. Gloo does it, in host memory: two NCCL
        communicators that are busy at once on a GPU may wait for each other forever. The thread is
        a daemon, as a rank that fails elsewhere must end.
        """
        self.size_bytes = sum(one.nbytes for one in learned)
        Thread(target=self._run, args=(learned, dtype, group), name="average", daemon=True).start()

    @torch.no_grad()
    def _run(self, learned: Sequence[torch.Tensor], dtype: str, group: dist.ProcessGroup) -> None:
        means, total = [], 0
        try:
            for one in learned:
                mean, sent = average(one, dtype, group)
                means.append(mean)
                total += sent
                self._done_bytes += one.nbytes
        except Exception as error:  # noqa: BLE001 - raised where the average is needed
            self.averages.set_exception(error)
        else:
            self.averages.set_result(Averages(means, total))
