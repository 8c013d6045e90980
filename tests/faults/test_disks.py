"""Fault table, continued: disks that lack a file, are read-only, or are full."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.launch.spec_file import write_spec
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.job import JobSpec, Participant
from tests.e2e.conftest import CLUSTER
from tests.faults.bench import Bench
from tests.faults.limits import BOTH, PATIENCE_S, STARTED_WITHIN_S
from tests.faults.table import Outcome, report
from tests.netlab import Host
from tests.netlab.terminal import type_on
from tests.waiting import until
from tests.wording import says

pytestmark = [pytest.mark.netlab, pytest.mark.slow]

TRAINER = (
    *BOTH,
    *("--env", "OMP_NUM_THREADS=1"),
    *("--set", "data.sequence_length=32", "--set", "data.vocabulary_size=257"),
    *("--set", "train.batch_size=4"),
    *("--set", "pipeline.microbatches=4", "--set", "train.steps=12"),
    *("--set", "checkpoint.interval_steps=4"),
)


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
    both = (Participant("node1"), Participant("node2"))
    spec = JobSpec(entry=(str(script),), participants=both)
    job = tmp_path / "job.toml"
    job.write_text(write_spec(spec))
    with bench.cleaned_up(), mounted(bench.second, script.parent, "size=1m"):
        refused = bench.run("launch", str(job), "--yes", "--detach", code=RefusedError.exit_code)
        assert (refused["kind"], refused["node"]) == ("no-file", "node2")
        since_s = time.time()
        bench.job = bench.run("launch", str(job), "--yes", "--detach", "--skip-doctor")["job_id"]
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


def saved(bench: Bench) -> tuple[int, Any]:
    """Exit code and data of a save that a person asks for."""
    words = ["--cluster", CLUSTER, "--json", "save", bench.job]
    done = type_on(bench.driver, words, timeout_s=PATIENCE_S)
    return done.returncode, json.loads(done.stdout or done.stderr)


def test_a_disk_that_is_full_costs_a_checkpoint_and_not_the_job(
    bench: Bench, tmp_path: Path
) -> None:
    where = tmp_path / "kept"

    def warnings(seen: dict[str, Any]) -> list[dict[str, Any]]:
        others = seen.get("others", ()) if seen.get("job") == bench.job else ()
        return [one for one in others if (one["field"], one["kind"]) == ("warnings", "disk-full")]

    with bench.cleaned_up(), mounted(bench.second, where, "size=1m"):
        refused = train(bench, where, code=RefusedError.exit_code)
        assert (refused["kind"], refused["node"]) == ("disk-full", "node2")
        on_request = ("--set", "train.steps=1_000_000", "--set", "checkpoint.interval_steps=0")
        train(bench, where, "--skip-doctor", *on_request)
        until(lambda: bench.run("status", bench.job)["step"], "a step", PATIENCE_S)
        since_s = time.time()
        code, told = saved(bench)
        assert (code, told["saved_step"]) == (1, None)
        assert (told["problem"]["kind"], told["problem"]["node"]) == ("disk-full", "node2")
        assert str(where) in told["problem"]["cause"]
        took_s, seen = bench.first_time(since_s, warnings, PATIENCE_S)
        (warned,) = warnings(seen)
        assert (warned["node"], warned["fix"]) == ("node2", told["problem"]["fix"])
        report(
            Outcome(
                "the checkpoint disk is full on a node; the job keeps running",
                took_s,
                f"node2: {warned['cause']}",
                warned["fix"],
                "an exception in the middle of a save, and half a checkpoint",
            ),
            STARTED_WITHIN_S,
        )
        assert not list(where.glob(".step-*")), "no half of one is left"
        more = bench.second.run(["mount", "-o", "remount,size=4g", str(where)])
        assert more.returncode == 0, more.stderr
        code, told = saved(bench)
        assert code == 0
        assert told["saved_step"] > 0
        until(lambda: not warnings(bench.latest), "the warning to be over", PATIENCE_S)
        assert bench.latest["state"] == "running"
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
    given = (*TRAINER, *bench.with_python, "--set", f"checkpoint.directory={where}", *words)
    said = bench.run("launch", str(recipe), "--detach", *given, code=code)
    bench.job = said.get("job_id", "")
    return dict(said)
