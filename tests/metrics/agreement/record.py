"""``python -m tests.metrics.agreement.record [NAME …]``: records the journals next to this file.

Real jobs on a simulated cluster of three hosts, as root: real agents, real torchrun, the trainer's
smallest model or ``program.py``. What the agents have on their disks at the end is kept, less paths
of this machine; node ids become names, so that all recordings are of the same three nodes. Only
"mixed" is not as it was recorded: there is no second kind of device in a simulated cluster, and so
what node2's rank says of its device is set.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_args

from jupyter_mntrain.recipe.schedules import ScheduleName
from tests.e2e.conftest import invite, ours, start, token_file, up
from tests.metrics.agreement.recordings import DIRECTORY
from tests.netlab import Host, Lab, own_lab
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("program.py")
PATIENCE_S = 300.0

RECIPE = """
[model]
preset = "llama-tiny"
hidden_size = 64

[data]
sequence_length = 64

[pipeline]
schedule = "{schedule}"
microbatches = 4

[data_parallel]
replicas = {replicas}

[train]
steps = 8
batch_size = {batch_size}
log_interval = 1

[checkpoint]
at_end = false

[output]
at_end = false

[evaluation]
interval_steps = {evaluations}
sequences = 8
"""

AGENT = {"MNTRAIN_WATCHDOG_LEAST_S": "3", "OMP_NUM_THREADS": "1"}

MIXED = {"device": "a faster processor", "peak_source": "as stated"}
MIXED_TIMES_PEAK = 3.0


class Case(NamedTuple):
    """One recorded job.

    Args:
        words: of ``mntrain launch``.
        is_done: of what ``status`` says: whether it is to be kept as it is now.
        meanwhile: done once it makes steps.
    """

    words: tuple[str, ...]
    is_done: Callable[[dict[str, Any]], bool]
    meanwhile: Callable[[Lab, str], None] = lambda lab, job: None


def is_over(status: dict[str, Any]) -> bool:
    return status["state"] in ("succeeded", "failed", "canceled")


def is_stalled(status: dict[str, Any]) -> bool:
    return status.get("stall") is not None


def trained(
    schedule: str = "1f1b", *, replicas: int = 1, evaluations: int = 0, nproc: int = 1
) -> Case:
    recipe = RECIPE.format(
        schedule=schedule, replicas=replicas, evaluations=evaluations, batch_size=8 * replicas
    )
    return Case(("recipe", recipe, *members(nproc, nproc)), is_over)


def program(case: str, *words: str, nproc: int = 1, **how: Any) -> Case:
    done = how.pop("is_done", is_over)
    return Case(("program", case, *(words or members(nproc, nproc))), done, **how)


def members(*processes: int) -> tuple[str, ...]:
    words = [("--member", f"node{number}:{nproc}") for number, nproc in enumerate(processes, 1)]
    return tuple(word for pair in words for word in pair)


def lose_third(lab: Lab, job: str) -> None:
    """Its power, and a rank next to it: those that are left begin again."""
    lab.host("node3").power_cut()
    host = lab.host("node2")
    (record,) = host.home.glob(f".local/state/mntrain/nodes/*/jobs/{job}/record.json")
    pid = json.loads(record.read_text())["part"]["ranks"][0]["pid"]
    host.run(["kill", "-9", str(pid)])


CASES: dict[str, Case] = {
    **{name: trained(name) for name in get_args(ScheduleName)},
    "replicas": trained(replicas=2, nproc=2),
    "evaluated": trained("gpipe", evaluations=3),
    "mixed": trained(),
    "restarted": program("restarted", *members(1, 1), "--restarts", "1"),
    "stalled": program("stalled", is_done=is_stalled),
    "slowed": program("slowed"),
    "diverged": program("diverged"),
    "many": program("many", nproc=5),
    # The last one: node3 is gone after it.
    "shrunk": program(
        "shrunk", *members(1, 1, 1), "--restarts", "2", "--min-nodes", "2", meanwhile=lose_third
    ),
}


@contextmanager
def cluster(mntrain: str) -> Iterator[Lab]:
    with own_lab(3) as lab:
        head = lab.host("node1")
        token = invite(head, mntrain, "--uses", "3")
        for host in lab.hosts:
            log = host.home / "agent.log"
            words = [mntrain, "agent", "join", "--token-file", token_file(host, token)]
            words += ["--link-capacity", "eth1=1gbit"]
            start(host, words, log, environment=AGENT)
            until(lambda log=log: "has joined" in log.read_text(), f"{log} to have joined")
        until(lambda: len(up(head, mntrain)) == 3, "three nodes to be up")
        yield lab


def record(lab: Lab, mntrain: str, name: str) -> None:
    head, case = lab.host("node1"), CASES[name]
    kind, what, *words = case.words
    if kind == "recipe":
        path = head.home / "recipe.toml"
        path.write_text(what)
        entry = [str(path)]
    else:
        entry = [str(PROGRAM), "--env", f"CASE={what}"]
    options = ["--name", name, "--detach", "--env", "OMP_NUM_THREADS=1", *words]
    job = ours(head, mntrain, "launch", *options, *entry)["job_id"]

    def status() -> dict[str, Any]:
        told: dict[str, Any] = ours(head, mntrain, "status", job)
        return told

    until(lambda: (status()["step"] or 0) > 2 or is_over(status()), f"{name} to run", PATIENCE_S)
    case.meanwhile(lab, job)
    until(lambda: case.is_done(status()), f"{name} to be done", PATIENCE_S)
    keep(lab, name, job)
    if not is_over(status()):
        ours(head, mntrain, "kill", job)


def keep(lab: Lab, name: str, job: str) -> None:
    told = [one for host in lab.hosts if (one := on_disk(host, job)) is not None]
    if name == "mixed":
        make_mixed(told)
    text = json.dumps({"now_s": time.time(), "nodes": told}, separators=(",", ":"))
    for node in told:
        part = node["record"]["part"]
        text = text.replace(part["node_id"], f"id-of-{part['node']}")
    for path, instead in ((sys.prefix, "/venv"), (ROOT, "/source"), (lab.directory, "/lab")):
        text = text.replace(str(path), instead)
    data = gzip.compress(text.encode(), mtime=0)
    (DIRECTORY / f"{name}.json.gz").write_bytes(data)
    print(f"{name}: {len(data)} bytes", flush=True)


def on_disk(host: Host, job: str) -> dict[str, Any] | None:
    """A node's record of a job, and its journal."""
    found = list(host.home.glob(f".local/state/mntrain/nodes/*/jobs/{job}"))
    if not found:
        return None
    lines = (found[0] / "journal.ndjson").read_text().splitlines()
    return {
        "record": json.loads((found[0] / "record.json").read_text()),
        "journal": [json.loads(line) for line in lines],
    }


def make_mixed(told: list[dict[str, Any]]) -> None:
    for line in told[1]["journal"]:
        body = line["body"]
        if body["kind"] == "start":
            body |= MIXED
            body["peak_flops_per_s"] *= MIXED_TIMES_PEAK


def main() -> None:
    mntrain = str(Path(sys.executable).with_name("mntrain"))
    names = sys.argv[1:] or list(CASES)
    with cluster(mntrain) as lab:
        for name in names:
            record(lab, mntrain, name)


if __name__ == "__main__":
    main()
