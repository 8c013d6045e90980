"""Stories: faults in sequence on one job, with what its first line says in between.

``stories.toml`` next to this file holds what is done, and what a person should read;
``stories.ndjson`` how those scored that were played: give a copy of it as ``--file`` to go on.
A story is right if each of its asks is; it has the worst score of them.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import psutil

from tests.e2e.conftest import CLUSTER
from tests.faults.bench import has_ended
from tests.faults.search.case import Accept, Layout, Statement, Truth
from tests.faults.search.play import Result, ask
from tests.faults.search.results import table_of_asks
from tests.faults.search.scoring import SCORES, Score
from tests.faults.search.stage import VICTIM, Stage
from tests.netlab import DATA, MANAGEMENT, Host, LabError
from tests.waiting import until

STORIES = Path(__file__).with_name("stories.toml")
LAYOUT = Layout((("node1", 1), ("node2", 1)))


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person should read first."""

    kinds: frozenset[str] = frozenset()
    node: str | None = None
    rank: int | None = None
    well: bool = False

    @property
    def truth(self) -> Truth:
        if self.well:
            return Truth(is_harmless=True)
        nodes = frozenset({self.node} if self.node else ())
        ranks = frozenset(() if self.rank is None else (self.rank,))
        return Truth((Accept(self.kinds, nodes=nodes, ranks=ranks),))


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that is done."""

    code: str = ""
    phase: str = "step"
    attempt: int = 1
    signal: str = ""
    of: str = "rank"
    rank: int | None = None
    shell: str = ""
    node: str = ""
    power: str = ""
    agent: str = ""
    command: tuple[str, ...] = ()
    for_s: float | None = None
    launch: tuple[str, ...] | None = None
    wait: float = 0.0
    ask: Ask | None = None
    in_s: float = 0.0


class Story(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the file."""

    name: str
    sort: str
    layer: str
    steps: tuple[Step, ...]

    @property
    def asks(self) -> tuple[Ask, ...]:
        return tuple(one.ask for one in self.steps if one.ask is not None)


class _File(msgspec.Struct):
    story: tuple[Story, ...]


UNDO = "iptables -F INPUT; ip link set eth1 up"
"""What a story may have left of a node's network."""


def with_defaults(host: Host) -> None:
    """An agent there has the settings that people have."""
    (host.home / ".config" / "mntrain" / "config.toml").unlink()


def stories() -> tuple[Story, ...]:
    return msgspec.toml.decode(STORIES.read_bytes(), type=_File).story


class Teller:
    """Plays one story on the stage."""

    def __init__(self, stage: Stage, story: Story, number: int) -> None:
        self.stage = stage
        self.story = story
        self.chance = Random(f"story {number}")
        self.said: list[Statement] = []
        self._stack = ExitStack()
        self._style = ("ring", "reduce")[number % 2]

    def play(self) -> list[Score]:
        """The score of each ask. Raises what keeps the story from being played."""
        stage, steps = self.stage, self.story.steps
        stage.end_job()
        if not any(one.launch is not None for one in steps):
            stage.launch(LAYOUT, self._style)
            stage.await_steps()
        with self._stack:
            return [found for one in steps if (found := self._do(one)) is not None]

    def first(self) -> list[Statement]:
        """The first line now."""
        return [_statement(one) for one in (self.stage.job.get("first"),) if one]

    def _do(self, step: Step) -> Score | None:
        stage = self.stage
        if step.ask is not None:
            return self._ask(step.ask, step.in_s * stage.patience)
        if step.launch is not None:
            if not stage.launch(LAYOUT, self._style, step.launch):
                raise LabError(f"not launched: {stage.said}")
            if step.launch:
                stage.await_steps()
        elif step.code and step.rank is not None:
            stage.put(LAYOUT, step.rank, step.phase, step.code, step.attempt)
        else:
            self._act(step)
        time.sleep(step.wait * min(stage.patience, 1.5))
        return None

    def _act(self, step: Step) -> None:
        stage = self.stage
        if step.signal:
            self._signal(step)
        elif step.shell:
            place = stage.state(step.node) / "runs" / stage.bench.job / "checkpoints"
            stage.on(step.node, "sh", "-c", step.shell.format(checkpoints=place))
            undo = f"umount --lazy {place}" if step.shell.startswith("mount") else UNDO
            self._stack.callback(stage.on, step.node, "sh", "-c", undo)
        elif step.power:
            self._power(step)
        elif step.agent:
            stage.start_agent(step.agent)
        elif step.command:
            self._command(step)

    def _ask(self, wanted: Ask, within_s: float) -> Score:
        found, said = ask(
            wanted.truth,
            lambda: (self.first(), self.stage.job.get("state", "")),
            within_s,
            self.chance,
        )
        self.said += said or [Statement("other", "nothing")]
        return found

    def _signal(self, step: Step) -> None:
        stage, number = self.stage, signal.Signals[f"SIG{step.signal}"]
        if step.of == "rank":
            assert step.rank is not None
            stage.bench.signal(stage.rank_pid(LAYOUT.names[step.rank], step.rank), number)
            return
        find: dict[str, Callable[..., int]] = {
            "agent": stage.bench.agent,
            "torchrun": stage.bench.torchrun,
            "supervisor": stage.bench.supervisor,
        }
        pid = find[step.of](stage.host(step.node))
        stage.bench.signal(pid, number)
        if number is signal.SIGKILL:
            until(lambda: has_ended(pid), f"{step.of} to end")
            if step.of == "agent":
                self._stack.callback(self._have_agent, step.node)
        elif step.of == "agent":
            self._stack.callback(_go_on, pid)

    def _have_agent(self, node: str) -> None:
        """Start it, unless the story has done so."""
        try:
            self.stage.bench.agent(self.stage.host(node))
        except ValueError:
            self.stage.start_agent(node)

    def _power(self, step: Step) -> None:
        stage, host = self.stage, self.stage.host(step.node)
        if step.power == "off":
            for interface in (DATA, MANAGEMENT):
                stage.bench.lab.set_port(host, interface, is_up=False)
            host.power_cut()
            stage.spoil()
        else:
            host.power_on()

    def _command(self, step: Step) -> None:
        words = [one.format(victim=VICTIM) for one in step.command]
        asked = [self.stage.mntrain, "--cluster", CLUSTER, *words]
        out = subprocess.DEVNULL
        running = self.stage.host("node3").popen(asked, stdin=out, stdout=out, stderr=out)
        try:
            running.wait(step.for_s or 60.0 * self.stage.patience)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def _go_on(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).send_signal(signal.SIGCONT)


def tell(stage: Stage, story: Story, number: int) -> Result:
    """Play a story and mend the stage. Never raises for what a story does to the lab."""
    begun_s = time.monotonic()
    teller, trouble = Teller(stage, story, number), ""
    scores: list[Score] = []
    try:
        scores = teller.play()
    except Exception as error:  # noqa: BLE001 - whatever a story does to the lab, the next one runs
        trouble = f"{type(error).__name__}: {str(error)[:300]}"
        stage.spoil()
    state = str(stage.job.get("state", ""))
    with suppress(LabError):
        stage.end_job()
    stage.mend(keep_job=False)
    return Result(
        seed=number,
        stratum=story.layer,
        case=f"{story.sort}: {story.name}",
        is_hard=story.sort != "single",
        truth=" then ".join(_told(one) for one in story.asks),
        verdict=tuple(teller.said),
        state=state,
        score=max(scores, key=SCORES.index, default="silent"),
        known_after_s=None,
        seconds=round(time.monotonic() - begun_s, 1),
        parameters=({"asks": scores},),
        trouble=trouble,
    )


INTRODUCTION = """
`python -m tests.faults.search --stories --runs 60 --first 0` plays sixty faults and chains of
faults that were written down, with what a person should read, before the first of them was played
(`tests/faults/search/stories.toml`): single ones of new kinds, two and three on one job with
repairs and pauses between them, two at once, faults while a job starts, saves or resumes, of its
numbers, and while drivers come and go. Each time a person would ask, at a random moment within 5
s after it must be known, the first line of the status alone is compared as data: kind, node and
rank. A story is right if each of its first lines is. It counts as it was played first, also where
its miss has been fixed since. Whatever number is played is drawn from all sixty. Agents
have the default settings.
"""


def section(results: Sequence[Result]) -> str:
    """The section of docs/faults.md.

    Raises:
        ValueError: nothing was measured.
    """
    played = [one for one in results if not one.trouble]
    if not played:
        raise ValueError("no story was played")
    left = len(stories()) - len(played)
    said = f"{len(played)} of {len(stories())} were played" if left else "All were played"
    return f"{INTRODUCTION}\n{said}:\n\n{table_of_asks(played)}\n"


def _statement(first: dict[str, Any]) -> Statement:
    return Statement(
        "cause" if first["hurt"] == "failed" else "stall",
        first["kind"],
        first["node"],
        first["rank"],
        bool(first["fix"]),
        text=first["cause"],
    )


def _told(ask: Ask) -> str:
    if ask.well:
        return "nothing"
    where = "" if ask.node is None else f" on {ask.node}"
    return "/".join(sorted(ask.kinds)) + where + ("" if ask.rank is None else f" rank {ask.rank}")
