"""Killed at any moment: rounds on a simulated cluster, each replayable by its seed.

``python -m tests.faults.killed --rounds 200 --seed 1`` trains on two hosts and in each round kills
an agent, a supervisor, a driver, torchrun or a rank, cuts a node's power, fills its disk or makes
it read-only while a job launches, saves, resumes, stops or a file is pushed. Then it mends that and
checks what has to hold: no checkpoint is lost or changed, the newest one is resumed from, no whole
line of a rank is missing from the journal, every command ends with words, two drivers and the one
that has watched all the time tell the same, and once the job has ended no process and no lease is
left. Needs root, as all simulated hosts do. Prints a line per round, and what was there where one
failed; rounds that are in the file already are not played again (``killed.ndjson`` next to this
file has those that were played: give a copy of it as ``--file``)."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import msgspec
import psutil

from jupyter_mntrain.agent.attempt.processes import environment_of
from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from tests.agent.forking.python import forking_python
from tests.e2e.conftest import CLUSTER, joined_lab, start, token_file
from tests.faults.bench import OVER, Bench
from tests.faults.table import write_section
from tests.netlab import DATA, MANAGEMENT, Host, LabError, missing
from tests.netlab.terminal import type_on
from tests.waiting import until

Moment = Literal["launch", "save", "resume", "stop", "push"]
Strike = Literal[
    "agent", "supervisor", "driver", "torchrun", "rank", "power cut", "full disk", "read-only disk"
]

OF_A_JOB: tuple[Strike, ...] = ("supervisor", "torchrun", "rank")

SPAN_S: dict[Moment, float] = {"launch": 8.0, "save": 1.5, "resume": 8.0, "stop": 3.0, "push": 1.5}
"""Time within which a command is struck, once it talks to nodes: about as long as it takes."""

PATIENCE_S = 180.0
"""For what takes some seconds on a quiet machine."""

AGREED_S = 60.0

AWAITED_S = 20.0
"""For a process to be there that is killed as soon as it is."""

DISK_BYTES = 1536 << 20
PUSHED_BYTES = 8 << 20

SLOW_LINE = "rate 1mbit burst 16kb latency 400ms"
"""Between ranks, which wait for it, rather than take the processors that the lab needs."""

TRAINER = (
    *("--member", "node1:1", "--member", "node2:1", "--restarts", "3", "--skip-doctor"),
    *("--set", "data.sequence_length=32", "--set", "data.vocabulary_size=257"),
    *("--set", "train.batch_size=2", "--set", "pipeline.microbatches=2"),
    *("--set", "train.steps=1000000", "--set", "checkpoint.interval_steps=10"),
    *("--set", "checkpoint.keep=1000", "--env", "OMP_NUM_THREADS=1"),
)


class Round(NamedTuple):
    """What is struck when: ``delay`` is a share of the time that the command takes."""

    number: int
    moment: Moment
    strike: Strike
    host: int
    delay: float

    @property
    def title(self) -> str:
        return f"{self.strike} at {self.moment}, node{self.host + 1}, {self.delay:.2f}"


def drawn(seed: int, count: int) -> Iterator[Round]:
    """Rounds of a seed: each strike at each moment before any comes again, in an order of its own.

    Pure: the same on every machine.
    """
    chance = random.Random(f"killed {seed}")
    pairs: list[tuple[Moment, Strike]] = []
    for number in range(count):
        if not pairs:
            pairs = list(product(get_args(Moment), get_args(Strike)))
            chance.shuffle(pairs)
        moment, strike = pairs.pop()
        yield Round(number, moment, strike, chance.randrange(2), chance.random())


class Held(NamedTuple):
    """One shard of a checkpoint on a node."""

    node: str
    step: int
    shard: str


class World:
    """Two hosts with disks of their own that train, two drivers, and one that always watches."""

    def __init__(self, bench: Bench, disks: Path, mntrain: str) -> None:
        self.bench = bench
        self.disks = disks
        self.mntrain = mntrain
        self.driver = bench.driver
        self.hosts = (bench.first, bench.second)
        self.run = ""
        """The first job of the chain that goes on."""
        self.job = ""
        self.was_early = False
        """Whether the command of the last round still ran when it was struck."""
        self.complaint = ""
        """What the last command said that failed."""
        self._recipe = self.driver.home / "killed.toml"
        self._recipe.write_text('[model]\npreset = "llama-tiny"\n')
        self._pushed = self.driver.home / "pushed.bin"

    # Commands

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """A command of the first driver, in a process of its own."""
        return self.driver.popen(
            [self.mntrain, "--cluster", CLUSTER, "--json", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, host: Host, *words: str) -> Any:
        done = type_on(host, ["--cluster", CLUSTER, "--json", *words], timeout_s=PATIENCE_S)
        assert "Traceback" not in done.stderr, done.stderr
        self.complaint = done.stderr.strip()
        return json.loads(done.stdout) if done.stdout.strip() else None

    def launch_words(self) -> tuple[str, ...]:
        """A fresh run, or the one before goes on: it proves that its checkpoint can be loaded."""
        python = ("--python", forking_python())
        if self.newest_complete() is None:
            return ("launch", str(self._recipe), "--detach", *TRAINER, *python)
        return ("resume", self.run, "--detach", "--skip-doctor")

    # What is there

    def checkpoints(self, host: Host) -> CheckpointDirectory:
        return CheckpointDirectory(self.disks / host.name / "runs" / self.run / "checkpoints")

    def held(self) -> dict[Held, int]:
        """Checksum of every complete shard of published checkpoints."""
        found = {}
        for host in self.hosts if self.run else ():
            directory = self.checkpoints(host)
            for step, manifest in directory.manifests().items():
                for rank in directory.shards(manifest):
                    path = directory.of(step) / shard_name(rank)
                    found[Held(host.name, step, path.name)] = zlib.crc32(path.read_bytes())
        return found

    def newest_complete(self) -> int | None:
        """The newest step that every rank has."""
        ranks: dict[int, set[int]] = {}
        for host in self.hosts if self.run else ():
            directory = self.checkpoints(host)
            for step, manifest in directory.manifests().items():
                ranks.setdefault(step, set()).update(directory.shards(manifest))
        return max((step for step, known in ranks.items() if len(known) == 2), default=None)

    def lost_lines(self) -> list[str]:
        """Whole lines that ranks of the job have written and journals lack."""
        lost = []
        for host in self.hosts if self.job else ():
            journal = self.disks / host.name / "jobs" / self.job / "journal.ndjson"
            kept = journal.read_bytes() if journal.exists() else b""
            for path in self._written_by(host):
                written = path.read_bytes()
                lines = written[: written.rfind(b"\n") + 1].splitlines()
                missed = [line for line in lines if line not in kept]
                lost += [f"{host.name}: {path.name}: {line!r}" for line in missed[:1]]
        return lost

    def steps(self) -> int:
        """Steps that the slower rank of the job has made, in all attempts."""
        return min(
            sum(path.read_bytes().count(b'"kind":"step"') for path in self._written_by(host))
            for host in self.hosts
        )

    def _written_by(self, host: Host) -> list[Path]:
        job = self.disks / host.name / "jobs" / self.job
        return list(job.glob("attempt-*/metrics/rank-*.ndjson"))

    def left(self) -> list[str]:
        """Processes of any job, and leases."""
        found = [
            f"{host.name}: pid {pid} of {env['MNTRAIN_JOB']}"
            for host in self.hosts
            for pid in host.pids()
            if "MNTRAIN_JOB" in (env := environment_of(pid))
        ]
        leases = [one.name for one in self.hosts if self.bench.node(one).get("leases")]
        return found + [f"a lease on {name}" for name in leases]

    def views(self) -> list[tuple[object, ...]]:
        """What the drivers tell of the newest job of the run: state, attempt, states of ranks."""
        told: list[tuple[object, ...]] = []
        for host in (self.driver, self.bench.first):
            seen = self.ask(host, "status", self.job) or {}
            ranks = tuple((one["rank"], one["state"]) for one in seen.get("ranks", ()))
            told.append((seen.get("state"), seen.get("attempt", 1), ranks))
        watched = next(
            (one for one in reversed(self.bench.seen()) if one.get("job") == self.job), {}
        )
        told.append((watched.get("state"), watched.get("attempt"), told[0][2]))
        return told

    @property
    def newest_job(self) -> str:
        """The newest job that any driver has seen."""
        jobs = dict.fromkeys(one["job"] for one in self.bench.seen() if "job" in one)
        return next(reversed(jobs), "")

    @property
    def state(self) -> str:
        latest = (one for one in reversed(self.bench.seen()) if one.get("job") == self.job)
        return str(next(latest, {}).get("state", ""))

    def evidence(self) -> str:
        """What can be known of the job, before the lab is gone."""
        words = ("--cluster", CLUSTER, "status", self.job, "--ranks")
        told = [type_on(self.driver, words, timeout_s=60).stdout] if self.job else []
        for host in self.hosts:
            files = [*(self.disks / host.name / "jobs" / self.job).glob("attempt-*/log")]
            for path in (*files, host.home / "agent.log"):
                last = path.read_text(errors="replace").splitlines()[-12:]
                told += [f"--- {host.name}: {path.name}", *last]
            told += [f"{host.name}: {pid}: {_words(pid)}" for pid in sorted(host.pids())]
        return "\n".join(told)

    # A round

    def play(self, one: Round) -> None:
        """Raises ``AssertionError`` with what does not hold."""
        self.was_early = False
        with self._phase("begin"):
            words = self._prepare(one)
        before, known = self.held(), self.newest_job
        due = self.newest_complete()
        asked = self.begin(*words)
        until(lambda: _talks(asked) or asked.poll() is not None, "it to talk to nodes")
        time.sleep(one.delay * SPAN_S[one.moment])
        self.was_early = asked.poll() is None
        with self._phase("strike"), self.struck(one, asked):
            time.sleep(1.0)
        with self._phase("mend"):
            until(lambda: self.bench.is_whole, "a whole lab", PATIENCE_S)
        out, errors = self._ended(asked)
        assert "Traceback" not in errors, f"{words[0]}: {errors[-800:]}"
        if one.strike != "driver":
            assert out.strip() or errors.strip(), f"{words[0]} said nothing"
        with self._phase("settle"):
            if one.moment in ("launch", "resume"):
                self._take(known, out, due)
            if one.moment == "push":
                self._push_again()
            self._settle(words[0])
        with self._phase("agree"):
            if self.job:
                self._agree()
        self._keeps(before)
        with self._phase("end"):
            self.end()
        self._keeps(before)
        if one.strike not in ("full disk", "power cut"):
            assert not (lost := self.lost_lines()), f"lines are lost: {lost}"

    def _prepare(self, one: Round) -> tuple[str, ...]:
        """What has to be there before the moment, and the command that is struck."""
        moment = one.moment
        if moment == "launch":
            self.end()
            for host in self.hosts if self.run else ():
                shutil.rmtree(self.checkpoints(host).path, ignore_errors=True)
            self.run = self.job = ""
            return self.launch_words()
        if moment == "resume":
            if self.newest_complete() is None:
                self._run_until_saved()
            self.end()
            return self.launch_words()
        if moment == "push":
            self._pushed = self.driver.home / f"pushed-{one.number}.bin"
            self._pushed.write_bytes(os.urandom(PUSHED_BYTES))
            if one.strike in OF_A_JOB:
                self._run_until_saved()
            return ("push", str(self._pushed))
        self._run_until_saved()
        return (moment, self.job)

    def _run_until_saved(self) -> None:
        if self.state in ("", *OVER):
            known, due = self.newest_job, self.newest_complete()
            out, errors = self.begin(*self.launch_words()).communicate(timeout=PATIENCE_S)
            assert not errors.strip() or out.strip(), errors
            self._take(known, out, due)
        until(lambda: self.state == "running", "the job to run", PATIENCE_S)
        until(lambda: self.newest_complete() is not None, "a checkpoint", PATIENCE_S)

    def _take(self, known: str, out: str, due: int | None) -> None:
        """The job that a launch or a resumption made, if it made one."""
        with suppress(ValueError):
            self.job = json.loads(out)["job_id"]
        if not out.strip():  # its driver was killed: a job may be there all the same
            with suppress(AssertionError):
                until(lambda: self.newest_job != known, "another job", 5.0)
            self.job = self.newest_job if self.newest_job != known else ""
        self.run = self.run or self.job
        self._due = due if self.job else None

    def _settle(self, command: str) -> None:
        """The job goes on, or has ended; what it went on from was the newest that was complete."""
        if not self.job:
            return
        until(lambda: self.state, f"{self.job} to be known", PATIENCE_S)
        if command == "stop":
            until(lambda: self.state in (*OVER, "running"), "it to stop or go on", PATIENCE_S)
            return
        until(lambda: self.state in ("running", *OVER), "it to run or end", PATIENCE_S)
        if self.state == "running":
            aim = self.steps() + 2
            until(lambda: self.state in OVER or self.steps() >= aim, "it to make steps", PATIENCE_S)
        due, self._due = self._due, None
        if due and self.state == "running":
            resumed = (self.ask(self.driver, "status", self.job) or {}).get("resumed_step")
            assert resumed is not None, f"not resumed, though step {due} was complete"
            assert resumed >= due, f"resumed after step {resumed}, though {due} was complete"

    _due: int | None = None

    def _agree(self) -> None:
        deadline = time.monotonic() + AGREED_S
        while len(set(told := self.views())) > 1:
            assert time.monotonic() < deadline, f"drivers do not agree: {told}"

    def _push_again(self) -> None:
        """What a push leaves behind keeps no other one from succeeding."""
        done = self.ask(self.driver, "push", str(self._pushed))
        assert (done or {}).get("failed") == {}, f"pushed again: {done}, {self.complaint[-400:]}"
        for host in self.hosts:
            # rglob does not follow the link from a home to its disk.
            found = list((self.disks / host.name).rglob(self._pushed.name))
            assert [one.read_bytes() for one in found] == [self._pushed.read_bytes()], found
            found[0].unlink()

    def end(self) -> None:
        """End the job that runs: nothing of any is left."""
        if self.job and self.state not in OVER:
            self.ask(self.driver, "kill", self.job)
            until(lambda: self.state in OVER, f"{self.job} to end", PATIENCE_S)
        with self._saying(self.left):
            until(lambda: not self.left(), "nothing to be left", 60.0)

    def _keeps(self, before: dict[Held, bytes]) -> None:
        now = self.held()
        lost = [one for one, content in before.items() if now.get(one) != content]
        assert not lost, f"checkpoints lost or changed: {lost}"

    def _ended(self, asked: subprocess.Popen[str]) -> tuple[str, str]:
        try:
            return asked.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            asked.kill()
            asked.communicate()
            raise AssertionError("the command does not end") from None

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        try:
            yield
        except (LabError, psutil.Error, subprocess.TimeoutExpired, AssertionError) as error:
            raise AssertionError(f"{name}: {error}") from error

    @contextmanager
    def _saying(self, what: Callable[[], object]) -> Iterator[None]:
        """With what is there when it fails."""
        try:
            yield
        except AssertionError as error:
            raise AssertionError(f"{error}: {what()}") from error

    # Strikes

    @contextmanager
    def struck(self, one: Round, asked: subprocess.Popen[str]) -> Iterator[None]:
        """In the block it is as struck, after it the machine is as before."""
        host = self.hosts[one.host]
        match one.strike:
            case "driver":
                asked.kill()
                yield
            case "agent":
                with suppress(ValueError):
                    self._kill(self.bench.agent(host))
                yield
                self._restart_agent(host)
            case "power cut":
                for interface in (DATA, MANAGEMENT):
                    self.bench.lab.set_port(host, interface, is_up=False)
                host.power_cut()
                yield
                for interface in (DATA, MANAGEMENT):
                    self.bench.lab.set_port(host, interface, is_up=True)
                host.power_on()
                self.bench.restart_agent(host)
            case "full disk":
                filler = self.disks / host.name / "filler"
                with filler.open("wb") as file, suppress(OSError):
                    while True:
                        file.write(bytes(1 << 20))
                yield
                time.sleep(2.0)
                filler.unlink()
            case "read-only disk":
                with self._read_only(host):
                    yield
                    time.sleep(2.0)
            case _:
                begins = one.moment in ("launch", "resume")
                if (pid := self._process(host, one.strike, awaited=begins)) is not None:
                    self._kill(pid)
                yield

    def _restart_agent(self, host: Host) -> None:
        self.bench.restart_agent(host)

    def _kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _process(self, host: Host, which: Strike, *, awaited: bool) -> int | None:
        """One of the job on a host; ``None`` if there is none, or none comes."""
        find: dict[str, Callable[[Host], int]] = {
            "rank": self.bench.rank,
            "torchrun": self.bench.torchrun,
            "supervisor": self.bench.supervisor,
        }
        deadline = time.monotonic() + AWAITED_S * awaited
        while True:
            self.bench.job = self.newest_job
            with suppress(IndexError, StopIteration, psutil.Error):
                return find[which](host)
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.05)

    @contextmanager
    def _read_only(self, host: Host) -> Iterator[None]:
        """Runs and jobs of this node: whatever is opened from now on cannot be written."""
        places = [self.disks / host.name / name for name in ("runs", "jobs")]
        for place in places:
            place.mkdir(exist_ok=True)
            for words in (
                ["--bind", str(place), str(place)],
                ["-o", "remount,bind,ro", str(place)],
            ):
                done = host.run(["mount", *words])
                assert done.returncode == 0, done.stderr
        try:
            yield
        finally:
            for place in places:
                host.run(["umount", "--lazy", str(place)])


def _talks(asked: subprocess.Popen[str]) -> bool:
    """Whether a command has opened a socket; it is a child of what is held of it."""
    with suppress(OSError, psutil.Error):
        for one in psutil.Process(asked.pid).children(recursive=True):
            files = Path(f"/proc/{one.pid}/fd").iterdir()
            if any(str(file.readlink()).startswith("socket:") for file in files):
                return True
    return False


def _words(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())[:160]
    except psutil.Error:
        return ""


@contextmanager
def world() -> Iterator[World]:
    """The lab: each node keeps its state on a disk of its own, which outlives a power cut."""
    mntrain = str(Path(sys.executable).with_name("mntrain"))
    with ExitStack() as stack:
        disks = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="killed-")))
        for name in ("node1", "node2"):
            (disks / name).mkdir()
            words = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(disks / name)]
            subprocess.run(["mount", *words], check=True)
            stack.callback(subprocess.run, ["umount", "--lazy", str(disks / name)], check=False)
        lab = stack.enter_context(joined_lab(mntrain, lambda host: _on_disk(host, disks)))
        lab.reshape(DATA, SLOW_LINE)
        bench = Bench(lab, mntrain)
        stack.callback(bench.close)
        until(lambda: bench.is_whole, "the nodes to be seen", PATIENCE_S)
        _second_driver(bench, mntrain)
        yield World(bench, disks, mntrain)


def _on_disk(host: Host, disks: Path) -> None:
    if (disk := disks / host.name).exists():
        nodes = host.home / ".local" / "state" / "mntrain" / "nodes"
        nodes.mkdir(parents=True, exist_ok=True)
        (host.home / ".config" / "mntrain" / "config.toml").unlink()  # settings that people have
        (nodes / host.name).symlink_to(disk)


def _second_driver(bench: Bench, mntrain: str) -> None:
    """node1 becomes a driver, too."""
    log = bench.driver.home / "invite-driver.log"
    start(bench.driver, [mntrain, "--cluster", CLUSTER, "driver", "invite"], log)
    until(lambda: "driver join" in log.read_text(), "a token for a driver", PATIENCE_S)
    token = next(one for one in log.read_text().split() if len(one) > 60)
    given = token_file(bench.first, token)
    done = bench.first.run([mntrain, "driver", "join", "--token-file", given], timeout_s=PATIENCE_S)
    assert done.returncode == 0, done.stderr


class Result(msgspec.Struct, frozen=True):
    """A round that was played; ``wrong``: what did not hold."""

    seed: int
    number: int
    moment: Moment
    strike: Strike
    wrong: str = ""


def read(path: Path) -> list[Result]:
    lines = path.read_bytes().splitlines() if path.exists() else ()
    return [msgspec.json.decode(line, type=Result) for line in lines]


INTRODUCTION = """
`python -m tests.faults.killed --rounds 200 --seed 1` trains on two simulated hosts, each with a
disk of its own, and in each round strikes one of them, or a driver, at a moment drawn by seed
while a job launches, saves, resumes or stops, or while a file is pushed. When that is mended,
every complete checkpoint of before is there with the same bytes, a resumption begins at the
newest one or later, every command has ended with words, the job makes steps or has ended, two
drivers and one that has watched tell the same, no whole line of a rank is missing, and after its
end no process and no lease is left. Each strike comes at each moment before any comes again. A
round counts as it was played first, also where its defect has been fixed since. Agents have the
default settings; only in the first 26 rounds they waited 15 s for a cause behind a lost
connection, not 3 s. The code changed between rounds, and from 94 to 150 also while they were
played; 125 and 151, in which the driver refused a setting of older code before anything was
struck, were played again. A round takes 5 to 30 s on two cores that other work uses, too.
"""


def section(results: Sequence[Result]) -> str:
    """The section of docs/faults.md."""
    moments, strikes = get_args(Moment), get_args(Strike)
    head = ("rounds right", *moments, "all")
    lines = [head, ("---",) * len(head)]
    for strike in (*strikes, "all"):
        of = [one for one in results if strike in ("all", one.strike)]
        groups = [[one for one in of if one.moment == moment] for moment in moments]
        shares = [
            f"{sum(not one.wrong for one in group)} of {len(group)}" for group in (*groups, of)
        ]
        lines.append((f"**{strike}**" if strike == "all" else strike, *shares))
    seeds = ", ".join(map(str, sorted({one.seed for one in results})))
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{INTRODUCTION}\n{len(results)} rounds, seed {seeds}:\n\n{table}\n"


def search(rounds: Sequence[Round], seed: int, file: Path) -> list[Result]:
    """Play rounds, and append each to a file. Prints a line per round."""
    results: list[Result] = []
    with ExitStack() as stack:
        place = stack.enter_context(world())
        for one in rounds:
            began_s, wrong = time.monotonic(), ""
            try:
                place.play(one)
            except AssertionError as error:
                wrong = str(error) or "an assertion"
            took_s = time.monotonic() - began_s
            said = wrong or f"right, {place.state or 'no job'}"
            said += "" if place.was_early else " (its command had ended)"
            print(f"{one.number:4} {took_s:5.1f} s  {one.title}: {said}", flush=True)
            result = Result(seed, one.number, one.moment, one.strike, wrong[:500])
            with file.open("ab") as out:
                out.write(msgspec.json.encode(result) + b"\n")
            results.append(result)
            if wrong:
                with suppress(subprocess.TimeoutExpired, LabError, OSError):
                    print(place.evidence(), flush=True)
                # What is left of it is not to spoil the others.
                stack.close()
                place = stack.enter_context(world())
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", type=Path, default=Path("killed.ndjson"))
    parser.add_argument("--page", action="store_true", help="write docs/faults.md, play nothing")
    options = parser.parse_args()
    if options.page:
        write_section("Killed at any moment", section(read(options.file)))
        return 0
    if (why_not := missing()) is not None:
        print(f"no simulated cluster: {why_not}", file=sys.stderr)
        return 2
    known = {one.number for one in read(options.file) if one.seed == options.seed}
    rounds = [one for one in drawn(options.seed, options.rounds) if one.number not in known]
    results = search(rounds, options.seed, options.file)
    wrong = [one.number for one in results if one.wrong]
    print(f"{len(results) - len(wrong)} of {len(results)} right; not: {wrong}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
