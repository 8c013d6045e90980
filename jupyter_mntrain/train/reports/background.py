"""Background reporter: a thread, so that neither disk nor network slows a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from queue import Empty, Full, Queue
from threading import Event, Thread

from jupyter_mntrain.model import tunables
from jupyter_mntrain.train.reports.base import Reporter

MOST_WAITING = tunables.count("reports.queue")

BEGIN_S = tunables.seconds("reports.begin_timeout_s")

CLOSE_S = tunables.seconds("reports.close_timeout_s")

FAILED_CLOSE_S = tunables.seconds("reports.failed_close_timeout_s")


class Background:
    """Hands numbers to a reporter, in order, from a thread of its own.

    What goes wrong there is said once, and ends this report, never the training.

    Args:
        name: of the reporter, for people.
        say: prints a line.
    """

    def __init__(self, name: str, reporter: Reporter, say: Callable[[str], None]) -> None:
        self._name = name
        self._reporter = reporter
        self._say = say
        self._queue: Queue[tuple[int, Mapping[str, float]] | None] = Queue(MOST_WAITING)
        self._is_ready = Event()
        self._has_lost = False
        self._is_left = False
        self._thread = Thread(target=self._run, name=f"report-{name}", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Until it has begun, or has failed to."""
        self._is_ready.wait(timeout_s)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Returns at once."""
        if not self._thread.is_alive():
            return
        try:
            self._queue.put_nowait((step, values))
        except Full:
            if not self._has_lost:
                self._has_lost = True
                self._say(f"report: {self._name} is too slow: steps from {step} on are missing")

    def stop(self) -> None:
        """Say that there is no more to come. Returns at once."""
        if self._queue.full():
            self._forget_one()
        self._queue.put(None)  # only this thread puts, and there is room

    def join(self, timeout_s: float) -> None:
        """Let it keep what it was told, but never wait for it for longer than this."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._is_left = True
            self._say(f"report: {self._name} did not finish; its last steps may be missing")

    def _forget_one(self) -> None:
        try:
            self._queue.get_nowait()
        except Empty:
            return

    def _run(self) -> None:
        try:
            self._reporter.begin()
            self._is_ready.set()
            while (told := self._queue.get()) is not None:
                self._reporter.log(*told)
            self._reporter.close()
        except BaseException as error:  # noqa: BLE001 - other people's code, and some of it exits
            if self._is_left:
                return
            said = " ".join(str(error).split())
            what = f"{type(error).__name__}: {said}" if said else type(error).__name__
            self._say(f"report: {self._name} stopped: {what}. Training continues")
        finally:
            self._is_ready.set()
