"""Fault bench: three hosts, a job on two of them and an observer on the third."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from jupyter_mntrain.agent.attempt.processes import environment_of
from tests.agent.forking.python import forking_python, is_torchrun
from tests.e2e.conftest import CLUSTER, start
from tests.faults.table import WRITES_PAGE
from tests.netlab import Host, HostProcess, Lab
from tests.netlab.terminal import type_on
from tests.searches import runs_all
from tests.waiting import until

STARTED_S = 240.0
"""For torch to be imported by two ranks and two torchruns on two busy cores."""

SCRIPT = Path(__file__).with_name("training.py")
IS_LONG = runs_all() or WRITES_PAGE

OVER = ("succeeded", "failed", "canceled")


class Bench:
    """Starts jobs on node1 and node2, and knows what a driver on node3 is told about them."""

    def __init__(self, lab: Lab, mntrain: str) -> None:
        self.lab = lab
        self.mntrain = mntrain
        self.first, self.second, self.driver = lab.hosts
        self.job = ""
        self.python = forking_python()
        self._seen: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._observer = self.driver.popen(
            [sys.executable, "-m", "tests.faults.observer", CLUSTER],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def close(self) -> None:
        self._end()
        self._observer.kill()
        self._observer.wait()
        self._listener.join()
        assert self._observer.stdout is not None
        self._observer.stdout.close()

    @property
    def with_python(self) -> tuple[str, str]:
        """Options of a job."""
        return "--python", self.python

    def use(self, python: str) -> None:
        """Run jobs with it from now on."""
        if python != self.python:
            self._end()
            self.python = python

    def launch(self, *words: str, code: int = 0, finds: Sequence[str] = ()) -> dict[str, Any]:
        """Launch a job of two ranks; its problem as data if it is refused.

        Args:
            finds: kinds of what is said before it, and does not stop it. The doctor runs in front
                of every launch but those that skip it: it finds what is there, and nothing else.
        """
        for host in (self.first, self.second):
            (host.home / "fault.py").unlink(missing_ok=True)
        said = self.run("launch", str(SCRIPT), "--detach", *self.with_python, *words, code=code)
        if code == 0:
            self.job = said["job_id"]
            assert [one["kind"] for one in said.get("warnings", ())] == list(finds), said
        return said

    def launch_and_step(self, *words: str, finds: Sequence[str] = ()) -> None:
        members = ("--member", "node1:1", "--member", "node2:1")
        self.launch(*members, *words, finds=finds)
        until(lambda: self.latest.get("state") == "running", f"{self.job} to run", STARTED_S)
        until(lambda: self.has_stepped(self.first), "the first steps", STARTED_S)

    def run(self, *words: str, code: int = 0) -> Any:
        done = type_on(self.driver, ["--cluster", CLUSTER, "--json", *words], timeout_s=120)
        assert done.returncode == code, f"{words}: {done.stdout}\n{done.stderr}"
        return json.loads(done.stderr if code else done.stdout)

    def doctor(self) -> list[tuple[str, str]]:
        """What the doctor finds on both nodes, where no launch has asked it: checks and nodes."""
        words = ["--cluster", CLUSTER, "--json", "doctor", "node1", "node2"]
        done = type_on(self.driver, words, timeout_s=120)
        assert done.returncode in (0, 1), done.stderr
        found = json.loads(done.stdout)["findings"]
        return [(one["check"], one["node"]) for one in found if one["level"] in ("stops", "slows")]

    def has_stepped(self, host: Host) -> bool:
        return any("step of rank" in log.read_text() for log in self._attempts(host, "log"))

    def steps(self, host: Host) -> int:
        """Lines that ranks on a host have written of this job."""
        return sum(log.read_text().count("step of rank") for log in self._attempts(host, "log"))

    def reported(self, host: Host) -> int:
        """Steps of this job that ranks on a host have reported."""
        files = self._attempts(host, "metrics/rank-*.ndjson")
        return sum(file.read_text().count('"kind":"step"') for file in files)

    def goes_on(self, steps: int = 1) -> None:
        """Both ranks make so many steps."""
        for host in (self.first, self.second):
            aim = self.steps(host) + steps
            until(lambda h=host, aim=aim: self.steps(h) >= aim, "it to go on")

    @property
    def is_whole(self) -> bool:
        """Whether every node is up, and nothing is said of one."""
        nodes = [self.node(host) for host in self.lab.hosts]
        return all(one.get("liveness") == "up" and not one.get("reason") for one in nodes)

    def types(self, fix: str) -> None:
        """Type the command of a fix on the nodes that it names: it goes on."""
        found = re.search(r"\bon (node\d)(?: and (node\d))?: (.+)", fix)
        assert found is not None, fix
        for host in (self.first, self.second):
            if host.name in found.groups():
                done = host.run(shlex.split(found[3]))
                assert done.returncode == 0, done.stderr
        self.goes_on()

    def inject(self, host: Host, code: str) -> None:
        """Have the rank on a host run some Python between two steps."""
        beside = host.home / "fault.tmp"
        beside.write_text(code)
        beside.rename(host.home / "fault.py")

    def rank(self, host: Host) -> int:
        """Pid of the rank on a host, as numbered outside."""
        return self._process(host, lambda pid, env: "RANK" in env and "LOCAL_RANK" in env)

    def torchrun(self, host: Host) -> int:
        return self._process(
            host, lambda pid, env: is_torchrun(_words(pid).split()) and "RANK" not in env
        )

    def supervisor(self, host: Host) -> int:
        return next(
            pid
            for pid in host.pids()
            if "jupyter_mntrain.agent.attempt.supervisor" in _words(pid) and self.job in _words(pid)
        )

    def agent(self, host: Host) -> int:
        """What ``mntrain agent`` becomes; not what it has just forked, which has its words, too."""
        found = {pid for pid in host.pids() if "-m jupyter_mntrain.agent " in _words(pid)}
        return max(pid for pid in found if _parent(pid) not in {None, *found})

    def restart_agent(self, host: Host, **environment: str) -> HostProcess:
        """As the service does."""
        words = [self.mntrain, "agent", "run", "--wait-to-join"]
        return start(host, words, host.home / "agent.log", environment=environment)

    @contextmanager
    def agent_with(self, host: Host, **environment: str) -> Iterator[None]:
        """An agent with other variables in its environment, while in the block."""
        self._exchange_agent(host, environment)
        try:
            yield
        finally:
            self._exchange_agent(host, {})

    def _exchange_agent(self, host: Host, environment: dict[str, str]) -> None:
        until(lambda: self.node(host).get("instance"), f"{host.name} to be seen")
        before, pid = self.node(host)["instance"], self.agent(host)
        self.signal(pid, signal.SIGTERM)
        until(lambda: has_ended(pid), "the agent to end")
        self.restart_agent(host, **environment)
        until(
            lambda: (
                self.node(host).get("liveness") == "up"
                and self.node(host)["instance"] not in ("", before)
            ),
            "another agent to be seen",
        )

    def signal(self, pid: int, number: signal.Signals) -> None:
        psutil.Process(pid).send_signal(number)

    @property
    def latest(self) -> dict[str, Any]:
        """What is known of the job now."""
        return next((one for one in reversed(self.seen()) if one.get("job") == self.job), {})

    def node(self, host: Host) -> dict[str, Any]:
        return next((one for one in reversed(self.seen()) if one.get("name") == host.name), {})

    def seen(self, first: int = 0) -> list[dict[str, Any]]:
        with self._lock:
            return self._seen[first:]

    def first_time(
        self, since_s: float, is_it: Callable[[dict[str, Any]], object], within_s: float
    ) -> tuple[float, dict[str, Any]]:
        """When the driver came to know it first, in seconds after ``since_s``; and what."""
        deadline, looked_at = time.monotonic() + within_s, 0
        while True:
            new = self.seen(looked_at)
            for one in new:
                if one["time_s"] >= since_s and is_it(one):
                    return one["time_s"] - since_s, one
            looked_at += len(new)
            assert time.monotonic() < deadline, f"not within {within_s} s: {self.seen()[-4:]}"
            time.sleep(0.02)

    def left(self) -> list[str]:
        """Processes of the job that are still there, on any host."""
        return [
            f"{host.name}: {_words(pid)}"
            for host in (self.first, self.second)
            for pid in host.pids()
            if environment_of(pid).get("MNTRAIN_JOB") == self.job
        ]

    def nothing_is_left(self) -> None:
        until(lambda: not self.left(), f"nothing to be left: {self.left()}")
        until(
            lambda: not any(self.node(host).get("leases") for host in (self.first, self.second)),
            "no lease to be left",
        )

    def jobs_directory(self, host: Host) -> Path:
        return host.home / ".local" / "state" / "mntrain" / "nodes" / host.name / "jobs"

    def log(self, host: Host) -> str:
        """What torchrun and its ranks have said there."""
        return "".join(path.read_text(errors="replace") for path in self._attempts(host, "log"))

    @contextmanager
    def cleaned_up(self) -> Iterator[None]:
        """Whatever happens in the block, no job and nothing of one is there after it."""
        self._end()
        try:
            yield
        finally:
            self._end()

    @contextmanager
    def left_running(self, begin: Callable[[], object] | None = None) -> Iterator[None]:
        """A job that makes steps, also after the block: it is the next test's as well.

        Args:
            begin: has another one make steps, whatever runs.
        """
        is_sound = self.latest.get("state") == "running" and not self.latest["stall"]
        if begin or not is_sound:
            self._end()
            (begin or self.launch_and_step)()
        try:
            yield
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        if self.job and self.latest.get("state") not in OVER:
            with suppress(AssertionError, subprocess.TimeoutExpired):
                type_on(self.driver, ["--cluster", CLUSTER, "kill", self.job], timeout_s=60)
        self.job = ""

    def _attempts(self, host: Host, name: str) -> list[Path]:
        return list(self.jobs_directory(host).glob(f"{self.job}/attempt-*/{name}"))

    def _process(self, host: Host, is_it: Callable[[int, dict[str, str]], object]) -> int:
        found = [
            pid
            for pid in sorted(host.pids())
            if (env := environment_of(pid)).get("MNTRAIN_JOB") == self.job and is_it(pid, env)
        ]
        return found[0]

    def _listen(self) -> None:
        assert self._observer.stdout is not None
        for line in self._observer.stdout:
            with self._lock:
                self._seen.append(json.loads(line))


def has_ended(pid: int) -> bool:
    """Also where its parent has not noticed: nsenter stops with what it runs, and stays so."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _parent(pid: int) -> int | None:
    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return None


def _words(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""
