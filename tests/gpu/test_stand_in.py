"""The GPU acceptance on a CPU: what it runs there holds, and what is broken is reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.checks import CHECKS
from tests.gpu.ranks import ROOT
from tests.searches import runs_all

pytestmark = pytest.mark.slow

IN_FULL = pytest.mark.skipif(not runs_all(), reason="half a minute: set MNTRAIN_ALL_CASES")

Done = subprocess.CompletedProcess[str]


def gpu_check(*words: str, python: Path | None = None, cwd: Path | None = None) -> Done:
    environment = os.environ | {"PYTHON": str(python or sys.executable)}
    command = [str(ROOT / "scripts" / "gpu-check"), *words]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def on_cpu(directory: Path, *words: str) -> tuple[Done, dict[int, dict[str, Any]]]:
    """Run it on the CPU; its checks by number."""
    done = gpu_check("--device", "cpu", "--report", str(directory), *words)
    told = json.loads((directory / "gpu-check.json").read_text())
    return done, {one["number"]: one for one in told["checks"]}


def states(check: dict[str, Any], state: str) -> set[str]:
    return {item["name"] for item in check["items"] if item["state"] == state}


def test_what_has_a_meaning_on_a_cpu_holds_there(tmp_path: Path) -> None:
    tried = range(5) if runs_all() else (0, 1, 4)  # the last test has stages
    done, checks = on_cpu(tmp_path, "--only", ",".join(map(str, [*tried, *range(5, 10)])))
    assert done.returncode == 0, done.stdout + done.stderr
    assert {number: one["state"] for number, one in checks.items()} == {
        **dict.fromkeys(tried, "held"),
        **dict.fromkeys(range(5, 10), "skipped"),
    }
    assert len(states(checks[4], "held")) == 2
    page = (tmp_path / "gpu-check.txt").read_text()
    assert max(map(len, page.splitlines())) <= 80
    assert page in done.stdout
    assert f"{len(tried)} held, 0 failed, 5 skipped" in page
    if runs_all():
        variants_and_stages_hold(checks)


def variants_and_stages_hold(checks: dict[int, dict[str, Any]]) -> None:
    assert states(checks[2], "held") >= {
        "chunked loss",
        "full recomputation, bit-equal",
        "adamw, stochastic-rounding",
        "adafactor, plain",
    }
    assert "offloaded activations" in states(checks[2], "skipped")
    schedules = ("eager-1f1b", "eager-zero-bubble", "1f1b", "interleaved-1f1b", "zbv")
    schedules = (*schedules, "eager-1f1b, tied")
    expected = {f"{ranks} ranks: {one}" for ranks in (2, 3) for one in schedules}
    assert states(checks[3], "held") == expected | {"2 ranks: 2 shards"}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("wrong_loss", "the loss of step"),
        pytest.param("hang", "it hangs: nothing more from rank 0", marks=IN_FULL),
        pytest.param("death", "rank 0 ended with 139: Segmentation fault", marks=IN_FULL),
    ],
)
def test_a_broken_trainer_is_reported_with_the_reason(
    tmp_path: Path, fault: str, reason: str
) -> None:
    words = ("--only", "1", "--patience", "45", "--before", f"tests.gpu.sabotage:{fault}")
    done, checks = on_cpu(tmp_path, *words)
    assert done.returncode == 1
    (item,) = checks[1]["items"]
    assert checks[1]["state"] == item["state"] == "failed"
    assert item["reason"].count("\n") == 0
    assert reason in item["reason"]
    assert "0 held, 1 failed" in done.stdout


@IN_FULL
def test_a_failing_case_does_not_keep_the_others_from_running(tmp_path: Path) -> None:
    words = ("--only", "1,0", "--before", "tests.gpu.sabotage:exception")
    done, checks = on_cpu(tmp_path, *words)
    assert (checks[0]["state"], checks[1]["state"]) == ("held", "failed"), done.stdout


@IN_FULL
def test_ranks_that_torchrun_starts_hold_between_them() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "tests.gpu.between"]
    done = subprocess.run(
        [*command, "--device", "cpu"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("gpu-check-json "))
    told = json.loads(line.partition(" ")[2])
    assert told["state"] == "held"
    assert states(told, "held") >= {"2 ranks: eager-1f1b", "2 ranks: zbv", "2 ranks: 2 shards"}


needs_no_card = pytest.mark.skipif(
    Path("/dev/nvidiactl").exists(), reason="there is a card to run it on"
)


@needs_no_card
def test_without_a_card_it_says_so_and_runs_nothing(tmp_path: Path) -> None:
    done = gpu_check(cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1
    assert "finds no CUDA device" in done.stdout
    assert "Nothing was run" in done.stdout
    assert list(tmp_path.iterdir()) == [], "no report"


def test_it_names_its_checks_without_running_them() -> None:
    done = gpu_check("--list")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [f"{one.number} {one.title}" for one in CHECKS]


def test_a_number_that_is_none_of_its_checks_is_one_line() -> None:
    done = gpu_check("--only", "12")
    assert done.returncode == 2
    assert "checks are 0 to 9" in done.stderr


def test_a_python_without_torch_is_named(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    done = gpu_check(python=bare)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"{bare} lacks torch transformers" in done.stderr
    assert "scripts/install test" in done.stderr


def pytest_words(directory: Path, *words: str) -> Done:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # In pytest's usual place it would first remove what earlier runs have left there.
    command += ["--basetemp", str(directory)]
    return subprocess.run([*command, *words], cwd=ROOT, capture_output=True, text=True, check=False)


@needs_no_card
def test_under_pytest_each_check_is_skipped_with_the_reason_where_there_is_no_card(
    tmp_path: Path,
) -> None:
    done = pytest_words(tmp_path / "base", "tests/gpu/test_gpu.py", "-m", "gpu")
    assert done.returncode == 0, done.stdout
    assert f"{len(CHECKS)} skipped" in done.stdout
    assert "finds no CUDA device" in done.stdout


def test_other_runs_leave_the_acceptance_out(tmp_path: Path) -> None:
    done = pytest_words(tmp_path / "base", "tests/gpu", "-m", "slow", "--collect-only")
    assert "test_gpu.py" not in done.stdout
    assert "test_stand_in.py" in done.stdout
