"""Chaos: runs with random faults, each replayable by its seed.

``python -m tests.faults.chaos --runs 200 --first 1`` on two loopback agents, without root. After
each run it checks that the job ended as it had to, that no process and no lease is left, that a
journal holds every whole line its ranks wrote, and that an innocent process still lives. Prints a
line per run, and the seeds that failed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec

from jupyter_mntrain.agent.attempt.processes import environment_of
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.records.job import TERMINAL, JobState, JobView
from tests.agent.forking.python import is_torchrun
from tests.agent.live import LiveAgent, launch, two_agents

STEPS = 60
STEP_S = 0.05
MOST_EVENTS = 4
NO_JOB = JobId("")
ENDED_WITHIN_S = 180.0

SCRIPT = f"""
import os, pathlib, time
from jupyter_mntrain import Recorder
kept = pathlib.Path(os.environ["MNTRAIN_CHECKPOINT_DIR"])
kept.mkdir(exist_ok=True)
done = int((kept / "step").read_text()) if (kept / "step").exists() else 0
with Recorder() as recorder:
    for step in range(done + 1, {STEPS} + 1):
        time.sleep({STEP_S})
        print("step", step, flush=True)
        recorder.step(step=step)
        (kept / "step.new").write_text(str(step))
        (kept / "step.new").replace(kept / "step")
"""


@dataclass
class Run:
    """One job and what happens to it."""

    seed: int
    agents: list[LiveAgent]
    job: JobId = field(default=NO_JOB)
    chance: random.Random = field(init=False)
    story: list[str] = field(default_factory=list)
    restarts: int = 0
    harm: int = 0
    """Events that may end an attempt."""
    is_stopped: bool = False

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def run(self) -> str | None:
        """What was wrong, if anything was."""
        self.restarts = self.chance.randrange(3)
        self.job = launch(self.agents, SCRIPT, max_restarts=self.restarts)
        events = [self.rank, self.torchrun, self.keeper, self.agent, self.agent, self.freeze]
        events += [self.stop]
        for _ in range(self.chance.randrange(1, MOST_EVENTS + 1)):
            time.sleep(self.chance.random() * 4)
            what = self.chance.choice(events)
            self.story.append(what.__name__)
            what(self.chance.choice(self.agents))
        return self.end() or self.check()

    # What may happen

    def rank(self, agent: LiveAgent) -> None:
        number = self.chance.choice([signal.SIGTERM, signal.SIGKILL])
        self.harm += self._signal(agent, lambda env, words: "LOCAL_RANK" in env, number)

    def torchrun(self, agent: LiveAgent) -> None:
        number = self.chance.choice([signal.SIGTERM, signal.SIGKILL])
        is_it = lambda env, words: "LOCAL_RANK" not in env and is_torchrun(words.split())  # noqa: E731
        self.harm += self._signal(agent, is_it, number)

    def keeper(self, agent: LiveAgent) -> None:
        for path in agent.state.glob(f"jobs/{self.job}/attempt-*/keeper.json"):
            pid = msgspec.json.decode(path.read_bytes())["pid"]
            if self.job in _words(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.harm += 1

    def agent(self, agent: LiveAgent) -> None:
        agent.kill()
        time.sleep(self.chance.random() * 2)
        agent.start()

    def freeze(self, agent: LiveAgent) -> None:
        is_rank = lambda env, words: "LOCAL_RANK" in env  # noqa: E731
        self._signal(agent, is_rank, signal.SIGSTOP)
        time.sleep(self.chance.random() * 2)
        self._signal(agent, is_rank, signal.SIGCONT)

    def stop(self, _: LiveAgent) -> None:
        for agent in self.agents:
            agent.send("POST", f"/v1/jobs/{self.job}/stop", {"reason": "chaos"})
        self.is_stopped = True

    # How it must end

    def view(self) -> JobView:
        return roll_up([agent.record(self.job) for agent in self.agents])

    def end(self) -> str | None:
        deadline = time.monotonic() + ENDED_WITHIN_S
        while self.view().state not in TERMINAL:
            if time.monotonic() > deadline:
                return f"does not end: {self.view().state}"
            time.sleep(0.1)
        return None

    def check(self) -> str | None:
        state, allowed = self.view().state, self.allowed()
        if state not in allowed:
            return f"ended as {state}, not as {' or '.join(sorted(allowed))}"
        deadline = time.monotonic() + 15
        while left := self.left():
            if time.monotonic() > deadline:
                return f"left: {left}"
            time.sleep(0.1)
        return self.lost_lines()

    def allowed(self) -> set[JobState]:
        if self.is_stopped:
            # It may have been over by then.
            return {"canceled", "failed", "succeeded"}
        if self.harm == 0:
            return {"succeeded"}
        return {"succeeded"} if self.harm <= self.restarts else {"succeeded", "failed"}

    def left(self) -> list[str]:
        found = [
            f"pid {pid}: {_words(pid)}"
            for pid in map(int, filter(str.isdigit, os.listdir("/proc")))  # noqa: PTH208
            if environment_of(pid).get("MNTRAIN_JOB") == self.job
        ]
        for agent in self.agents:
            found += [f"a lease on {agent.name}" for _ in agent.info().leases]
        return found

    def lost_lines(self) -> str | None:
        for agent in self.agents:
            journal = (agent.state / "jobs" / self.job / "journal.ndjson").read_bytes()
            for path in agent.state.glob(f"jobs/{self.job}/attempt-*/metrics/rank-*.ndjson"):
                written = path.read_bytes()
                whole = written[: written.rfind(b"\n") + 1].splitlines()
                lost = [line for line in whole if line not in journal]
                if lost:
                    return f"{len(lost)} lines of {path.name} are not in the journal: {lost[0]!r}"
        return None

    def _signal(
        self, agent: LiveAgent, is_it: Callable[[dict[str, str], str], bool], number: int
    ) -> int:
        """How many were there."""
        mark = str(agent.state)
        count = 0
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):  # noqa: PTH208
            env = environment_of(pid)
            is_here = env.get("MNTRAIN_METRICS_DIR", "").startswith(mark)
            if env.get("MNTRAIN_JOB") == self.job and is_here and is_it(env, _words(pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                    count += 1
        return count


def search(seeds: Iterable[int]) -> dict[int, str]:
    """What went wrong, by seed. Prints a line per run."""
    found = {}
    innocent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)  # train.py"])
    with (
        tempfile.TemporaryDirectory() as state,
        two_agents("127.96.0", Path(state), "test") as agents,
    ):
        for seed in seeds:
            run = Run(seed, agents)
            try:
                wrong = run.run()
            except (AssertionError, httpx.HTTPError) as error:
                wrong = f"{type(error).__name__}: {error}"
            if innocent.poll() is not None:
                wrong = "an innocent process was ended"
            story = ", ".join(run.story)
            said = f"{run.restarts} restarts; {story}; {wrong or run.view().state}"
            print(f"seed {seed}: {said}", flush=True)
            if wrong:
                found[seed] = wrong
                for agent in agents:
                    with suppress(httpx.HTTPError):
                        path = f"/v1/jobs/{run.job}/stop"
                        agent.send("POST", path, {"reason": "chaos", "grace_s": 0})
    innocent.kill()
    innocent.wait()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, help="seed of the first run")
    arguments = parser.parse_args()
    failed = search(range(arguments.first, arguments.first + arguments.runs))
    print(f"{arguments.runs - len(failed)} of {arguments.runs} right; failed: {list(failed)}")
    return bool(failed)


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
