"""Background reporter: reports in a thread, so that neither disk nor network slows a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Event, Thread

from jupyter_mntrain.train.reports.base import Reporter

MOST_WAITING = 10000
"""Maximum number of entries waiting for TensorBoard, W&B and others: a few MB. More are dropped,
and the log says so."""

BEGIN_S = 10.0
"""How long the first step waits for reporters to import and connect, which slows steps."""

CLOSE_S = 30.0
"""How long the end of a run waits for reporters to finish."""

FAILED_CLOSE_S = 3.0
"""The same after an error, which the other ranks are waiting to learn."""


class Background:
    """Passes numbers to a reporter, in order, from its own thread.

    An error there is printed once and ends this report, never the training.

    Args:
        name: the reporter's, for messages.
        begin: makes the reporter, in the thread.
        say: prints a line to the job's log.
    """

    def __init__(
        self, name: str, begin: Callable[[], Reporter], say: Callable[[str], None]
    ) -> None:
        self._name = name
        self._begin = begin
        self._say = say
        self._queue: Queue[tuple[int, Mapping[str, float]] | None] = Queue(MOST_WAITING)
        self._is_ready = Event()
        self._has_lost = False
        self._is_left = False
        self._thread = Thread(target=self._run, name=f"report-{name}", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until the reporter has started or failed."""
        self._is_ready.wait(timeout_s)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Queue numbers; returns immediately."""
        if not self._thread.is_alive():
            return
        try:
            self._queue.put_nowait((step, values))
        except Full:
            if not self._has_lost:
                self._has_lost = True
                self._say(f"report: {self._name} is too slow: steps from {step} on are missing")

    def stop(self) -> None:
        """Queue the end; returns immediately."""
        if self._queue.full():
            with suppress(Empty):
                self._queue.get_nowait()
        self._queue.put(None)  # only this thread puts, and there is room

    def join(self, timeout_s: float) -> None:
        """Wait for the reporter to finish, at most ``timeout_s``."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._is_left = True
            self._say(f"report: {self._name} did not finish; its last steps may be missing")

    def _run(self) -> None:
        try:
            reporter = self._begin()
            self._is_ready.set()
            while (told := self._queue.get()) is not None:
                reporter.log(*told)
            reporter.close()
        except BaseException as error:  # noqa: BLE001 - a library's code may even call sys.exit
            if self._is_left:
                return
            said = " ".join(str(error).split())
            what = f"{type(error).__name__}: {said}" if said else type(error).__name__
            self._say(f"report: {self._name} stopped: {what}. Training continues")
        finally:
            self._is_ready.set()
