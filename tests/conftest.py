"""Fixtures for all rooms."""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests import progress
from tests.agent.forking.python import serve_once
from tests.longest import longest_first
from tests.scrambling import scrambled_words
from tests.scrambling.missed import missed

# Before anything imports the package.
if "--scramble-words" in sys.argv or os.environ.get(scrambled_words.VARIABLE) == "1":
    scrambled_words.install()

from tests.searches import runs_all
from tests.trusted import install_drivers
from tests.wording import is_scrambled, known, reads_words

# How long an example takes depends on the machine's load.
hypothesis.settings.register_profile("any load", deadline=None)
hypothesis.settings.register_profile("short", deadline=None, max_examples=25)
hypothesis.settings.load_profile("any load" if runs_all() else "short")

TESTS = Path(__file__).parent

WITHOUT_CLUSTERS = {
    "command_line",
    "gpu",
    "http",
    "launch",
    "metrics",
    "model",
    "plan",
    "recipe",
    "show",
    "slurm_lab",
    "sources",
    "telemetry",
    "workload",
}
"""Rooms whose tests are no drivers: making each of them one would take longer than they do."""

_missed: dict[str, str] = {}
"""Sentences that stayed readable, and the module of each."""

_next_host = itertools.count(1)

CACHE_VARIABLE = "MNTRAIN_TESTS_CACHE"
"""A cache for several runs, which ``scripts/test`` makes and removes."""
_next_home = itertools.count(1)

WHOLLY_SLOW = re.compile(
    r"^pytestmark = (\[[^\]]*)?pytest\.mark\.(slow|netlab)\b", flags=re.MULTILINE
)

MARKS = re.compile(r"\bpytest\.mark\.(\w+)")

# All that thousands of tests have imported and parsed is alive: looking through it each time that a
# few thousand objects were made took a seventh of their time (measured).
gc.set_threshold(20_000, 20, 20)

# Several tests run at once, each on its own: threads of torch would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Hundreds of ranks measure their device, which is no subject of nearly all tests.
os.environ.setdefault("MNTRAIN_TELEMETRY_PEAK_MEASURE_S", "0.05")

# What a shell starts in the background ignores Ctrl-C, and so would everything that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "scramble every cause and fix; tests marked wording are left out"
    parser.addoption("--scramble-words", action="store_true", help=text)
    text = "only tests that read a cause or fix, which --scramble-words leaves unproved"
    parser.addoption("--only-words", action="store_true", help=text)
    parser.addoption("--no-words", action="store_true", help="all but those of --only-words")


def pytest_configure(config: pytest.Config) -> None:
    progress.register(config)
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        serve_once()  # for all workers


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files without a test that is asked for are not imported: all of them take half a minute."""
    asked = config.getoption("markexpr")
    only_words = config.getoption("--only-words")
    if not collection_path.match("test_*.py") or not (asked or only_words):
        return None
    text = collection_path.read_text()
    if only_words and "wording" not in text:
        return True
    if "not slow" in asked:
        return True if WHOLLY_SLOW.search(text) else None
    wanted = set(re.findall(r"(?<!not )\b(slow|agents|netlab)\b", asked))
    return True if wanted and wanted.isdisjoint(MARKS.findall(text)) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and parsed meanwhile stays: nobody looks through it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    longest_first(items)
    only_words, no_words = (config.getoption(one) for one in ("--only-words", "--no-words"))
    if is_scrambled() or only_words or no_words:
        known.update({item.nodeid: asks_for_words(item) for item in items})
        left_out = [
            item
            for item in items
            if (
                (is_scrambled() and item.get_closest_marker("wording"))
                or (only_words and not _reads_words(item))
                or (no_words and _reads_words(item))
            )
        ]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in {*left_out}]


def _reads_words(item: pytest.Item) -> bool:
    return known[item.nodeid] or item.get_closest_marker("wording") is not None


def asks_for_words(item: pytest.Item) -> bool:
    """Whether a test or one of its fixtures does, as far as its code shows that."""
    if not isinstance(item, pytest.Function):
        return False
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    return reads_words(item.function, *(one.func for defined in fixtures for one in defined))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where a sentence stayed readable: code may decide by that one, and nobody notices."""
    if os.environ.get(scrambled_words.VARIABLE) == "1" and not hasattr(
        session.config, "workerinput"
    ):
        package = Path(__file__).parents[1] / scrambled_words.PACKAGE
        seen = Path(os.environ[scrambled_words.SEEN])
        _missed.update(missed(package, seen.read_text() if seen.exists() else ""))
        seen.unlink(missing_ok=True)
        if _missed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _missed:
        terminalreporter.section("sentences that --scramble-words left readable")
        for literal, module in sorted(_missed.items(), key=lambda one: one[1]):
            terminalreporter.line(f"FAILED {module}: {literal!r}")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def loopback_addresses() -> Iterator[str]:
    """Loopback addresses nobody else uses: 127.W.x.y with W from the xdist worker's number."""

    def addresses() -> Iterator[str]:
        worker = 10 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        while True:
            high, low = divmod(next(_next_host), 250)
            yield f"127.{worker}.{high % 250}.{low + 2}"

    return addresses()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache for all tests of a run, not the user's: what is kept there depends on its contents
    alone, and tokenizing the default text takes 11 s of CPU time in every home."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", os.environ.get(CACHE_VARIABLE, str(shared / "cache")))
        yield


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def own_home(request: pytest.FixtureRequest, homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own peers, node ids or jobs."""
    # Numbered here: pytest would look through the homes of all tests before.
    home = homes / str(next(_next_home))
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    if request.path.relative_to(TESTS).parts[0] not in WITHOUT_CLUSTERS:
        install_drivers(home / ".config")
