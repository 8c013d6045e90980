"""A snapshot of all that users and programs see, to compare before and after a change of structure.

    python -m tests.snapshot FOLDER [--only verbs --only plans …]
    git diff --no-index --stat BEFORE AFTER

Numbers that differ from run to run (times, process ids, rates of the stand-in cluster) are written
as ``#``; where a whole part has to be the same to the digit, it is kept.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_mntrain.model.failure.kinds import Kind
from tests import trusted
from tests.agent.live import free_range
from tests.standin.story import JOB
from tests.verbs import surroundings

ROOT = Path(__file__).resolve().parents[1]
RECIPES = sorted(path.stem for path in (ROOT / "jupyter_mntrain/recipe/builtin").glob("*.toml"))
CLUSTER = "replay"
NODES = 8
WATCHING = (
    *("nodes", "members", "doctor", "jobs", "history n1", "du"),
    *(f"{verb} {JOB}" for verb in ("status", "settings", "logs --tail 5", "checkpoints", "stacks")),
    *(f"compare {JOB}", f"export {JOB} --stdout", "recipes", "config", "gc --dry-run"),
)
"""What can be asked of a cluster and its job without changing them."""
BAD = (
    *("", "nonsense", "status no-such-job", "launch", "launch no-such-file.py", "plan nothing"),
    *("nodes --no-such-option", "launch 1b-1gpu --set train.steps=many", "stop no-such-job"),
    *("launch 1b-1gpu --set train.no_such_field=1", "launch 1b-1gpu --member nobody"),
)
IMPORTED = ("jupyter_mntrain", "jupyter_mntrain.cli", "jupyter_mntrain.agent.main", "torch")
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*(?:e[+-]?\d+)?")
SPACES = re.compile(r"[ ─]{2,}")


def steady(text: str, folder: str) -> str:
    """Without what differs from run to run: numbers, and how wide a table is by them."""
    return SPACES.sub("  ", NUMBER.sub("#", text.replace(folder, "FOLDER")))


def verb(words: str, environment: dict[str, str], folder: str) -> str:
    """What a command of users prints, and how it ends."""
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_mntrain.cli", *words.split()],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return f"$ mntrain {words}\n{done.stdout}{done.stderr}exit code {done.returncode}\n"


def each(commands: list[str], environment: dict[str, str], folder: str) -> Iterator[str]:
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(lambda words: verb(words, environment, folder), commands)


@contextmanager
def replayed(folder: str) -> Iterator[dict[str, str]]:
    """A stand-in cluster with a running job of 64 ranks; the environment of its driver."""
    port = free_range("127.0.0.1", NODES)
    command = [sys.executable, "-m", "tests.standin.replay", "--base-port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        agents = process.stdout.readline().strip().removeprefix("MNTRAIN_AGENTS=")
        try:
            yield {**alone(folder), "MNTRAIN_CLUSTER": CLUSTER, "MNTRAIN_AGENTS": agents}
        finally:
            process.terminate()


def alone(folder: str) -> dict[str, str]:
    """The environment of a driver that finds no node."""
    home = Path(folder, "home")
    home.mkdir(exist_ok=True)
    for name in (CLUSTER, "default"):
        trusted.make_credentials(home / ".config/mntrain/clusters" / name, trusted.DRIVER)
    kept = {name: os.environ[name] for name in ("PATH", trusted.PASSED_ON) if name in os.environ}
    discovery = {"MNTRAIN_CLUSTER_DISCOVERY_S": "0.05", "COLUMNS": "120"}
    return {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), **discovery}


def verbs(folder: str) -> dict[str, str]:
    """Help of every verb, every verb without nodes, and what watches a cluster; text and JSON."""
    every = list(dict.fromkeys(line.split()[0] for line in surroundings.VERBS.splitlines()))
    helps = ["--help", *(f"{one} --help" for one in every)]
    found = {"help": "\n".join(each(helps, alone(folder), folder))}
    with replayed(folder) as environment:
        for name, prefix in (("text", ""), ("json", "--json ")):
            asked = [prefix + one for one in (*WATCHING, *BAD)]
            found[name] = steady("\n".join(each(asked, environment, folder)), folder)
    return found


def plans(folder: str) -> dict[str, str]:
    """What each built-in recipe would do on the stand-in cluster."""
    with replayed(folder) as environment:
        return {
            f"{what}-{form or 'text'}": steady(
                "\n".join(each([f"{form} {what} {one}" for one in RECIPES], environment, folder)),
                folder,
            )
            for what in ("settings", "plan", "launch --dry-run")
            for form in ("", "--json")
        }


def problems(folder: str) -> dict[str, str]:
    """All kinds of problems."""
    return {"kinds": "".join(f"{kind.name} {kind.value}\n" for kind in Kind)}


def losses(folder: str) -> dict[str, str]:
    """How far each training of ``tests.train.every_family`` is from transformers: 5 minutes.

    Two digits of a rounding error tell a change of the order of a single sum.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.train.every_family"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {"losses": "\n".join(line for line in done.stdout.splitlines() if " s: " not in line)}


def wheel(folder: str) -> dict[str, str]:
    """The files of the wheel."""
    import zipfile

    done = subprocess.run(
        [str(ROOT / "scripts/wheel")], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = zipfile.ZipFile(done.stdout.split()[-1]).namelist()
    return {"files": "".join(sorted(re.sub(r"[0-9a-f]{16,}", "#", name) + "\n" for name in names))}


def imports(folder: str) -> dict[str, str]:
    """How many modules, of which ours, and seconds of CPU each import takes: the least of five."""
    code = (
        "import json, sys, time; begun = time.process_time(); before = len(sys.modules)\n"
        "__import__(sys.argv[1])\n"
        "ours = sum(name.startswith('jupyter_mntrain') for name in sys.modules)\n"
        "print(json.dumps([time.process_time() - begun, len(sys.modules) - before, ours]))"
    )
    told = ""
    for name in IMPORTED:
        runs = [
            json.loads(subprocess.check_output([sys.executable, "-c", code, name], cwd=ROOT))
            for _ in range(5)
        ]
        took, modules, ours = min(runs)
        told += f"{name}: {took:.2f} s of CPU, {modules} modules, {ours} of ours\n"
    return {"imports": told}


def schema(folder: str) -> dict[str, str]:
    """The records that the page knows."""
    return {"schema": (ROOT / "labextension/src/schema.ts").read_text()}


PARTS: dict[str, Callable[[str], dict[str, str]]] = {
    part.__name__: part for part in (verbs, plans, problems, losses, wheel, imports, schema)
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", choices=PARTS, help="repeatable")
    arguments = parser.parse_args()
    for name in arguments.only or PARTS:
        into = arguments.folder / name
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            for title, text in PARTS[name](folder).items():
                (into / f"{title.replace(' ', '-')}.txt").write_text(text)
        print(f"{name}: {into}", flush=True)


if __name__ == "__main__":
    main()
