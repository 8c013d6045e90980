"""Rank hooks in real interpreters: what a rank writes down of its own end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.telemetry.startup import STARTUP_DIRECTORY
from jupyter_mntrain.telemetry.startup.exit_record import (
    ExitRecord,
    read_crash,
    read_exit_record,
    read_exits,
)


def run(directory: Path, script: str, *, path: str = "", **environment: str) -> int:
    """Run a script as rank 3; its exit code."""
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(STARTUP_DIRECTORY), path])),
        "MNTRAIN_METRICS_DIR": str(directory),
        "RANK": "3",
        "LOCAL_RANK": "0",
        **environment,
    }
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=variables, capture_output=True, check=False).returncode


def record(directory: Path) -> ExitRecord:
    found = read_exit_record(directory, Rank(3))
    assert found is not None
    return found


def test_a_normal_end_is_told_apart_from_one_at_once(tmp_path: Path) -> None:
    assert run(tmp_path, "import sys; sys.exit(0)") == 0
    assert record(tmp_path).is_over
    assert run(tmp_path, "import os; os._exit(77)") == 77
    assert not record(tmp_path).is_over


@pytest.mark.parametrize(
    "script",
    [
        "raise KeyError('label')",
        "import sys; sys.excepthook = lambda *_: None; raise KeyError('label')",
        "import atexit; atexit.register(print, 'bye'); raise KeyError('label')",
    ],
)
def test_the_exception_that_escaped_is_kept_whatever_hook_is_set(
    tmp_path: Path, script: str
) -> None:
    assert run(tmp_path, script) == 1
    escaped = record(tmp_path).escaped
    assert escaped is not None
    assert escaped.line == "KeyError: 'label'"
    assert "KeyError" in escaped.traceback


def test_what_was_handled_is_not_kept_and_what_it_was_raised_from_is(tmp_path: Path) -> None:
    handled = "\ntry:\n    raise OSError('one')\nexcept OSError:\n    pass\n"
    assert run(tmp_path, handled) == 0
    assert record(tmp_path).escaped is None
    chained = (
        "\ntry:\n    raise OSError('one')\nexcept OSError as e:\n    raise ValueError(2) from e"
    )
    assert run(tmp_path, chained) == 1
    escaped = record(tmp_path).escaped
    assert escaped is not None
    assert (escaped.line, escaped.causes) == ("ValueError: 2", ("OSError: one",))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="has no groups")
def test_of_a_group_what_it_was_raised_for_is_kept(tmp_path: Path) -> None:
    grouped = (
        "\nimport asyncio\nasync def load():\n    raise KeyError('label')\n"
        "async def main():\n    async with asyncio.TaskGroup() as group:\n"
        "        group.create_task(load())\nasyncio.run(main())"
    )
    assert run(tmp_path, grouped) == 1
    escaped = record(tmp_path).escaped
    assert escaped is not None
    assert (escaped.line, escaped.frames[-1][2]) == ("KeyError: 'label'", "load")
    assert "ExceptionGroup" in escaped.traceback


def test_an_exception_without_text_and_one_in_a_thread_do_no_harm(tmp_path: Path) -> None:
    silent = "\nclass Odd(Exception):\n    def __str__(self):\n        1 / 0\nraise Odd"
    assert run(tmp_path, silent) == 1
    escaped = record(tmp_path).escaped
    assert escaped is not None
    assert escaped.line == "Odd"
    threads = "import threading; t = threading.Thread(target=int, args='x'); t.start(); t.join()"
    assert run(tmp_path, threads) == 0
    found = record(tmp_path)
    assert found.escaped is None
    assert [one.kind for one in found.in_threads] == ["ValueError"]


def test_a_crash_leaves_its_stacks(tmp_path: Path) -> None:
    assert run(tmp_path, "import ctypes; ctypes.string_at(0)") == -signal.SIGSEGV
    assert "string_at" in read_crash(tmp_path, Rank(3))
    assert not record(tmp_path).is_over


@pytest.mark.parametrize("how", ["os.fork()", "subprocess.run([sys.executable, '-c', 'raise 1'])"])
def test_what_a_rank_starts_is_not_the_rank(tmp_path: Path, how: str) -> None:
    script = f"import os, subprocess, sys; pid = {how}; pid == 0 and sys.exit(0); raise KeyError(1)"
    assert run(tmp_path, script) == 1
    escaped = record(tmp_path).escaped
    assert escaped is not None
    assert escaped.line == "KeyError: 1"


def test_torchrun_notes_how_its_processes_ended(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys\n"
        "for code in (0, 5):\n"
        "    subprocess.run([sys.executable, '-S', '-c', f'exit({code})'.replace('exit', "
        "'import os; os._exit')])\n"
        "p = subprocess.Popen(['sleep', '60']); p.kill(); p.wait()\n"
    )
    assert run(tmp_path, script, RANK="", LOCAL_RANK="") == 0
    assert [one.exit_code for one in read_exits(tmp_path).values()] == [0, 5, -signal.SIGKILL]
    assert read_exit_record(tmp_path, Rank(3)) is None


def test_the_sitecustomize_that_ours_hides_is_imported(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import builtins; builtins.MINE = 7")
    assert run(tmp_path, "import os; os._exit(MINE)", path=str(theirs)) == 7
    assert run(tmp_path, "import sitecustomize") == 0


def test_a_directory_that_is_gone_is_no_reason_to_fail(tmp_path: Path) -> None:
    assert run(tmp_path / "gone", "import os; os._exit(4)") == 4
    assert run(tmp_path / "gone", "print(1)") == 0
    assert run(tmp_path / "gone", "import subprocess; subprocess.run('true')", RANK="") == 0


def test_text_that_is_not_unicode_does_not_make_the_record_unreadable(tmp_path: Path) -> None:
    """Names of files that are not UTF-8 stand in messages with half surrogate pairs."""
    assert run(tmp_path, "raise FileNotFoundError('no shard-\\udc80\\udcff.bin')") == 1
    escaped = record(tmp_path).escaped
    assert escaped is not None
    assert escaped.line == "FileNotFoundError: no shard-??.bin"
