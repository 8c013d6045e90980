"""Run the checks of ``scripts/test``, several at once, and say what happens when it happens.

A layer consists of steps. A step is one command with a log of its own in ``build/tests``; steps run
side by side as far as the machine's cores allow. A failure is shown when it happens, a result when
its step ends, and once a minute what is running.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "tests"
BROWSER = ROOT / "labextension" / "ui-tests"
BIN = Path(sys.executable).parent
CORES = max(2, os.cpu_count() or 2)
SLOTS = 2 * CORES
"""Half of the time a step waits for what it started, so twice as many run as there are cores."""
MOST = SLOTS - 1
"""Of a step that takes all but what a last, small one of the layer before it takes. Page and jobs
side by side took longer than one after the other: both ask often while they wait."""
REPORT_S = 60.0
POLL_S = 0.2
END_S = 60.0
"""How long a step that is interrupted has to say what failed until then."""
LONGEST_MINUTES = 80
"""A run that hangs is ended and named before CI gives up; long forms have no limit."""
SHOWN_FAILURES = 3
SHOWN_LINES = 60
INTERRUPTED = 130

OF_THE_SHELL = re.compile(
    # A cluster, agents and settings that somebody works with, and where they are.
    r"MNTRAIN_(?!ALL_CASES$).*|XDG_(CONFIG|STATE|DATA)_HOME"
    # IPython warns of another environment; tests' hundreds of processes share compiled bytecode.
    r"|VIRTUAL_ENV|PYTHONDONTWRITEBYTECODE"
)
"""Variables of whoever types scripts/test that no test may see."""

FAST = "not slow and not agents and not netlab"
SCRAMBLED = {
    "the notebook": (
        "tests/metrics",
        "tests/show",
        "tests/verbs",
        "tests/server",
        "tests/notebook",
    ),
    "the cluster": ("tests/cluster", "tests/plan", "tests/workload", "tests/sources"),
    "agents": ("tests/agent", "tests/model", "tests/launch", "tests/trust"),
}
"""No code of these rooms may decide by words: its unit tests run with every cause and fix
scrambled, and those that read some as they are, apart. A process for each part, which imports
that part of the package alone."""
PASS_PROBLEMS_ON = tuple(room for rooms in SCRAMBLED.values() for room in rooms)
WITH_TORCH = ("tests/train", "tests/recipe", "tests/telemetry", "tests/own_scripts")
"""Their tests import torch, which takes seconds: in one process of their own."""
PLAYWRIGHT = re.compile(r"^\s+(?P<mark>✓|✘|-|ok|x)\s+\d+ (?P<name>.+)$")
JEST_TOTAL = re.compile(
    r"^Tests:\s+(?:(\d+) failed, )?(?:(\d+) skipped, )?(?:(\d+) passed, )?", re.MULTILINE
)
RETRY = "(retry #"
TOLD = re.compile(
    r"^(?:FAILED|ERROR) |: error: |^ +\d+\) |●|^E  "
    r"|^ +(?:Error|Locator|Expected|Received): |^ +> +\d+ \|"
)
"""Lines of a log that say what failed."""


@dataclass(frozen=True)
class Step:
    """One command of a layer.

    Args:
        slots: how many of ``SLOTS`` it takes: about how many processes of it compute at a time.
        needs: a program without which it is skipped.
    """

    name: str
    command: tuple[str, ...]
    slots: int = 1
    folder: Path = ROOT
    variables: tuple[tuple[str, str], ...] = ()
    needs: str = ""

    @property
    def log(self) -> Path:
        return LOGS / f"{self.name.replace(' ', '-').replace(',', '')}.log"


def pytest(name: str, marks: str, *arguments: str, workers: int = 1, **others: Any) -> Step:
    """A step of pytest; with more than one worker by pytest-xdist."""
    loadfile = ("--dist", "loadfile", "--no-loadscope-reorder")
    many = ("-n", str(workers), *loadfile) if workers > 1 else ("-p", "no:xdist")
    # Steps run at the same time and would overwrite each other's cache.
    command = ("pytest", "-q", "-p", "no:cacheprovider", *many, "-m", marks, *arguments)
    return Step(name, command, **others)


def page(name: str, *command: str, **others: Any) -> Step:
    return Step(name, ("jlpm", *command), folder=ROOT / "labextension", **others)


LAYERS: dict[str, tuple[Step, ...]] = {
    "fast": (
        # Those that take longest come first.
        *(
            pytest(
                f"unit tests of {part}, words scrambled",
                *(FAST, "--scramble-words", "--no-words", "--durations=10", *rooms),
                workers=CORES // 2,
            )
            for part, rooms in SCRAMBLED.items()
        ),
        pytest("unit tests with torch", FAST, *WITH_TORCH),
        Step("types", ("mypy",)),
        pytest(
            "unit tests of the rest",
            FAST,
            *(f"--ignore={one}" for one in (*PASS_PROBLEMS_ON, *WITH_TORCH)),
        ),
        pytest("unit tests of words", FAST, "--only-words", *PASS_PROBLEMS_ON),
        Step("style", ("ruff", "check", ".")),
        Step("format", ("ruff", "format", "--check", ".")),
        Step("import arrows", ("lint-imports",)),
        Step("spelling", ("codespell",)),
    ),
    "jobs": (
        pytest(
            "jobs",
            "slow or agents or netlab",
            "--durations=40",
            workers=5 * CORES // 2,
            slots=MOST,
        ),
    ),
    "page": (
        # One slot each, which the jobs leave.
        page("style of the page", "lint:check"),
        page("unit tests of the page", "test", "--silent"),
        Step("generated types", ("scripts/types", "--check")),
        Step("types of the browser tests", ("jlpm", "check"), folder=BROWSER),
        Step(
            "browser",
            ("jlpm", "test"),
            folder=BROWSER,
            slots=MOST,
            needs="chromium chromium-browser google-chrome",
        ),
    ),
}
ABOUT = {
    "fast": "Python's unit tests, types and style",
    "jobs": "real agents and torchrun jobs, on loopback and, as root, on a simulated cluster",
    "page": "the page's style, types and unit tests, and the page in Chromium",
}

ALL_CASES = (("MNTRAIN_ALL_CASES", "1"),)
LONG: dict[str, Step] = {
    "cases": pytest(
        "all cases", "not netlab", "tests", workers=CORES, slots=SLOTS, variables=ALL_CASES
    ),
    "lab-cases": pytest(
        "all cases of the simulated cluster", "netlab", "tests", slots=SLOTS, variables=ALL_CASES
    ),
    "families": Step(
        "every family", (sys.executable, "-m", "tests.train.every_family"), slots=SLOTS
    ),
    "combinations": Step(
        "real chat templates", (sys.executable, "-m", "tests.train.combinations"), slots=SLOTS
    ),
    "exactness": Step("exactness", (sys.executable, "-m", "tests.train.exactness"), slots=SLOTS),
    "scrambled": pytest(
        "scrambled words", "not gpu", "--scramble-words", "tests", workers=CORES, slots=SLOTS
    ),
    "killed": Step(
        "killed", (sys.executable, "-m", "tests.faults.killed", "--rounds", "200"), slots=SLOTS
    ),
    "kills": Step(
        "kills",
        (
            *(sys.executable, "-m", "tests.cluster.kills", "--runs", "20", "--first", "1"),
            *("--file", str(LOGS / "kills.json")),
        ),
        slots=SLOTS,
    ),
    "sessions": Step(
        "sessions",
        (sys.executable, "-m", "tests.cluster.sessions", "--runs", "5", "--first", "1"),
        slots=SLOTS,
    ),
    "search": Step(
        "search",
        (sys.executable, "-m", "tests.faults.search", "--runs", "300", "--first", "1"),
        slots=SLOTS,
    ),
    "hub": Step("a real JupyterHub", (sys.executable, "-m", "tests.hub"), slots=SLOTS, needs="npm"),
    "surroundings": Step(
        "surroundings", (sys.executable, "-m", "tests.verbs.surroundings"), slots=SLOTS
    ),
}
"""Long forms of random searches and combinations; each takes the machine for itself."""


@dataclass
class Run:
    """A step that has been started."""

    step: Step
    process: subprocess.Popen[bytes]
    events: Path
    begun_s: float = field(default_factory=time.monotonic)
    total: int = 0
    ended: int = 0
    passed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)
    """Failed once, and passed in a second try: a bug, of the test or the product."""
    running: dict[str, float] = field(default_factory=dict)
    code: int | None = None
    cpu_s: float = 0.0
    took_s: float = 0.0
    _read: int = 0
    _logged: int = 0

    def update(self) -> None:
        """Read what is new in its progress and its log, and show failures."""
        for event in self._new_events():
            self._take(json.loads(event))
        if not self.total:
            self._take_log()

    def _new_events(self) -> list[str]:
        with self.events.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode().splitlines()

    def _take(self, event: dict[str, Any]) -> None:
        ((kind, value),) = [(kind, value) for kind, value in event.items() if kind != "text"]
        match kind:
            case "total":
                self.total = value
            case "started":
                self.running[value] = time.monotonic()
            case "ended":
                self.ended += 1
                self.running.pop(value, None)
            case "passed":
                self.passed += 1
            case "skipped":
                self.skipped += 1
            case "failed":
                self._fail(value, event["text"])

    def _take_log(self) -> None:
        """Playwright's list: a line per test."""
        text = self.step.log.read_text(errors="replace")
        lines = text[: text.rfind("\n") + 1].splitlines()
        for line in lines[self._logged :]:
            if found := PLAYWRIGHT.match(line):
                is_again = RETRY in found["name"]
                match found["mark"]:
                    case "✘" | "x" if is_again:
                        self._fail(found["name"], "")
                    case "✘" | "x":
                        say(f"again   {self.step.name}: {found['name']}")
                        continue
                    case "-":
                        self.skipped += 1
                    case _:
                        self.passed += 1
                        self.flaky += [found["name"]] if is_again else []
                self.ended += 1
        self._logged = len(lines)

    def _fail(self, name: str, text: str) -> None:
        self.failures.append(name)
        say(f"FAILED  {self.step.name}: {name}")
        if len(self.failures) <= SHOWN_FAILURES and text:
            lines = text.splitlines()
            if (before := len(lines) - SHOWN_LINES) > 0:
                lines = [f"[{before} lines before these: {self.step.log}]", *lines[before:]]
            print(*(f"        {line}" for line in lines), sep="\n", flush=True)

    def has_ended(self) -> bool:
        if self.code is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if not pid:
                return False
            self.code = self.process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_s = usage.ru_utime + usage.ru_stime
            self.took_s = time.monotonic() - self.begun_s
        return True

    def conclude(self) -> None:
        """Say how it ended."""
        self.update()
        if not self.total and (
            found := JEST_TOTAL.search(self.step.log.read_text(errors="replace"))
        ):
            failed, self.skipped, self.passed = (int(one or 0) for one in found.groups())
            self.failures += [f"{failed} tests of jest: {self.step.log}"] if failed else []
        if self.code and not self.failures:
            self._fail(f"exit code {self.code}", told(self.step.log))
        if not self.total and (self.failures or self.flaky):
            print(*(f"        {line}" for line in told(self.step.log).splitlines()), sep="\n")
        counts = {"failed": len(self.failures), "passed": self.passed, "skipped": self.skipped}
        counts["flaky"] = len(self.flaky)
        counted = (
            ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "passed"
        )
        word = "FAILED" if self.failures else "ok"
        took = f"{clock(self.took_s)}, {self.cpu_s:.0f} s of CPU"
        say(f"{word:7} {self.step.name}: {counted} in {took}")

    def now(self) -> str:
        """What it is doing, in a few words."""
        text = self.step.name
        if self.total:
            text += f" {self.ended} of {self.total}"
        elif self.ended:
            text += f" {self.ended}"
        if self.running:
            name, since = min(self.running.items(), key=lambda one: one[1])
            if (taken := time.monotonic() - since) > REPORT_S / 2:
                text += f" ({name.rpartition('/')[2]} for {taken:.0f} s)"
        return text

    def end(self, number: int) -> None:
        """Send a signal to it and to all that it started."""
        if self.code is None:
            os.killpg(self.process.pid, number)


BEGUN_S = time.monotonic()


def say(text: str) -> None:
    if sys.stdout.isatty():
        print("\r\033[K", end="")
    print(f"{clock(time.monotonic() - BEGUN_S):>6}  {text}", flush=True)


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def told(log: Path) -> str:
    """Lines of a log about failures, or its last ones."""
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join([line for line in lines if TOLD.search(line)][:20] or lines[-20:])


class Runner:
    """Runs steps side by side.

    Args:
        steps: in the order in which they are started.
        minutes: after which what still runs is ended; 0 for no limit.
    """

    def __init__(self, steps: Sequence[Step], cache: Path, minutes: int) -> None:
        self._waiting = list(steps)
        self._cache = cache
        self._minutes = minutes
        self._runs: list[Run] = []
        self.failed: list[str] = []
        self.flaky: list[str] = []
        self.passed = self.skipped = 0

    def run(self) -> None:
        reported = time.monotonic()
        try:
            while self._waiting or self._runs:
                self._start()
                time.sleep(POLL_S)
                self._look()
                now = ", ".join(run.now() for run in self._runs)
                if sys.stdout.isatty():
                    width = shutil.get_terminal_size().columns
                    print(f"\r\033[K{now[: width - 1]}", end="", flush=True)
                elif self._runs and time.monotonic() - reported > REPORT_S:
                    reported = time.monotonic()
                    say(f"running {now}")
                if self._minutes and time.monotonic() - BEGUN_S > 60 * self._minutes:
                    say(f"ended: the {self._minutes} minutes for all tests are over")
                    self.failed += [f"{step.name}: not run" for step in self._waiting]
                    self._waiting.clear()
                    self.end()
        except KeyboardInterrupt:
            self.end()
            raise

    def _start(self) -> None:
        taken = sum(run.step.slots for run in self._runs)
        for step in list(self._waiting):
            if self._runs and taken + step.slots > SLOTS:
                continue
            self._waiting.remove(step)
            if step.needs and not any(map(shutil.which, step.needs.split())):
                say(f"skipped {step.name}: no {step.needs.split()[0]} here")
                continue
            taken += step.slots
            self._runs.append(started(step, self._cache))

    def _look(self) -> None:
        for run in list(self._runs):
            run.update()
            if run.has_ended():
                run.conclude()
                self._runs.remove(run)
                self.failed += [f"{run.step.name}: {one}" for one in run.failures]
                self.flaky += [f"{run.step.name}: {one}" for one in run.flaky]
                self.passed += run.passed
                self.skipped += run.skipped

    def end(self) -> None:
        """End what runs; pytest says what failed until now."""
        for run in self._runs:
            run.end(signal.SIGINT)
        deadline = time.monotonic() + END_S
        while self._runs and time.monotonic() < deadline:
            time.sleep(POLL_S)
            self._look()
        for run in self._runs:
            run.end(signal.SIGKILL)
            self.failed.append(f"{run.step.name}: ended, it was running {run.now()}")
        self._runs.clear()


def started(step: Step, cache: Path) -> Run:
    step.log.parent.mkdir(parents=True, exist_ok=True)
    events = step.log.with_suffix(".events")
    events.write_text("")
    variables = {name: one for name, one in os.environ.items() if not OF_THE_SHELL.fullmatch(name)}
    variables |= {"MNTRAIN_TESTS_PROGRESS": str(events), "MNTRAIN_TESTS_CACHE": str(cache)}
    with step.log.open("wb") as log:
        process = subprocess.Popen(
            step.command,
            cwd=step.folder,
            env=variables | dict(step.variables),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # ended whole
        )
    return Run(step, process, events)


def git(*arguments: str) -> list[str]:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines()


def changed_files(since: str | None) -> tuple[str, list[str]]:
    """The commit that the change is measured from, and the files that differ from it.

    By default since the branch left its upstream or ``main``. If that is the commit that is checked
    out, what is not committed; if nothing is, the last commit.
    """
    uncommitted = [line[3:].rpartition(" -> ")[2] for line in git("status", "--porcelain", "-uall")]
    if since is None:
        bases = (git("merge-base", "HEAD", one) for one in ("@{upstream}", "main", "origin/main"))
        since = next((base[0] for base in bases if base), "HEAD")
        if not uncommitted and [since] == git("rev-parse", "HEAD"):
            since = "HEAD~1"
    elif not git("rev-parse", "--verify", "--quiet", f"{since}^{{commit}}"):
        sys.exit(f"scripts/test: no commit {since!r}. Fix: name one that git log shows.")
    return since, sorted({*git("diff", "--name-only", since), *uncommitted})


def reached_tests(changed: Iterable[str]) -> list[str]:
    """Test files that import what changed, directly or not, the nearest first.

    A conftest.py reaches the tests below it. A file that is no Python module reaches the modules
    whose text names it, and those next to it.
    """
    import grimp

    graph = grimp.build_graph("jupyter_mntrain", "tests")
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for top in ("jupyter_mntrain", "tests")
        for path in (ROOT / top).rglob("*.py")
    }
    tests = {module for module, path in paths.items() if path.name.startswith("test_")}
    level: set[str] = set()
    for name in changed:
        path = Path(name)
        module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        if path.name == "conftest.py":
            level |= {one for one in tests if one.startswith(module.removesuffix("conftest"))}
        if path.suffix == ".py" and module in graph.modules:
            level.add(module)
        else:
            # Only tests read pages and scripts; the package reads its own data.
            top = "jupyter_mntrain" if path.parts[0] == "jupyter_mntrain" else "tests"
            texts = {one: paths[one].read_text() for one in paths if one.startswith((top, "tests"))}
            level |= {
                one
                for one, text in texts.items()
                if path.name in text or paths[one].parent == ROOT / path.parent
            }
    distances: dict[str, int] = {}
    distance = 0
    while level:
        distances |= dict.fromkeys(level, distance)
        distance += 1
        level = {
            importer
            for module in level & graph.modules
            for importer in graph.find_modules_that_directly_import(module)
        } - distances.keys()
    reached = sorted((at, module) for module, at in distances.items() if module in tests)
    return [str(paths[module].relative_to(ROOT)) for _, module in reached]


def changed_steps(since: str | None) -> list[Step]:
    """What a change can reach, without tests that start agents or torchrun."""
    base, changed = changed_files(since)
    there = [name for name in changed if (ROOT / name).is_file()]
    python = [name for name in there if name.endswith(".py")]
    tests = reached_tests(changed)
    says = f"{len(changed)} files differ from {base[:10]}; {len(tests)} files of tests can see that"
    print(f"scripts/test: {says}", flush=True)
    steps: list[Step] = []
    plain = [one for one in tests if not one.startswith(WITH_TORCH)]
    torch = [one for one in tests if one.startswith(WITH_TORCH)]
    if plain:
        steps.append(pytest("unit tests", FAST, *plain, workers=CORES, slots=2))
    if torch:
        steps.append(pytest("unit tests with torch", FAST, *torch))
    if python:
        steps.append(Step("style", ("ruff", "check", "--force-exclude", *python)))
        steps.append(Step("format", ("ruff", "format", "--check", "--force-exclude", *python)))
    if any(name.startswith("jupyter_mntrain/") for name in python):
        steps += [step for step in LAYERS["fast"] if step.name in ("types", "import arrows")]
    if there:
        steps.append(Step("spelling", ("codespell", *there)))
    if any(name.startswith("labextension/") for name in changed):
        steps.append(page("unit tests of the page", "test", "--silent", f"--changedSince={base}"))
        steps += [
            step for step in LAYERS["page"] if step.name in ("style of the page", "generated types")
        ]
    return steps


def interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/test",
        usage="scripts/test [--fast | --changed [COMMIT] | --all] [NAME …]",
        description="Install what the tests need, and run them.",
        epilog="Layers: "
        + "; ".join(f"{name}: {about}" for name, about in ABOUT.items())
        + f". Long forms, which only --all includes: {', '.join(LONG)}.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="layers or long forms (all layers)"
    )
    parser.add_argument("--fast", action="store_true", help="the layer fast")
    parser.add_argument(
        "--changed",
        nargs="?",
        const="",
        metavar="COMMIT",
        help="only what files that differ from COMMIT can reach by imports, without real jobs "
        "(COMMIT: where the branch began)",
    )
    parser.add_argument(
        "--all", action="store_true", help="all layers, and then every long form: hours"
    )
    parser.add_argument("--list", action="store_true", help="print the commands, and run nothing")
    arguments = parser.parse_args()
    if arguments.fast:
        arguments.names.append("fast")
    for name in arguments.names:
        if name not in LAYERS and name not in LONG:
            known = ", ".join([*LAYERS, *LONG])
            parser.error(f"no layer or long form {name!r}. Fix: name some of {known}.")
    return arguments


def main() -> int:
    arguments = parsed()
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    if arguments.changed is not None:
        steps = changed_steps(arguments.changed or None)
    else:
        names = arguments.names or list(LAYERS)
        steps = [step for name in LAYERS if name in names for step in LAYERS[name]]
        steps += [step for name, step in LONG.items() if arguments.all or name in names]
    if arguments.list:
        for step in steps:
            print(f"{step.name}: {shlex.join(step.command)}")
        return 0
    has_long = arguments.all or not {*LONG}.isdisjoint(arguments.names)
    print(f"scripts/test: logs in {LOGS.relative_to(ROOT)}/", flush=True)
    shutil.rmtree(LOGS, ignore_errors=True)
    with tempfile.TemporaryDirectory() as cache:
        runner = Runner(steps, Path(cache), 0 if has_long else LONGEST_MINUTES)
        try:
            runner.run()
        except KeyboardInterrupt:
            print("\nscripts/test: interrupted", file=sys.stderr)
            return INTERRUPTED
        finally:
            ends = [f"flaky   {one}" for one in runner.flaky]
            ends += [f"FAILED  {one}" for one in runner.failed]
            counts = {"passed": runner.passed, "failed": len(runner.failed)}
            counts["skipped"] = runner.skipped
            said = ", ".join(f"{count} {what}" for what, count in counts.items())
            print(*ends, f"total: {said}", sep="\n")
    say("failed" if runner.failed else "passed")
    return 1 if runner.failed else 0


if __name__ == "__main__":
    sys.exit(main())
