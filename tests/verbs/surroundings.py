"""Surroundings: every verb where login, home, folder, network, locale or packages are unlike ours.

``python -m tests.verbs.surroundings`` tries all verbs in every combination (5 min on a quiet
machine, best as root; with ``--page`` it writes what it found to docs/faults.md),
``tests/verbs/test_surroundings.py`` in a few. A verb either works or ends with one line that has a
fix, and with an exit code that ``mntrain --help`` documents.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

NAMELESS_UID = 1000620000
LONGEST_S = 60
CODES = frozenset({0, 1, 2, 3, 4, 5, 6, 124, 130})
CLUSTER_NAME = "default"

VERBS = """\
nodes
add 127.0.0.1:1
forget 127.0.0.1:1
invite --no-wait
install nobody@127.0.0.1:1 --dry-run
upgrade --dry-run
members
revoke nobody
driver invite --no-wait
driver revoke nobody
driver backup b.backup
driver restore b.backup
driver join
agent run
agent join
agent drain
agent resume
agent offer
agent leave
agent install-service --without-systemd
agent remove-service
agent read nowhere
doctor
push ~nobody/model
pull n:models:m
du
gc --dry-run
measure
bench
accept --output ~nobody/x.json
history
panel
recipes
plan train.py
launch --dry-run train.py
launch train.py
launch ~nobody/train.py
launch --dry-run --project . ~nobody/train.py
resume j
jobs
status
settings j-
settings 1b-1gpu
compare j
attach j
plot j --output x.png
trace j --output ~nobody/x
tensorboard j --no-server
logs j
stacks j
report j
export j
generate j hello
chat j
serve j
checkpoints j
save j
set j train.steps=2
stop j
kill j
rename j k
session start
session attach j
session interrupt
session auto
session restart
session pull x
session push x
cell --rank 0
note j x
rm j --yes
config
completion bash
"""
"""Each as on a cluster without nodes: what they do there first is what surroundings break."""


class Surrounding(NamedTuple):
    """What is unlike a developer's machine.

    Args:
        login: ``nameless`` is a uid without an entry in passwd.
        home: ``cluster`` has the keys of a cluster.
        folder: the current one.
        packages: ``old`` ones on PYTHONPATH.
    """

    login: str = "own"
    home: str = "fine"
    folder: str = "here"
    network: str = "there"
    language: str = "unset"
    packages: str = "ours"


VALUES = Surrounding(  # type: ignore[arg-type]  # the values that each may have
    login=("own", "nameless"),
    home=("fine", "cluster", "root", "unset", "empty", "read-only", "missing", "file"),
    folder=("here", "deleted", "closed"),
    network=("there", "none"),
    language=("unset", "ascii"),
    packages=("ours", "old"),
)


class Ended(NamedTuple):
    """How a verb ended."""

    words: str
    code: int
    output: str
    errors: str

    @property
    def fault(self) -> str:
        """What is wrong with it; empty if nothing is."""
        if "Traceback" in self.output + self.errors:
            return "a traceback"
        if self.code not in CODES:
            return f"exit code {self.code}"
        if self.code > 1 and "Fix: " not in self.output + self.errors:
            return "no fix"
        return ""


def try_in(surrounding: Surrounding, verbs: tuple[str, ...]) -> list[Ended]:
    """Run verbs in a surrounding, each in a process of its own."""
    with _tidied(surrounding), tempfile.TemporaryDirectory(prefix="mntrain-surroundings-") as made:
        root = Path(made)
        root.chmod(0o755)
        environment = _environment(surrounding, root)
        done = subprocess.run(
            [
                *_as(surrounding),
                sys.executable,
                "-P",
                __file__,
                json.dumps([*surrounding]),
                made,
                *verbs,
            ],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if not done.stdout:
            return [Ended("import", done.returncode, done.stdout, done.stderr)]
        return [Ended(*json.loads(line)) for line in done.stdout.splitlines()]


@contextmanager
def _tidied(surrounding: Surrounding) -> Iterator[None]:
    """Remove what root's verbs make in a home that is everybody's root folder."""
    homes = (Path("/"),) if surrounding.home == "root" else ()
    before = {one for home in homes for one in home.iterdir()}
    try:
        yield
    finally:
        for made in {one for home in homes for one in home.glob(".*")} - before:
            shutil.rmtree(made, ignore_errors=True)


def _as(surrounding: Surrounding) -> list[str]:
    """The command that another runs by. What only root may do, others go without."""
    if os.geteuid() != 0:
        return []
    words = ["unshare", "--net"] if surrounding.network == "none" else []
    if surrounding.login == "nameless":
        # It may read what only root can: Python may lie in root's home.
        caps = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        words += ["setpriv", f"--reuid={NAMELESS_UID}", "--regid=0", "--clear-groups", *caps]
    return words


def _environment(surrounding: Surrounding, root: Path) -> dict[str, str]:
    kept = ("PATH", "MNTRAIN_TEST_AUTHORITY")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    paths = [str(Path(__file__).parents[2])]
    if surrounding.packages == "old":
        old = root / "private" / "msgspec"
        old.mkdir(parents=True)
        (old / "__init__.py").write_text("")
        paths.insert(0, str(old.parent))
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["MNTRAIN_CLUSTER_DISCOVERY_S"] = "0.05"  # no node will be found
    if surrounding.language == "ascii":
        environment |= {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    home = root / "home"
    named = {"root": "/", "empty": "", "missing": str(root / "none" / "home")}
    if surrounding.home != "unset":
        environment["HOME"] = named.get(surrounding.home, str(home))
    if surrounding.home == "file":
        home.write_text("")
    else:
        home.mkdir()
    if surrounding.home == "cluster":
        _make_cluster(home)
    (root / "here").mkdir()
    (root / "here" / "train.py").write_text("print('hello')\n")
    if surrounding.login == "nameless" and os.geteuid() == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, NAMELESS_UID, 0)
    if surrounding.home == "read-only":
        home.chmod(0o555)
    return environment


def _make_cluster(home: Path) -> None:
    from tests.trusted import DRIVER, make_credentials

    make_credentials(home / ".config" / "mntrain" / "clusters" / CLUSTER_NAME, DRIVER)


def _enter(surrounding: Surrounding, root: Path) -> None:
    """Go to its folder."""
    here = root / "here"
    here.mkdir(exist_ok=True)
    os.chdir(here)
    os.environ["PWD"] = str(here)
    if surrounding.folder == "deleted":
        shutil.rmtree(here, ignore_errors=True)
    elif surrounding.folder == "closed":
        here.chmod(0o000)


def _run(words: list[str]) -> tuple[int, str, str]:
    """Run one verb in a process of its own: exit code, output, errors."""
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(LONGEST_S)
        os.dup2(out_end, 1)
        os.dup2(err_end, 2)
        nobody, end = os.pipe()  # ended: whoever reads has read all
        os.dup2(nobody, 0)
        os.close(end)
        for one in (out, err, out_end, err_end):
            os.close(one)
        code = 70
        try:
            from jupyter_mntrain.cli import main

            code = main(words)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(out_end)
    os.close(err_end)
    with open(out, encoding="utf-8", errors="replace") as output:  # noqa: PTH123 - descriptors
        said = output.read()
    with open(err, encoding="utf-8", errors="replace") as errors:  # noqa: PTH123
        complained = errors.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said, complained


def _child(surrounding: Surrounding, root: Path, verbs: list[str]) -> None:
    _enter(surrounding, root)
    import jupyter_mntrain.cli
    import jupyter_mntrain.cluster  # each verb's process has it then

    del jupyter_mntrain
    for words in verbs:
        sys.stdout.write(json.dumps([words, *_run(words.split())]) + "\n")
        sys.stdout.flush()


def combinations() -> list[Surrounding]:
    """Every login, home and folder, with each of the others in turn."""
    rest = itertools.cycle(itertools.product(VALUES.network, VALUES.language))
    found = [
        Surrounding(login, home, folder, *next(rest))
        for login, home, folder in itertools.product(VALUES.login, VALUES.home, VALUES.folder)
    ]
    return [*found, Surrounding(packages="old"), Surrounding("nameless", "unset", packages="old")]


def section(tried: int, bad: int) -> str:
    """The section of docs/faults.md.

    Args:
        tried: command lines, in all surroundings together.
        bad: those that ended badly.
    """
    lines, places = len(VERBS.splitlines()), len(combinations())
    return f"""
`python -m tests.verbs.surroundings` runs {lines} command lines, of every verb, in {places}
combinations of login (with a name, without one), home (fine, with a cluster's keys, `/`, unset,
empty, read-only, missing, a file), folder (there, deleted, closed), network (there, none), locale
and packages on `PYTHONPATH` (too old ones). Each has to work, or to end with one line that has a
fix and with an exit code that `mntrain --help` documents: {tried - bad:,} of {tried:,} did.
"""


def main() -> int:
    """Try every verb everywhere; returns how many ended badly."""
    tried = bad = 0
    for surrounding in combinations():
        ended = try_in(surrounding, tuple(VERBS.splitlines()))
        faults = [one for one in ended if one.fault]
        tried, bad = tried + len(ended), bad + len(faults)
        told = ", ".join(surrounding)
        sys.stdout.write(f"{told}: {len(ended) - len(faults)} of {len(ended)} verbs\n")
        for one in faults:
            last = (one.errors or one.output).strip().splitlines()[-1:]
            sys.stdout.write(f"    {one.words}: {one.fault} ({one.code}): {''.join(last)}\n")
        sys.stdout.flush()
    if "--page" in sys.argv:
        from tests.faults.table import write_section

        write_section("Wherever a command runs", section(tried, bad))
    return bad


if __name__ == "__main__":
    if {"-h", "--help"} & {*sys.argv}:
        sys.stdout.write(f"{__doc__}")
    elif sys.argv[1:] not in ([], ["--page"]):
        values, made, *verbs = sys.argv[1:]
        _child(Surrounding(*json.loads(values)), Path(made), verbs)
    else:
        sys.exit(min(main(), 100))
