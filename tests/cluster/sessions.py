"""Whatever happens to a session: cells, interrupts, kernel restarts, kills, in random order.

``python -m tests.cluster.sessions --runs 10 --first 1`` on two loopback agents with two ranks each,
without root. Each seed is one order of 100 cells, 20 interrupts, 10 kernel restarts, 5 killed
ranks, 2 restarts of an agent, 2 drivers that are killed, and 2 nodes that go away during a cell. No
call may take longer than ``CALL_S``; each rank's variables are those that its cells have made;
what ends a rank is named with it, and ``session restart`` brings the ranks back; at the end no
process, thread of a rank or child of an agent is left. Prints a line per run, with the longest
that each kind of act has taken, and the acts before a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import psutil

from jupyter_mntrain.agent.attempt.processes import describe, kill_all, marked
from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.cluster.rank_session import CellEvent, Unheard, Waiting
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.job import SESSION, JobSpec
from jupyter_mntrain.model.records.session import Done, State, Text
from tests.agent.live import LiveAgent, addresses_of, two_agents
from tests.trusted import install_drivers
from tests.waiting import until

T = TypeVar("T")

RANKS: Final = 4
CALL_S: Final = 150.0
"""Of one call: what takes seconds, on a machine that is busy with other work."""
GROUP_THREADS: Final = 4
"""Of one of Gloo's process groups."""
MNTRAIN: Final = str(Path(sys.executable).with_name("mntrain"))

COUNT: Final = "n = globals().get('n', 0) + 1\n"
ADD: Final = f"{COUNT}x = torch.ones(1) * n\ndist.all_reduce(x)\nprint('sum', n, int(x))"
BEGIN: Final = f"{COUNT}import time\nprint('begun', n)\n"
SLOW: Final = f"{BEGIN}time.sleep({{seconds:.2f}})\nprint('ended', n)"
FAIL: Final = f"{COUNT}print('fails', n)\nif rank == {{rank}}:\n    raise ValueError(n)"
WRITE: Final = f"{COUNT}print('long', n)\nfor k in range(20_000):\n    print(k, '.' * 90)"
ENDLESS: Final = {
    "loop": "while True: pass",
    "sleep": "time.sleep(3600)",
    "other in a collective": "if rank == {rank}:\n    dist.all_reduce(torch.ones(1))",
    "all in receives": "dist.recv(torch.ones(1), src=(rank + 1) % world_size)",
    "one computes": (
        "while rank == {rank}: pass\nif rank != {rank}:\n    dist.all_reduce(torch.ones(1))"
    ),
    "asks": "if rank == {rank}:\n    input('? ')",
    "holds the lock": (
        "import ctypes\nif rank == {rank}:\n    ctypes.PyDLL(None).usleep(2_000_000)\n"
        "time.sleep(3600)"
    ),
    "catches it": "try:\n    time.sleep(3600)\nexcept KeyboardInterrupt:\n    time.sleep(3600)",
}
"""What cells do until they are interrupted."""

Kind = str
WHOLE: Final[dict[Kind, int]] = {
    "cell": 100,
    "interrupt": 20,
    "kernel restart": 10,
    "killed rank": 5,
    "agent restart": 2,
    "killed driver": 2,
    "node gone": 2,
}
SHORT: Final[dict[Kind, int]] = {"cell": 3, "interrupt": 1, "kernel restart": 1, "killed rank": 1}


class Act(NamedTuple):
    """One thing that happens.

    Args:
        how: of several ways; a share of them.
        rank: that it happens to.
        delay: a share of the time within which it happens.
    """

    kind: Kind
    how: float
    rank: int
    delay: float

    def one_of(self, ways: Iterable[T]) -> T:
        several = [*ways]
        return several[int(self.how * len(several))]

    def __str__(self) -> str:
        return f"{self.kind} (how {self.how:.2f}, rank {self.rank}, delay {self.delay:.2f})"


def drawn(seed: int, counts: dict[Kind, int]) -> list[Act]:
    """Acts of a seed. Pure: the same on every machine."""
    chance = random.Random(f"sessions {seed}")
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    chance.shuffle(kinds)
    return [Act(kind, chance.random(), chance.randrange(RANKS), chance.random()) for kind in kinds]


class WrongError(AssertionError):
    """What must hold does not."""


class Call(Generic[T]):
    """Work in a thread of its own, which may hang."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._found: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._found.append(work())
        except BaseException as error:  # noqa: BLE001 - raised where its result is asked for
            self._error = error

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def result(self, what: str, within_s: float = CALL_S) -> T:
        self._thread.join(within_s)
        if self._thread.is_alive():
            frame = sys._current_frames().get(self._thread.ident or 0)
            stack = "".join(traceback.format_stack(frame)[-6:])
            raise WrongError(f"hangs: {what} has not ended after {within_s:.0f} s:\n{stack}")
        if self._error is not None:
            raise self._error
        return self._found[0]


class Cell:
    """What has come of a cell so far."""

    def __init__(self) -> None:
        self.texts = dict.fromkeys(range(RANKS), "")
        self.done: dict[int, Done] = {}
        self.waits_s: list[float] = []
        self.unheard_s: list[float] = []
        """When it was said that ranks wait for others, or do not answer."""

    def take(self, events: Iterable[CellEvent]) -> Cell:
        for event in events:
            if isinstance(event, Text):
                self.texts[event.rank] += event.text
            elif isinstance(event, Done):
                self.done[event.rank] = event
            elif isinstance(event, Waiting):
                self.waits_s.append(time.monotonic())
            elif isinstance(event, Unheard):
                self.unheard_s.append(time.monotonic())
        return self

    @property
    def ends(self) -> dict[int, str]:
        return {rank: one.end for rank, one in sorted(self.done.items())}


class World:
    """Two nodes, a driver, and a session that things happen to."""

    def __init__(self, agents: list[LiveAgent], open_cluster: Callable[[], Cluster]) -> None:
        self._agents, self._open = agents, open_cluster
        self.longest: dict[str, float] = {}
        self._cluster = open_cluster()
        self._until_up()
        members = self._cluster.participants([f"{one.name}:2" for one in agents])
        environment = {"OMP_NUM_THREADS": "1"}
        spec = JobSpec(entry=("-m", SESSION), participants=members, environment=environment)
        self._attach(self._cluster.launch(spec))
        self._until_ready()

    def play(self, act: Act) -> None:
        begun_s = time.monotonic()
        {
            "cell": self._cell,
            "interrupt": self._interrupt,
            "kernel restart": self._kernel_restart,
            "killed rank": self._killed_rank,
            "agent restart": self._agent_restart,
            "killed driver": self._killed_driver,
            "node gone": self._node_gone,
        }[act.kind](act)
        self._note(act.kind, time.monotonic() - begun_s)

    def end(self) -> None:
        """End the session, and look for what is left."""
        job = self._job
        self._do(lambda: (job.stop(), job.wait()), "the stop")
        until(lambda: not self._left(), f"nothing to be left: {self._left()}", CALL_S)

    def close(self) -> None:
        """End the driver."""
        self._cluster.close()

    def check_threads(self) -> None:
        """No rank has more threads than at first, but for those of one process group, which the
        traceback of its last error may hold: those of connections and other groups end with them.
        """

        def is_few() -> bool:
            now = self._count_threads()
            most = [count + GROUP_THREADS for count in self._threads]
            return all(one <= count for one, count in zip(now, most, strict=True))

        until(is_few, f"no more threads of ranks than {self._threads}", CALL_S)

    # Acts

    def _cell(self, act: Act) -> None:
        way = act.one_of(("all", "all", "all", "some", "fails", "writes"))
        ranks = range(RANKS) if way != "some" else sorted({act.rank, int(act.delay * RANKS)})
        if way in {"all", "some"}:
            code = ADD if way == "all" else f"{COUNT}print('some', n)"
        else:
            code = FAIL.format(rank=act.rank) if way == "fails" else WRITE
        found = self._do(lambda: Cell().take(self._session.run(code, ranks)), f"a cell: {way}")
        failing = act.rank if way == "fails" else None
        _same(found.ends, {rank: "error" if rank == failing else "ok" for rank in ranks})
        for rank in ranks:
            self._n[rank] += 1
        for rank in ranks:
            n = self._n[rank]
            text = {
                "all": f"sum {n} {sum(self._n)}\n",
                "some": f"some {n}\n",
                "fails": f"fails {n}\n",
                "writes": f"long {n}\n" + "".join(f"{k} {'.' * 90}\n" for k in range(20_000)),
            }[way]
            if found.texts[rank] != text:
                written = found.texts[rank][:300]
                raise WrongError(f"rank {rank} has written {written!r}, not {text[:300]!r}")

    def _interrupt(self, act: Act) -> None:
        way = act.one_of(ENDLESS)
        cell = Cell()
        code = BEGIN + ENDLESS[way].format(rank=act.rank)
        running = Call(lambda: cell.take(self._session.run(code)))
        until(lambda: running.is_over or any(cell.texts.values()), "a cell to begin", CALL_S)
        time.sleep(act.delay * 1.5)
        begun_s = time.monotonic()
        if way == "other in a collective" and act.delay > 0.5:
            until(lambda: cell.waits_s or running.is_over, "a deadlock to be named", CALL_S)
            self._note("to a deadlock's name", time.monotonic() - begun_s)
        begun_s = time.monotonic()
        times = 2 if way == "catches it" else 1
        for _ in range(times):
            self._do(self._session.interrupt, f"an interrupt: {way}")
            if times > 1:
                time.sleep(0.5)
        self._finish(running, f"an interrupted cell: {way}")
        self._note("from interrupt to end", time.monotonic() - begun_s)
        alone = way in {"other in a collective", "asks"}
        for rank, end in cell.ends.items():
            if end != "interrupted" and not (alone and rank != act.rank and end == "ok"):
                raise WrongError(f"{way}: rank {rank} ended with {end}: {cell.done[rank]}")
        self._learn()

    def _kernel_restart(self, act: Act) -> None:
        code = SLOW.format(seconds=2 * act.how)
        events = self._session.run(code)
        seen = Cell()
        for event in events:
            seen.take([event])
            if any(seen.texts.values()):
                break
        time.sleep(act.delay)
        # Its objects are not closed in any order: a kernel just ends.
        self._do(self._cluster.close, "closing a cluster")
        self._cluster = self._open()
        self._until_up()
        self._attach(self._cluster.job(self._job.id))
        found = self._do(lambda: Cell().take(self._session.follow()), "following a cell")
        self._ran_slowly(found)

    def _agent_restart(self, act: Act) -> None:
        code = SLOW.format(seconds=3 * act.how)
        cell = Cell()
        running = Call(lambda: cell.take(self._session.run(code)))
        until(lambda: running.is_over or any(cell.texts.values()), "a cell to begin", CALL_S)
        time.sleep(act.delay)
        agent = self._agents[act.rank // 2]
        agent.kill()
        agent.start()
        self._finish(running, "a cell whose agent is started again")
        self._ran_slowly(cell)
        self._until_up()

    def _killed_driver(self, act: Act) -> None:
        code = SLOW.format(seconds=2 * act.how)
        with subprocess.Popen(
            [MNTRAIN, "cell", "--session", self._job.id],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environment,
        ) as driver:
            assert driver.stdin is not None
            driver.stdin.write(code.encode())
            driver.stdin.close()
            time.sleep(4 * act.delay)  # it may not have come to its cell
            driver.send_signal(signal.SIGKILL)
        self._until_idle()
        self._learn()

    def _killed_rank(self, act: Act) -> None:
        pids = {one.rank: one.pid for part in self._job.view().parts for one in part.ranks}
        pid = pids[act.rank]
        assert pid is not None
        if act.one_of((True, False)):
            cell = Cell()
            code = BEGIN + act.one_of(("", "", *ENDLESS.values())).format(rank=act.rank)
            code += "\ndist.barrier()\ntime.sleep(3600)"
            running = Call(lambda: cell.take(self._session.run(code)))
            until(lambda: running.is_over or any(cell.texts.values()), "a cell to begin", CALL_S)
            time.sleep(act.delay)
            begun_s = time.monotonic()
            os.kill(pid, signal.SIGKILL)
        else:
            begun_s = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            time.sleep(act.delay * 0.5)
            running = Call(lambda: Cell().take(self._session.run(ADD)))
        problem = self._failed(running, "a cell of a killed rank")
        self._note("from a rank's kill to its name", time.monotonic() - begun_s)
        if problem.problem.rank != act.rank:
            raise WrongError(f"rank {act.rank} was killed, and {problem.problem} said")
        self._restart()

    def _node_gone(self, act: Act) -> None:
        agent = self._agents[act.rank // 2]
        cell = Cell()
        code = BEGIN + act.one_of(("dist.barrier()\n", "")) + "time.sleep(3600)"
        running = Call(lambda: cell.take(self._session.run(code)))
        until(lambda: running.is_over or any(cell.texts.values()), "a cell to begin", CALL_S)
        time.sleep(act.delay)
        begun_s = time.monotonic()
        agent.kill()
        for attempt in agent.state.glob("jobs/*/attempt-*"):
            kill_all(partial(marked, attempt))
        problem = self._failed(running, "a cell whose node is gone")
        self._note("from a node's loss to the cell's end", time.monotonic() - begun_s)
        # On loopback its ranks' connections end with it, and so may a cell that uses them.
        said_s = min(cell.unheard_s, default=begun_s)
        self._note("from a node's loss to its name", said_s - begun_s)
        if agent.name not in f"{problem.problem.node} {problem}":
            raise WrongError(f"{agent.name} is gone, and {problem.problem} said")
        agent.start()
        self._until_up()
        self._restart()

    # What must hold

    def _ran_slowly(self, found: Cell) -> None:
        _same(found.ends, dict.fromkeys(range(RANKS), "ok"))
        for rank in range(RANKS):
            self._n[rank] += 1
            n = self._n[rank]
            if found.texts[rank] != f"begun {n}\nended {n}\n":
                raise WrongError(f"rank {rank}, cell {n}: {found.texts[rank]!r}")

    def _learn(self) -> None:
        """Which ranks have come to count; all of them can add again."""
        found = self._do(lambda: Cell().take(self._session.run(ADD)), "the cell after")
        _same(found.ends, dict.fromkeys(range(RANKS), "ok"))
        told = [found.texts[rank].split() for rank in range(RANKS)]
        for rank, words in enumerate(told):
            n = int(words[1])
            if n - self._n[rank] not in {1, 2}:
                raise WrongError(f"rank {rank} has counted to {n} after {self._n[rank]}")
            self._n[rank] = n
        if {int(words[2]) for words in told} != {sum(self._n)}:
            raise WrongError(f"{told} is not the sum of {self._n}")

    def _failed(self, running: Call[Cell], what: str) -> MntrainError:
        try:
            found = self._finish(running, what)
        except MntrainError as error:
            return error
        raise WrongError(f"{what} ended with {found.ends}")

    # How it is done

    def _restart(self) -> None:
        begun_s = time.monotonic()
        done = subprocess.run(
            [MNTRAIN, "session", "restart", self._job.id, "--json"],
            capture_output=True,
            check=False,
            text=True,
            env=self._environment,
            timeout=CALL_S,
        )
        if done.returncode:
            raise WrongError(f"session restart: {done.stderr}")
        self._note("session restart", time.monotonic() - begun_s)
        job = self._cluster.job(json.loads(done.stdout)["job_id"])
        self._attach(job)
        self._until_ready()

    def _attach(self, job: Job) -> None:
        if not hasattr(self, "_job") or job.id != self._job.id:
            self._n = [0] * RANKS
            self._threads: list[int] = []
        self._job, self._session = job, job.session()

    def _until_up(self) -> None:
        until(
            lambda: [node.liveness for node in self._cluster.nodes()] == ["up", "up"],
            "both nodes",
            CALL_S,
        )

    def _until_ready(self) -> None:
        self._do(self._session.wait, "ranks to be ready")
        self._threads = self._count_threads()

    def _until_idle(self) -> None:
        def is_idle() -> bool:
            told = self._session.states().values()
            return all(isinstance(one, State) and not one.is_running for one in told)

        until(is_idle, "the cell to end", CALL_S)

    def _count_threads(self) -> list[int]:
        code = "import os; print(len(os.listdir('/proc/self/task')))"
        found = self._do(lambda: Cell().take(self._session.run(code)), "counting threads")
        return [int(found.texts[rank]) for rank in range(RANKS)]

    def _finish(self, running: Call[Cell], what: str) -> Cell:
        try:
            return running.result(what)
        except WrongError as error:
            where = Call(self._session.where).result("asking where ranks are", 30)
            raise WrongError(f"{error}\n{where}") from None

    def _do(self, work: Callable[[], T], what: str) -> T:
        return Call(work).result(what)

    def _note(self, what: str, seconds: float) -> None:
        self.longest[what] = max(seconds, self.longest.get(what, 0.0))

    @property
    def _environment(self) -> dict[str, str]:
        own = {"MNTRAIN_CLUSTER": self._agents[0].cluster}
        return {**os.environ, **own, "MNTRAIN_AGENTS": addresses_of(self._agents)}

    def _left(self) -> list[Any]:
        found: list[Any] = []
        for agent in self._agents:
            for attempt in agent.state.glob("jobs/*/attempt-*"):
                found += [describe(pid) for pid in marked(attempt)]
            assert agent.process is not None
            children = psutil.Process(agent.process.pid).children(recursive=True)
            found += [describe(child.pid) for child in children]
        return found


def _same(found: dict[int, str], wanted: dict[int, str]) -> None:
    if found != wanted:
        raise WrongError(f"ranks ended with {found}, not {wanted}")


@contextmanager
def two_nodes(directory: Path) -> Iterator[tuple[list[LiveAgent], Callable[[], Cluster]]]:
    network = f"127.{60 + os.getpid() % 30}.{os.getpid() % 250}"
    with two_agents(network, directory / "state", "test") as agents:
        addresses = [agent.where for agent in agents]
        yield agents, lambda: Cluster("test", addresses=addresses)


def run(seed: int, counts: dict[Kind, int], directory: Path) -> tuple[World | None, str | None]:
    """Play one seed; what was played, and what was wrong."""
    before: list[Act] = []
    world = None
    try:
        with two_nodes(directory) as nodes:
            world = World(*nodes)
            for act in drawn(seed, counts):
                before.append(act)
                world.play(act)
            world.check_threads()
            world.end()
    except Exception as error:  # noqa: BLE001 - whatever it is, the acts before it are told
        acts = "; ".join(str(act) for act in before[-6:])
        where = "" if isinstance(error, WrongError) else traceback.format_exc()
        return world, f"act {len(before)}: {error!r}\n{where}the last acts: {acts}"
    finally:
        if world is not None:
            world.close()
    return world, None


def main(say: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.sessions", description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--short", action="store_true", help="as few acts as the tests play")
    arguments = parser.parse_args()
    counts = SHORT if arguments.short else WHOLE
    wrong: list[int] = []
    with tempfile.TemporaryDirectory() as place:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in tests: ranks share few cores
        for seed in range(arguments.first, arguments.first + arguments.runs):
            begun_s = time.monotonic()
            home = Path(place) / str(seed) / "home"
            for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
                os.environ[variable] = str(home / variable)
            install_drivers(home / "XDG_CONFIG_HOME")
            world, problem = run(seed, counts, Path(place) / str(seed))
            took_s = time.monotonic() - begun_s
            longest = world.longest if world else {}
            told = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in longest.items())
            say(f"{seed}: {took_s:.0f} s; at most: {told}: {problem or 'right'}")
            if problem:
                wrong.append(seed)
    acts = sum(counts.values())
    say(f"{arguments.runs} runs of {acts} acts, {len(wrong)} wrong: {wrong or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
