"""Kills at random moments, twice in a row, and then the losses of a run that was never broken.

``python -m tests.cluster.kills --runs 20 --first 1 --file kills.json`` on two loopback agents,
without root. Each seed is one run of the built-in trainer: it is killed at a random moment after a
random step (a rank, all ranks of a node, or both nodes with their agents), resumed on random ranks,
killed again, and resumed to its end. Every loss of every attempt is compared with those of an
unbroken run, to the last bit. Prints a line per run; results of all calls add up in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from jupyter_mntrain.agent.attempt.processes import kill_all, marked
from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.files import SHARED, write_atomically
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec
from jupyter_mntrain.workload.workload import from_path
from tests.agent.live import LiveAgent, two_agents
from tests.train.test_command import write_text
from tests.trusted import install_drivers
from tests.waiting import until

STEPS = 60
ENDED_S = 900.0
WITHIN_S = 0.2
"""A few steps and a save of this run."""

RESUMED = "resumed after step"
MEMBERS = (
    ("node1:1", "node2:1"),
    ("node2:1", "node1:1"),
    ("node1:2", "node2:1"),
    ("node1:1", "node2:2"),
)
"""Both nodes take part in each: shards are on the nodes' own disks."""

RECIPE = """
[model]
preset = "llama-tiny"
[data]
source = "{text}"
vocabulary_size = 300
sequence_length = 16
[pipeline]
microbatches = 4
[train]
steps = {steps}
batch_size = 4
timeout_s = 600
[checkpoint]
interval_steps = 3
[output]
at_end = false
[report]
to = []
"""


class Told(NamedTuple):
    """How one seed went."""

    story: list[str]
    problem: str | None


class Trial:
    """Two nodes on which runs are broken and resumed.

    Args:
        directory: for the recipe and the text.
    """

    def __init__(self, cluster: Cluster, agents: list[LiveAgent], directory: Path) -> None:
        self._cluster, self._agents = cluster, agents
        self._recipe = directory / "recipe.toml"
        text = write_text(directory / "text")
        self._recipe.write_text(RECIPE.format(text=text, steps=STEPS))
        self._unbroken: dict[int, float | None] = {}

    def run(self, seed: int) -> Told:
        """Break and resume one run."""
        if not self._unbroken:
            whole = self._cluster.launch(self._spec(MEMBERS[0]))
            assert whole.wait(ENDED_S).state == "succeeded", whole.logs()
            self._unbroken = losses(whole)
            assert len(self._unbroken) == STEPS
        chance, story = random.Random(seed), []
        job = self._cluster.launch(self._spec(chance.choice(MEMBERS)))
        for _ in range(2):
            story.append(self._kill(job, chance))
            if problem := self._differs(job):
                return Told(story, problem)
            job, said = self._resumed(job, chance)
            story.append(said)
        view = job.wait(ENDED_S)
        if view.state != "succeeded":
            return Told(story, f"{job.id} is {view.state}: {view.problem}")
        last = losses(job)
        if max(last) != STEPS:
            return Told(story, f"{job.id} ended after step {max(last)}")
        return Told(story, self._differs(job))

    def _spec(self, members: tuple[str, ...]) -> JobSpec:
        made = from_path(self._recipe)
        participants = self._cluster.participants(members)
        return JobSpec(entry=made.entry, files=made.files, participants=participants)

    def _kill(self, job: Job, chance: random.Random) -> str:
        """Kill something at a random moment after a random step; wait for the end."""
        job.watch()
        origin = job.view().spec.origin
        begun = (origin.step or 0) if origin else 0
        step = chance.randint(begun + 1, max(begun + 1, begun + (STEPS - begun) // 2))
        until(lambda: last_step(job) >= step or job.state in TERMINAL, f"step {step}", ENDED_S)
        time.sleep(chance.uniform(0.0, WITHIN_S))  # also while it saves
        victims = [rank.pid for part in job.view().parts for rank in part.ranks if rank.pid]
        how = chance.choice(("a rank", "a node's ranks", "both nodes"))
        if how == "both nodes":
            self._crash()
        elif victims:
            several = [part for part in job.view().parts if part.ranks]
            part = chance.choice(several)
            own = [rank.pid for rank in part.ranks if rank.pid]
            for pid in own if how == "a node's ranks" else [chance.choice(victims)]:
                end(pid)
        until(lambda: job.state in TERMINAL, f"the end of {job.id}", ENDED_S)
        return f"{how} after step {step}: {job.state}"

    def _crash(self) -> None:
        """Both nodes lose all processes at once, and start again."""
        for agent in self._agents:
            agent.kill()
            for attempt in agent.state.glob("jobs/*/attempt-*"):
                kill_all(partial(marked, attempt))
        for agent in self._agents:
            agent.start()
        until(self._is_whole, "both nodes", ENDED_S)

    def _is_whole(self) -> bool:
        return [node.liveness for node in self._cluster.nodes()] == ["up", "up"]

    def _resumed(self, job: Job, chance: random.Random) -> tuple[Job, str]:
        """Go on from what was saved; start over if nothing was."""
        spec = self._spec(chance.choice(MEMBERS))
        nproc = sum(one.nproc for one in spec.participants)
        if job.state == "succeeded":
            return job, "it had ended already"
        try:
            resumed = self._cluster.resume(job.id, spec=spec)
        except RefusedError as error:
            if error.kind is not Kind.NO_CHECKPOINT or job.checkpoints().checkpoints:
                raise
            return self._cluster.launch(spec), "nothing was saved: started over"
        origin = resumed.view().spec.origin
        assert origin is not None
        return resumed, f"{RESUMED} {origin.step} on {nproc} ranks"

    def _differs(self, job: Job) -> str | None:
        found = losses(job)
        origin = job.view().spec.origin
        first = 1 + (origin.step or 0 if origin else 0)
        if found and min(found) != first:
            return f"{job.id} began with step {min(found)}, not {first}"
        wrong = [step for step, loss in found.items() if loss != self._unbroken[step]]
        return f"{job.id}: other losses in steps {wrong}" if wrong else None


def last_step(job: Job) -> int:
    """That its ranks have reported."""
    return max((one.steps[-1].step for one in job.history().ranks.values() if one.steps), default=0)


def losses(job: Job) -> dict[int, float | None]:
    """Of every step that the job made; empty if it made none."""
    history = job.wait_for_history(ENDED_S)
    ranks = [one for one in history.ranks.values() if one.steps]
    found = {}
    for series in ranks:
        found |= {one.step: one.loss for one in series.steps if one.loss is not None}
    return found


def end(pid: int) -> None:
    with suppress(ProcessLookupError):  # it has ended by itself
        os.kill(pid, signal.SIGKILL)


@contextmanager
def trial(directory: Path) -> Iterator[Trial]:
    """Two agents and a driver of their own."""
    network = f"127.{100 + os.getpid() % 90}.{os.getpid() % 250}"
    with (
        two_agents(network, directory / "state", "test") as agents,
        Cluster("test", addresses=[agent.where for agent in agents]) as cluster,
    ):
        made = Trial(cluster, agents, directory)
        until(made._is_whole, "both nodes", ENDED_S)
        yield made


def main(say: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.kills", description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--file", type=Path, help="adds up the results of all calls")
    arguments = parser.parse_args()
    known: dict[str, Any] = {}
    if arguments.file is not None and arguments.file.exists():
        known = json.loads(arguments.file.read_text())
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) / "home"
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in tests: ranks share few cores
        for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            os.environ[variable] = str(home / variable)
        install_drivers(home / "XDG_CONFIG_HOME")
        with trial(Path(place)) as made:
            for seed in range(arguments.first, arguments.first + arguments.runs):
                told = made.run(seed)
                known[str(seed)] = told._asdict()
                say(f"{seed}: {'; '.join(told.story)}: {told.problem or 'equal losses'}")
                if arguments.file is not None:
                    content = msgspec.json.format(msgspec.json.encode(known))
                    write_atomically(arguments.file, content, mode=SHARED)
    wrong = sorted(int(seed) for seed, told in known.items() if told["problem"])
    resumed = sum(RESUMED in line for told in known.values() for line in told["story"])
    say(f"{len(known)} runs, {resumed} times resumed, {len(wrong)} wrong: {wrong or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
