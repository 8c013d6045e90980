"""A session in memory: its ranks say what they are told to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jupyter_mntrain.cluster.rank_session import Waiting
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.model.records.session import Done, Event, State, Value


class StandInSession:
    """Two ranks.

    Args:
        events: of every cell, before its end.
        done: how it ends.
    """

    def __init__(self, events: Sequence[Event | Waiting] = (), done: Sequence[Done] = ()) -> None:
        self.ranks = range(2)
        self._events, self._done = events, done or [Done(one, 99, "ok", 0.1) for one in (0, 1)]
        self.answers: list[tuple[int, str]] = []
        self.pushed: list[tuple[str, Value, Iterable[int] | None]] = []

    def states(self) -> dict[int, State]:
        return {rank: State(rank, cell=1) for rank in self.ranks}

    def wait(self, progress: Progress) -> None:
        progress.report("ranks ready", len(self.ranks), len(self.ranks))

    def run(self, code: str, ranks: Iterable[int] | None = None) -> Iterator[Event | Waiting]:
        assert code
        return self.follow()

    def follow(self) -> Iterator[Event | Waiting]:
        yield from (*self._events, *self._done)

    def pull(self, name: str, ranks: Iterable[int] | None = None) -> dict[int, Value]:
        assert name
        return dict.fromkeys(self.ranks if ranks is None else ranks, Value("json", b"1"))

    def push(self, name: str, value: Value, ranks: Iterable[int] | None = None) -> None:
        self.pushed.append((name, value, ranks))

    def interrupt(self) -> tuple[int, ...]:
        return ()

    def answer(self, rank: int, text: str) -> None:
        self.answers.append((rank, text))
