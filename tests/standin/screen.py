"""Context of a verb for tests: a screen that stores its messages, a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.console import RenderableType

from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.show.screen import Awaited, Screen
from jupyter_mntrain.verbs.command import parse
from jupyter_mntrain.verbs.run import run
from jupyter_mntrain.verbs.verb import Clusters, Context, Outcome
from tests.standin.answers import check_answer
from tests.standin.cluster import StandInCluster
from tests.standin.heard import Heard
from tests.standin.training import BEGIN_S


class Paper(Screen):
    """Keeps what it is shown."""

    def __init__(self, *, in_background: bool = False) -> None:
        self.in_background = in_background
        self.shows_pictures = self.has_variables = in_background
        self.said: list[RenderableType] = []
        self.shown: list[Any] = []
        self.followed: list[Any] = []
        self.awaited: list[tuple[Awaited, Callable[[], Awaited]]] = []
        self.heard = Heard()

    def say(self, renderable: RenderableType) -> None:
        self.said.append(renderable)

    def show(self, job: Any) -> None:
        self.shown.append(job)

    def await_job(self, first: Awaited, look: Callable[[], Awaited]) -> None:
        self.awaited.append((first, look))

    def progress(self) -> AbstractContextManager[Progress]:
        return nullcontext(self.heard)

    def follow(self, job: Any, timeout_s: float | None = None) -> None:
        self.followed.append(job)
        job.wait(timeout_s)


class StillClock:
    """Time passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = BEGIN_S + 100

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def run_words(words: Sequence[str], context: Context) -> Outcome:
    """Parse and run, and compare the answer with what is published of it."""
    command = parse(words, program=context.program)
    outcome = run(command, context)
    check_answer(command.verb, outcome.data)
    return outcome


def make_context(cluster: StandInCluster, **changes: Any) -> Context:
    clock = StillClock()
    connect: Callable[..., Any] = lambda name, addresses: cluster  # noqa: E731
    settings: dict[str, Any] = {
        "clusters": Clusters(connect),
        "screen": Paper(),
        "environment": {},
        "clock": clock,
        "sleep": clock.sleep,
    }
    return Context(**(settings | changes))
