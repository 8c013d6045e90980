"""Stage: one lab on which many cases are played, mended in between, and rebuilt if it is broken."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from jupyter_mntrain.agent.attempt.processes import environment_of
from jupyter_mntrain.model.api import DEFAULT_PORT
from tests.e2e.conftest import CLUSTER, joined_lab, token_file
from tests.faults.bench import OVER, Bench, has_ended
from tests.faults.search.case import Case, Layout, Statement
from tests.faults.search.statements import of_job, of_node, statement, unfinished
from tests.netlab import Host, LabError
from tests.waiting import until

VICTIM = Path(__file__).with_name("victim.py")

MENDED_S = 30.0
"""For nodes to be up again after a case; a lab that needs longer is rebuilt."""

NORMAL_S = 20.0
"""After this a job's normal speed is known."""

STARTED_S = 60.0
"""For a job to make its first steps, or nodes to be seen."""

COMMAND_S = 60.0

LISTENS_S = 10.0
"""For an agent to listen, if it ever does."""


class Stage:
    """A lab with an observer, on which jobs of drawn layouts run.

    Args:
        mntrain: the command.
        patience: how many times longer things may take than on a quiet machine.
        bench: of a lab that is there already; if it breaks, the stage makes one of its own.
        prepare: of each host of a lab, before its agent is there.
    """

    def __init__(
        self,
        mntrain: str,
        patience: float = 1.0,
        bench: Bench | None = None,
        prepare: Callable[[Host], object] = lambda _: None,
    ) -> None:
        self.mntrain = mntrain
        self._prepare = prepare
        self._given = bench
        self.patience = patience
        self._started_s = STARTED_S * patience
        self.said: list[Statement] = []
        """What commands answered in this case."""
        self.rebuilds = -1
        self._played: tuple[Layout, str] | None = None
        self._is_broken = False
        self._joins = 0
        self._stepping_s = 0.0
        self._stack = ExitStack()
        self._build()

    def close(self) -> None:
        self._stack.close()

    def spoil(self) -> None:
        """The lab cannot be mended: rebuild it after this case."""
        self._is_broken = True

    def host(self, name: str) -> Host:
        return self.bench.lab.host(name)

    @property
    def job(self) -> dict[str, Any]:
        """What is known of the job now."""
        return self.bench.latest

    # Jobs

    def ensure_job(self, layout: Layout, style: str) -> None:
        """A job of this layout that makes steps: the one of the case before, or a new one."""
        job = self.job
        is_sound = job.get("state") == "running" and not job["stall"] and not job["cause"]
        if is_sound and self._played == (layout, style):
            return
        self.end_job()
        self.launch(layout, style)
        self.await_steps()

    def launch(
        self, layout: Layout, style: str, words: Sequence[str] = (), arguments: Sequence[str] = ()
    ) -> bool:
        """Launch a job; what a refusal or a warning says is noted.

        Args:
            words: options of ``launch``.
            arguments: of the script.
        """
        options = self.options(layout, words)
        given = ("--", "--style", style, *arguments)
        answer = self.command("launch", "launch", str(VICTIM), "--detach", *options, *given)
        self._played = (layout, style)
        if answer is None:
            return False
        self.bench.job = answer["job_id"]
        self.said += [statement("launch", warning) for warning in answer.get("warnings", [])]
        return True

    def jobs(self) -> frozenset[str]:
        """Every job that a driver has seen."""
        return frozenset(str(one["job"]) for one in self.bench.seen() if "job" in one)

    def adopt(self, layout: Layout, style: str, job: str) -> None:
        """A job that somebody else has begun; empty for none."""
        self.bench.job, self._played = job, (layout, style)

    def options(self, layout: Layout, words: Sequence[str]) -> tuple[str, ...]:
        """What a launch of this layout takes before the arguments of its script."""
        return (*(() if "--member" in words else layout.members), *words)

    def await_steps(self) -> None:
        until(
            lambda: self.job.get("state") in ("running", *OVER), "the job to run", self._started_s
        )
        hosts = self._hosts()
        until(
            lambda: all(self.bench.has_stepped(host) for host in hosts) or self.is_over,
            "the first steps",
            self._started_s,
        )
        assert not self.is_over, f"the job ended before its first step: {self.job}"
        self._stepping_s = time.monotonic()

    def await_normal(self) -> None:
        """Let the job run for a while at its own speed."""
        time.sleep(max(0.0, self._stepping_s + NORMAL_S * self.patience - time.monotonic()))

    def await_running(self) -> None:
        until(
            lambda: self.job.get("state") in ("running", *OVER), "the job to run", self._started_s
        )

    @property
    def is_over(self) -> bool:
        return self.job.get("state") in OVER

    def steps(self) -> int:
        """Steps that the ranks of each host have reported; a log may lag behind torchrun, which may
        be frozen.
        """
        return min(self.bench.reported(host) for host in self._hosts())

    def end_job(self) -> None:
        if self.bench.job and not self.is_over:
            self.bench._end()
        self.bench.job, self._played = "", None

    # What faults do

    def put(self, layout: Layout, rank: int, phase: str, code: str, attempt: int = 1) -> None:
        """Have a rank run some Python when it comes to that phase."""
        host = next(name for name in layout.names if rank in layout.ranks(name))
        path = self.host(host).home / f"fault-{rank}-{phase}-{attempt}.py"
        path.with_suffix(".tmp").write_text(code)
        path.with_suffix(".tmp").rename(path)

    def rank_pid(self, host: str, rank: int) -> int:
        for pid in sorted(self.host(host).pids()):
            env = environment_of(pid)
            is_ours = env.get("MNTRAIN_JOB") == self.bench.job
            if is_ours and "LOCAL_RANK" in env and env.get("RANK") == str(rank):
                return pid
        raise LabError(f"rank {rank} is not on {host}")

    def state(self, host: str) -> Path:
        """Where a node's agent keeps everything."""
        return self.host(host).home / ".local" / "state" / "mntrain" / "nodes" / host

    def on(self, host: str, *words: str) -> str:
        """A command there, which has to succeed."""
        done = self.host(host).run(list(words))
        if done.returncode:
            raise LabError(f"{host}: {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def command(self, channel: str, *words: str, on: str = "node3") -> Any:
        """A command of ours; its error is something said. ``None`` then."""
        asked = [self.mntrain, "--cluster", CLUSTER, "--json", *words]
        done = self.host(on).run(asked, timeout_s=COMMAND_S * self.patience)
        if done.returncode == 0:
            return json.loads(done.stdout or "null")
        if done.stdout.strip():
            self.said += unfinished(channel, json.loads(done.stdout))
            return None
        try:
            self.said.append(statement(channel, json.loads(done.stderr)))
        except ValueError:
            self.said.append(Statement("command", "traceback", text=done.stderr[-500:]))
        return None

    def kill_agent(self, host: str, number: signal.Signals = signal.SIGKILL) -> None:
        pid = self.bench.agent(self.host(host))
        self.bench.signal(pid, number)
        until(lambda: has_ended(pid), "the agent to end", MENDED_S)

    def start_agent(self, host: str, **environment: str) -> None:
        """Start it, and wait until it listens or has ended."""
        agent = self.bench.restart_agent(self.host(host), **environment)
        connect = ["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{DEFAULT_PORT}"]
        until_s = time.monotonic() + LISTENS_S * self.patience
        while agent.poll() is None and time.monotonic() < until_s:
            if self.host(host).run(connect).returncode == 0:
                return
            time.sleep(0.1)

    def try_join(self, host: str, token: str, environment: dict[str, str]) -> None:
        """Another agent next to the host's own joins; what the command says of it is noted."""
        self._joins += 1
        name = f"new{self._joins}"
        state = self.host(host).home / name
        given = token_file(self.host(host), token)
        words = [self.mntrain, "--json", "agent", "join", "--token-file", given, "--no-run"]
        words += ["--name", name, "--state-dir", str(state), "--port", "8999"]
        try:
            done = self.host(host).run(words, environment=environment, timeout_s=20 * self.patience)
        except subprocess.TimeoutExpired:
            return
        if done.returncode == 0:
            warnings = json.loads(done.stdout).get("warnings", ())
            self.said += [statement("command", one) for one in warnings]
            return
        # Lines of a log may come before the error.
        _, brace, error = done.stderr.rpartition("\n{\n" if "\n{\n" in done.stderr else "{\n")
        if brace:
            self.said.append(statement("command", json.loads("{" + error)))
        else:
            self.said.append(Statement("command", "error", text=done.stderr[-300:]))

    def copy_state(self, state: Path, target: Path) -> None:
        """Also the pipes of running ranks; files that go meanwhile are left out."""
        subprocess.run(["cp", "-a", state, target], check=False, capture_output=True)
        if not target.is_dir():
            raise LabError(f"{state} cannot be copied to {target}")

    @contextmanager
    def other_state(self, host: str) -> Iterator[Path]:
        """An agent that is stopped, with a state directory that may be changed; then as before."""
        state, kept = self.state(host), self.host(host).home / "kept-state"
        self.kill_agent(host)
        self.copy_state(state, kept)
        try:
            yield state
        finally:
            with contextlib.suppress(ValueError):
                self.kill_agent(host)
            shutil.rmtree(state, ignore_errors=True)
            kept.rename(state)
            self.start_agent(host)

    # What is said

    def statements(self, case: Case) -> list[Statement]:
        """All that stands now about the case's job and the nodes."""
        found = list(self.said)
        if self.job.get("attempt", 0) >= (2 if case.moment == "restart" else 0):
            found += of_job(self.job)
        for host in self.bench.lab.hosts:
            found += of_node(self.bench.node(host))
        return found

    # Between cases

    def mend(self, *, keep_job: bool) -> None:
        """After a case: nothing of it is left, or the lab is rebuilt."""
        self.said.clear()
        try:
            if not keep_job or self.job.get("state") != "running":
                self.end_job()
                self._sweep()
            for host in self.bench.lab.hosts:
                for left in host.home.glob("fault-*"):
                    left.unlink()
            if not self._is_broken:
                until(lambda: self.bench.is_whole, "a whole lab", MENDED_S * self.patience)
                return
        except (AssertionError, LabError, psutil.Error, OSError, ValueError):
            pass
        self._rebuild()

    def _sweep(self) -> None:
        """Processes that a frozen supervisor or the like has left."""
        deadline = time.monotonic() + 5
        for host in self.bench.lab.hosts[:2]:
            for pid in sorted(host.pids()):
                if "MNTRAIN_JOB" not in environment_of(pid):
                    continue
                while psutil.pid_exists(pid) and time.monotonic() < deadline:
                    time.sleep(0.1)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _rebuild(self) -> None:
        self._stack.close()
        self._build()

    def _build(self) -> None:
        self._stack = ExitStack()
        self.rebuilds += 1
        self._is_broken, self._played = False, None
        if self._given is not None:
            self.bench, self._given = self._given, None
        else:
            lab = self._stack.enter_context(joined_lab(self.mntrain, self._prepare))
            self.bench = Bench(lab, self.mntrain)
            self._stack.callback(self.bench.close)
        until(lambda: self.bench.is_whole, "the nodes to be seen", self._started_s)

    def _hosts(self) -> list[Host]:
        assert self._played is not None
        return [self.host(name) for name in self._played[0].names]
