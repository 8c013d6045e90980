"""Fault table, continued: faults around a job, of disks, clocks, names and versions."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.agent.attempt.processes import environment_of
from jupyter_mntrain.launch.spec_file import write_spec
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.job import JobSpec, Participant
from tests.faults.bench import Bench
from tests.faults.limits import PATIENCE_S
from tests.faults.table import Outcome, note, report
from tests.netlab import DATA, Host
from tests.waiting import until
from tests.wording import says

pytestmark = [pytest.mark.netlab, pytest.mark.slow]

STARTED_WITHIN_S = 150.0
"""What is known at a start: torch and transformers imported by two ranks on two cores."""
CLOCK = Path(__file__).parents[1] / "netlab" / "clock.c"
BOTH = ("--member", "node1:1", "--member", "node2:1")
TRAINER = (
    *BOTH,
    *("--env", "OMP_NUM_THREADS=1"),
    *("--set", "data.sequence_length=32", "--set", "train.batch_size=4"),
    *("--set", "pipeline.microbatches=4", "--set", "train.steps=12"),
    *("--set", "checkpoint.interval_steps=4"),
)

# Ports

THIEF = """
import os, socket, sys
words = sys.orig_argv
if "--node-rank=0" in words and os.environ.get("MNTRAIN_ATTEMPT") == "1":
    options = dict(word[2:].split("=", 1) for word in words if word.startswith("--master"))
    sys.stolen = socket.socket()
    sys.stolen.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sys.stolen.bind((options["master-addr"], int(options["master-port"])))
    sys.stolen.listen()
"""


def test_a_port_that_is_stolen_between_lease_and_start_costs_an_attempt(bench: Bench) -> None:
    folder = bench.first.home / "thief"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(THIEF)
    with bench.cleaned_up():
        since_s = time.time()
        bench.launch(*BOTH, "--restarts", "1", "--env", f"PYTHONPATH={folder}")
        took_s, seen = bench.first_time(
            since_s, lambda o: o.get("cause_kind") == "port-taken", PATIENCE_S
        )
        assert seen["cause_node"] == "node1"
        assert says("another program uses it: launch again", seen["cause_fix"])
        report(
            Outcome(
                "another program takes the port between lease and start",
                took_s,
                seen["cause"],
                seen["cause_fix"],
                "one node fails, the others wait 10 minutes for it",
            ),
            STARTED_WITHIN_S,
        )
        until(lambda: bench.has_stepped(bench.second), "the second attempt to run", PATIENCE_S)
        assert bench.latest["attempt"] == 2


# Disks


@contextmanager
def mounted(host: Host, where: Path, options: str) -> Iterator[None]:
    """A file system of memory on one host alone."""
    where.mkdir(parents=True, exist_ok=True)
    done = host.run(["mount", "-t", "tmpfs", "-o", options, "none", str(where)])
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        # The agent keeps a job's journal open.
        host.run(["umount", "--lazy", str(where)])


def test_a_script_that_is_missing_on_one_node_is_named(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "train.py"
    script.parent.mkdir()
    script.write_text("import time; time.sleep(600)")
    spec = JobSpec(entry=(str(script),), participants=(Participant("node1"), Participant("node2")))
    job = tmp_path / "job.toml"
    job.write_text(write_spec(spec))
    with bench.cleaned_up(), mounted(bench.second, script.parent, "size=1m"):
        refused = bench.run("launch", str(job), "--detach", code=RefusedError.exit_code)
        assert (refused["kind"], refused["node"]) == ("no-file", "node2")
        since_s = time.time()
        bench.job = bench.run("launch", str(job), "--detach", "--skip-doctor")["job_id"]
        took_s, seen = bench.first_time(
            since_s, lambda o: o.get("cause_kind") == "no-file", PATIENCE_S
        )
        assert seen["cause_node"] == "node2"
        report(
            Outcome(
                "a script is missing on one node",
                took_s,
                seen["cause"],
                seen["cause_fix"],
                "one node fails, the others wait 10 minutes for it",
            ),
            STARTED_WITHIN_S,
        )
        until(lambda: bench.latest["state"] == "failed", "it to fail", PATIENCE_S)
        bench.nothing_is_left()


def test_a_directory_for_checkpoints_that_is_read_only_is_told_before_the_first_step(
    bench: Bench, tmp_path: Path
) -> None:
    where = tmp_path / "kept"
    with bench.cleaned_up(), mounted(bench.second, where, "ro"):
        refused = train(bench, where, code=RefusedError.exit_code)
        assert (refused["kind"], refused["node"]) == ("read-only", "node2")
        assert str(where) in refused["cause"]
        since_s = time.time()
        train(bench, where, "--skip-doctor")
        took_s, seen = bench.first_time(
            since_s,
            lambda o: o.get("cause_kind") == "bad-recipe",
            PATIENCE_S,
        )
        assert (seen["cause_node"], seen["cause_rank"]) == ("node2", 1)
        assert "Read-only file system" in seen["cause"]
        report(
            Outcome(
                "the checkpoint directory is read-only on a node",
                took_s,
                seen["cause"],
                seen["cause_fix"],
                "an error at the first save, hours later",
            ),
            STARTED_WITHIN_S,
        )
        until(lambda: bench.latest["state"] == "failed", "it to fail", PATIENCE_S)
        bench.nothing_is_left()


def test_a_disk_that_is_full_costs_a_checkpoint_and_not_the_job(
    bench: Bench, tmp_path: Path
) -> None:
    where = tmp_path / "kept"
    with bench.cleaned_up(), mounted(bench.second, where, "size=1m"):
        refused = train(bench, where, code=RefusedError.exit_code)
        assert (refused["kind"], refused["node"]) == ("disk-full", "node2")
        since_s = time.time()
        train(bench, where, "--skip-doctor")
        until(
            lambda: f"node2: {where}" in bench.log(bench.first),
            "it to be told",
            PATIENCE_S,
        )
        took_s = time.time() - since_s
        until(lambda: bench.latest["state"] == "succeeded", "its success", PATIENCE_S)
        line = next(
            line for line in bench.log(bench.first).splitlines() if f"node2: {where}" in line
        )
        cause, _, fix = line.partition("] ")[2].partition(" Fix: ")
        report(
            Outcome(
                "the checkpoint disk is full on a node; the job keeps running",
                took_s,
                cause,
                fix.rstrip("."),
                "an exception in the middle of a save, and half a checkpoint",
            ),
            STARTED_WITHIN_S,
        )
        assert not list(where.glob(".step-*")), "no half of one is left"
        bench.nothing_is_left()


def test_a_disk_that_logs_have_filled_ends_the_job_with_its_reason(bench: Bench) -> None:
    with bench.cleaned_up(), mounted(bench.second, bench.jobs_directory(bench.second), "size=4m"):
        refused = bench.launch(*BOTH, code=RefusedError.exit_code)
        assert (refused["kind"], refused["node"]) == ("disk-full", "node2")
        bench.launch_and_step("--skip-doctor")
        since_s = time.time()
        bench.inject(bench.second, "for _ in range(400): print('x' * 100_000)")
        took_s, seen = bench.first_time(
            since_s,
            lambda o: o.get("job") == bench.job and o.get("cause_kind") == "disk-full",
            PATIENCE_S,
        )
        assert seen["cause_node"] == "node2"
        assert says("free some space on that node", seen["cause_fix"])
        report(
            Outcome(
                "a rank's output fills the disk",
                took_s,
                seen["cause"],
                seen["cause_fix"],
                "a traceback, if there is room for it",
            ),
            20,
        )
        until(lambda: bench.latest["state"] == "failed", "it to fail", PATIENCE_S)
        bench.nothing_is_left()


def train(bench: Bench, where: Path, *words: str, code: int = 0) -> dict[str, Any]:
    """With the built-in trainer, which saves there; its problem if it is refused."""
    recipe = bench.driver.home / "recipe.toml"
    recipe.write_text('[model]\npreset = "llama-tiny"\n')
    place = f"checkpoint.directory={where}"
    said = bench.run("launch", str(recipe), *TRAINER, "--set", place, "--detach", *words, code=code)
    bench.job = said.get("job_id", "")
    return dict(said)


# Clocks and names


JUMPS_S = (3600, -3600)
ELSEWHERE = "192.168.77.1/24"


def test_clocks_that_jump_and_another_address_change_nothing_of_any_attempt(
    bench: Bench, tmp_path: Path
) -> None:
    """node2's clock jumps in each of two attempts, and then its rank is killed; node1 has another
    address on its data network, before the one that the nodes share.
    """
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler. Fix: apt-get install gcc libc6-dev")
    library, ahead = tmp_path / "clock.so", tmp_path / "ahead"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, CLOCK, "-ldl"], check=True)
    ahead.write_text("0")
    preloaded = {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(ahead)}
    with (
        bench.cleaned_up(),
        elsewhere_first(bench, bench.first),
        bench.agent_with(bench.second, **preloaded),
    ):
        # LD_PRELOAD, on one alone
        bench.launch_and_step("--restarts", str(len(JUMPS_S)), finds=["node"])
        for attempt, jump_s in enumerate(JUMPS_S, 1):
            assert master(bench) == bench.first.data_address
            ahead.write_text(str(jump_s))
            bench.goes_on(50)
            assert bench.node(bench.second)["liveness"] == "up"
            assert (bench.latest["state"], bench.latest["attempt"]) == ("running", attempt)
            assert bench.latest["stall"] is None
            # Who was first is known, although the guilty node's clock says otherwise.
            since_s = time.time()
            bench.signal(bench.rank(bench.second), signal.SIGKILL)
            _, seen = bench.first_time(
                since_s,
                lambda o: (
                    o.get("job") == bench.job
                    and (o["cause_kind"], o.get("cause_rank")) == ("killed", 1)
                ),
                PATIENCE_S,
            )
            assert seen["cause_node"] == "node2"
            assert abs(seen["cause_time_s"] - since_s) < 30
            until(
                lambda attempt=attempt: (
                    (bench.latest["attempt"], bench.latest["state"]) == (attempt + 1, "running")
                ),
                "the next attempt",
                PATIENCE_S,
            )
            bench.goes_on()
        assert master(bench) == bench.first.data_address
        bench.run("stop", bench.job)
        until(lambda: bench.latest["state"] == "canceled", "the end", PATIENCE_S)
        bench.nothing_is_left()
    said = "nothing: steps, heartbeats, restart and the order of causes are unaffected"
    for jump_s in JUMPS_S:
        note(
            Outcome(
                f"a node's clock jumps by {jump_s / 3600:+.0f} h",
                None,
                said,
                "",
                "logs in the wrong order",
            )
        )


@contextmanager
def elsewhere_first(bench: Bench, host: Host) -> Iterator[None]:
    """The host has another address on its data network, before that of the lab."""
    own = f"{host.data_address}/24"
    for words in (("add", ELSEWHERE), ("del", own), ("add", own)):
        host.run(["ip", "address", *words, "dev", DATA])
    try:
        until(
            lambda: bench.node(host)["addresses"][DATA] == [ELSEWHERE, own],
            "both addresses to be known",
        )
        yield
    finally:
        host.run(["ip", "address", "del", ELSEWHERE, "dev", DATA])


def master(bench: Bench) -> str:
    return environment_of(bench.rank(bench.first))["MASTER_ADDR"]


def test_a_slow_network_is_taken_if_it_is_named_and_a_silent_name_server_costs_no_job(
    bench: Bench,
) -> None:
    files = [Path("/etc/netns") / host.namespace / "resolv.conf" for host in bench.lab.hosts[:2]]
    before = [path.read_text() for path in files]
    try:
        for path in files:
            path.write_text("nameserver 10.77.1.250\n")
        with bench.cleaned_up():
            # A launch does not wait for it: the ranks do.
            assert sorted(bench.doctor()) == [("reverse-dns", "node1"), ("reverse-dns", "node2")]
            since_s = time.time()
            members = ("--member", "node1:1:eth0", "--member", "node2:1:eth0")
            (warning,) = bench.launch(*members, finds=["slow-link"])["warnings"]
            assert says("the ranks use eth0 (100", warning["cause"])
            assert says("these nodes also share eth1 (1", warning["cause"])
            assert says("omit the interface to use eth1", warning["fix"])
            report(
                Outcome(
                    "the slow management network is chosen",
                    0.0,
                    warning["cause"],
                    warning["fix"],
                    "a slow job",
                ),
                0.0,
            )
            until(lambda: bench.has_stepped(bench.first), "the first steps", PATIENCE_S)
            took_s = time.time() - since_s
            assert took_s <= STARTED_WITHIN_S
            bench.run("stop", bench.job)
            until(lambda: bench.latest["state"] == "canceled", "the end", PATIENCE_S)
            bench.nothing_is_left()
    finally:
        for path, text in zip(files, before, strict=True):
            path.write_text(text)
    said = f"nothing: the first step comes {took_s:.0f} s after the launch, timeouts included"
    alone = "6 s per rendezvous; fails if its endpoint is a host name"
    note(Outcome("the name server does not answer", None, said, "", alone))


# Versions


def test_a_node_with_another_torch_is_refused_before_anything_runs(bench: Bench) -> None:
    other = bench.second.home / "other" / "torch-2.9.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.1\n")
    path = os.pathsep.join([str(other.parent), os.environ.get("PYTHONPATH", "")])
    with bench.cleaned_up(), bench.agent_with(bench.second, PYTHONPATH=path):
        problem = bench.launch(*BOTH, code=2)
        assert problem["kind"] == "mixed-versions"
        assert "2.9.1" in problem["cause"]
        assert "node2" in problem["cause"]
        assert says("--mixed-versions", problem["fix"])
        report(
            Outcome(
                "a node has another version of torch",
                0.0,
                problem["cause"],
                problem["fix"],
                "works or hangs, unpredictably",
            ),
            0.0,
        )
