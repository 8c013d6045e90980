"""``scripts/test``: what it starts, what it shows, and what a change reaches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import run_tests
from scripts.run_tests import LAYERS, LONG, Runner, Step, changed_files, main, reached_tests

ROOT = Path(__file__).resolve().parents[1]

SUITE = """
import pytest

def test_right(): ...

@pytest.mark.skip(reason="not now")
def test_left_out(): ...

def test_wrong():
    assert "a wrong value" == "the right one"
"""


def python(name: str, code: str, slots: int = 1) -> Step:
    return Step(name, (sys.executable, "-c", code), slots=slots)


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_tests, "LOGS", tmp_path / "logs")
    return tmp_path / "logs"


def run(steps: list[Step], tmp_path: Path) -> Runner:
    runner = Runner(steps, tmp_path / "cache", minutes=0)
    runner.run()
    return runner


def test_a_step_that_fails_is_told_with_the_lines_that_say_why(tmp_path, capsys):
    code = "import sys; print('a.py:1: error: no such name'); print('and more'); sys.exit(3)"
    ran = run([python("types", code), python("spelling", "")], tmp_path)
    said = capsys.readouterr().out
    assert ran.failed == ["types: exit code 3"]
    assert "a.py:1: error: no such name" in said
    assert "and more" not in said
    assert "ok      spelling: passed" in said


def test_a_failure_of_pytest_is_shown_when_it_happens_and_counted(tmp_path, capsys, logs):
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "test_some.py").write_text(SUITE)
    (suite / "conftest.py").write_text(
        "from tests import progress\n\ndef pytest_configure(config): progress.register(config)\n"
    )
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(suite), str(suite))
    ran = run([Step("unit tests", (sys.executable, *command))], tmp_path)
    said = capsys.readouterr().out
    assert (ran.passed, ran.skipped) == (1, 1)
    (failed,) = ran.failed
    assert failed.startswith("unit tests: ")
    assert failed.endswith("test_some.py::test_wrong")
    assert said.index("'a wrong value' == 'the right one'") < said.index("1 failed, 1 passed, 1 sk")
    assert "1 failed" in (logs / "unit-tests.log").read_text()


def test_tests_of_the_page_are_counted_as_their_runner_lists_them(tmp_path, capsys):
    lines = [
        "  ✓  1 lab.spec.ts:3 › it opens (2.1s)",
        "  ✘  2 lab.spec.ts:9 › it closes (9.0s)",
        "  ✘  3 lab.spec.ts:9 › it closes (retry #1) (8.0s)",
        "  -  4 lab.spec.ts:12 › it waits",
        "  ✘  5 lab.spec.ts:15 › it goes on (7.0s)",
        "  ✓  6 lab.spec.ts:15 › it goes on (retry #1) (1.0s)",
        "  1) lab.spec.ts:9 › it closes",
        "    Error: expect(locator).toBeHidden() failed",
        "    > 10 |   await expect(tab).toBeHidden();",
    ]
    ran = run([python("browser", f"print({chr(10).join(lines)!r}); exit(1)")], tmp_path)
    assert (ran.passed, ran.skipped) == (2, 1)
    assert ran.failed == ["browser: lab.spec.ts:9 › it closes (retry #1) (8.0s)"]
    assert ran.flaky == ["browser: lab.spec.ts:15 › it goes on (retry #1) (1.0s)"]
    said = capsys.readouterr().out
    assert "again   browser: lab.spec.ts:9 › it closes (9.0s)" in said
    assert "await expect(tab).toBeHidden();" in said
    assert "1 failed, 2 passed, 1 skipped, 1 flaky" in said
    jest = "Tests:       2 failed, 1 skipped, 5 passed, 8 total"
    ran = run([python("jest", f"print({jest!r}); exit(1)")], tmp_path)
    assert (ran.passed, ran.skipped, len(ran.failed)) == (5, 1, 1)


def test_a_step_whose_program_is_missing_is_skipped_and_told(tmp_path, capsys):
    step = Step("browser", ("true",), needs="no-such-browser no-other-one")
    assert run([step], tmp_path).failed == []
    assert "skipped browser: no no-such-browser here" in capsys.readouterr().out


def test_a_long_form_runs_alone(tmp_path):
    seen = tmp_path / "seen"
    say = f"open({str(seen)!r}, 'a').write('{{0}} ')"
    code = f"import time; {say}; time.sleep(0.3); {say}"
    steps = [python(name, code.format(name), slots=run_tests.SLOTS) for name in "abc"]
    run(steps, tmp_path)
    assert seen.read_text().split() == ["a", "a", "b", "b", "c", "c"]


def test_what_runs_is_ended_when_the_time_is_over(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run_tests, "BEGUN_S", -1e9)
    alone = run_tests.SLOTS
    hangs = python("hangs", "import time; time.sleep(600)", alone)
    runner = Runner([hangs, python("waits", "", alone)], tmp_path, minutes=1)
    runner.run()
    assert "waits: not run" in runner.failed
    assert len([one for one in runner.failed if one.startswith("hangs: ")]) == 1
    assert "the 1 minutes for all tests are over" in capsys.readouterr().out


def test_a_name_that_is_no_layer_is_refused_with_those_that_are(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["test", "browsers"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert all(name in said for name in ("'browsers'", *LAYERS, *LONG))


def test_a_change_reaches_the_tests_that_import_it_the_nearest_first():
    reached = reached_tests(["jupyter_mntrain/agent/machine/hardware.py"])
    assert reached[0].startswith("tests/agent/machine/facts/hardware/test_")
    assert "tests/trust/test_certificates.py" not in reached
    assert reached_tests(["tests/test_terms.py"]) == ["tests/test_terms.py"]
    beside = reached_tests(["tests/agent/conftest.py"])
    assert "tests/agent/machine/test_rdma.py" in beside
    assert "tests/trust/test_certificates.py" not in beside


def test_a_change_of_a_page_reaches_the_tests_that_name_it():
    reached = reached_tests(["docs/doctor.md"])
    assert "tests/doctor/test_page.py" in reached
    assert len(reached) < 20
    assert "tests/train/model/test_families.py" in reached_tests(
        ["jupyter_mntrain/families/llama.toml"]
    )


def test_a_change_is_what_differs_from_where_the_branch_began(tmp_path, monkeypatch):
    def git(*arguments: str) -> None:
        command = ["git", "-c", "user.name=A", "-c", "user.email=a@b", *arguments]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    git("init", "--initial-branch", "main")
    for name in ("one", "two", "three"):
        (tmp_path / name).write_text("1")
        git("add", name)
        git("commit", "--message", name)
    assert changed_files(None)[1] == ["three"], "nothing is changed: the last commit"
    (tmp_path / "four").write_text("1")
    assert changed_files(None)[1] == ["four"], "what is not committed"
    git("checkout", "-b", "mine")
    git("add", "four")
    git("commit", "--message", "four")
    (tmp_path / "one").write_text("2")
    assert changed_files(None)[1] == ["four", "one"], "the branch"
    assert changed_files("HEAD~2")[1] == ["four", "one", "three"]
    with pytest.raises(SystemExit, match="no commit 'nowhere'"):
        changed_files("nowhere")
