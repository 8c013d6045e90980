"""Measuring programs: begun together, bounded, and gone afterwards, whatever they do."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from jupyter_mntrain.agent.machine.devices import measuring
from jupyter_mntrain.agent.machine.devices.measuring import run_programs
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.plan import DeviceMeasurement
from jupyter_mntrain.telemetry.device import BEGINS, READY
from tests.standin.devices import device
from tests.wording import says

BEGIN = f"""
import os, sys, time
open(os.environ["PIDS"], "a").write(f"{{os.getpid()}}\\n")
def ready():
    print({READY!r}, flush=True)
    sys.stdin.readline()
"""
TELL = f"""
print({msgspec.json.encode(device()).decode()!r}.replace("2.13.0", os.environ["RANK"]))
"""


class Programs:
    """An interpreter that runs a given program, whatever it is asked to run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pids = folder, folder / "pids"
        self.begun: list[str] = []

    def run(self, program: str, ranks: int = 1) -> list[list[DeviceMeasurement]]:
        python = self.folder / "python"
        python.write_text(f"#!{sys.executable}\n{BEGIN}{program}")
        python.chmod(0o755)
        own = [{**os.environ, "PIDS": str(self.pids), "RANK": str(rank)} for rank in range(ranks)]
        running = run_programs(str(python), "cpu", own, ["float32"], self.begun.append)
        return asyncio.run(running)

    def refused(self, program: str, ranks: int = 1) -> str:
        with pytest.raises(RefusedError) as caught:
            self.run(program, ranks)
        assert str(self.folder) in (caught.value.fix or ""), "how to run it by hand"
        return caught.value.cause

    @property
    def alive(self) -> list[int]:
        pids = list(map(int, self.pids.read_text().split()))
        return [pid for pid in pids if psutil.pid_exists(pid)]


@pytest.fixture
def made(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def test_what_each_measured_is_told_whatever_else_was_printed(made: Programs) -> None:
    told = made.run(f"print('a startup file'); ready(); print('a warning'); {TELL.strip()}", 2)
    assert [[one.torch for one in lines] for lines in told] == [["0"], ["1"]]
    assert made.alive == []


def test_each_dtype_is_told_when_it_begins(made: Programs) -> None:
    begins = [f"print({BEGINS + dtype!r})" for dtype in ("float32", "bfloat16")]
    made.run(f"ready(); print('a warning'); {begins[0]}; {TELL.strip()}; {begins[1]}")
    assert made.begun == ["float32", "bfloat16"]


MEET = """
ready()
open(os.environ["PIDS"] + "begun", "a").write("x")
"""


def test_nobody_begins_to_measure_before_all_are_ready(made: Programs) -> None:
    late = f"""
if os.environ["RANK"] == "1":
    time.sleep(0.5)
    assert not os.path.exists(os.environ["PIDS"] + "begun")
{MEET}{TELL}"""
    assert len(made.run(late, 3)) == 3


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("sys.exit('No module named torch')", "No module named torch"),
        ("ready(); raise MemoryError('no room')", "no room"),
        ("ready(); os.kill(os.getpid(), 9)", "signal 9"),
        ("ready()", "exit code 0"),
        ("ready(); print('x' * (1 << 21))", "something other"),
        (f"ready(); {TELL.strip()}; sys.exit(3)", "exit code 3"),
    ],
)
def test_a_program_that_dies_says_why(made: Programs, program: str, said: str) -> None:
    assert says(said, made.refused(program))
    assert made.alive == []


@pytest.mark.parametrize("hang", ["time.sleep(600)", "ready(); time.sleep(600)"])
def test_a_program_that_hangs_is_killed_with_all_others(
    made: Programs, monkeypatch: pytest.MonkeyPatch, hang: str
) -> None:
    monkeypatch.setattr(measuring, "DEVICES_LIMIT_S", 4.0)
    monkeypatch.setattr(measuring, "LEAST_S", 1.0)
    ignores = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    program = f"{ignores}if os.environ['RANK'] == '1': {hang}\nready()\n{TELL}"
    assert says("within", made.refused(program, 2))
    assert len(made.pids.read_text().split()) == 2
    assert made.alive == []


def test_what_all_were_done_with_in_time_counts(
    made: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "DEVICES_LIMIT_S", 4.0)
    monkeypatch.setattr(measuring, "LEAST_S", 1.0)
    second = TELL.replace("float32", "bfloat16")
    late = f"if os.environ['RANK'] == '1': sys.stdout.flush(); time.sleep(600){second}"
    told = made.run(f"ready()\n{TELL}{late}", 2)
    assert [[one.dtype for one in lines] for lines in told] == [["float32"], ["float32"]]
    assert made.alive == []


def test_a_program_is_told_what_is_left_of_the_time(
    made: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "DEVICES_LIMIT_S", 30.0)
    told = f"""
print({READY!r}, flush=True)
assert 0 < float(sys.stdin.readline()) < 30
{TELL}"""
    assert len(made.run(told)) == 1


def test_one_that_dies_ends_the_others_at_once(made: Programs) -> None:
    program = "if os.environ['RANK'] == '1': sys.exit('broken')\nready()\ntime.sleep(600)"
    assert "broken" in made.refused(program, 2)
    assert made.alive == []


def test_an_interpreter_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        asyncio.run(run_programs(str(tmp_path / "gone"), "cpu", [{}], ["float32"], print))
