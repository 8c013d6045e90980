"""A driver in the cluster: waits for quota, trains, is evicted, and goes on in new pods.

``python -m tests.kubernetes_lab.story``: prints one JSON object a line.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from jupyter_mntrain.cluster import Cluster, StaticDiscovery
from jupyter_mntrain.cluster.job import Job
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec, Participant
from jupyter_mntrain.model.sources.source import AllocationChange, NodesRequest, SlotCommand
from jupyter_mntrain.sources.allocated_nodes import AllocatedNodes
from jupyter_mntrain.sources.kubernetes.kubernetes_source import KubernetesSource
from tests.kubernetes_lab.control import QUEUE
from tests.slurm_lab.rendezvous import RENDEZVOUS
from tests.waiting import until

T = TypeVar("T")

NODES = 2

# Each step's value depends on the one before: whoever goes on from another step has others.
SCRIPT = (
    RENDEZVOUS
    + """
from pathlib import Path
from jupyter_mntrain import ControlReader, Recorder

assert "MNTRAIN_NOTICE_S" in os.environ
folder = Path(os.environ["MNTRAIN_CHECKPOINT_DIR"])
folder.mkdir(parents=True, exist_ok=True)
path = folder / f"rank{RANK}"
first, value = map(int, path.read_text().split()) if path.exists() else (0, 1)
print("begins after", first, flush=True)
wishes = ControlReader()
with Recorder() as recorder:
    recorder.start(saves=True, resumed_step=first or None)
    for step in range(first + 1, first + 100_000):
        if agreed(wishes.wants_stop()):
            path.write_text(f"{step - 1} {value}")
            recorder.saved(step - 1)
            print("saved", step - 1, value, flush=True)
            break
        value = (value * 48271 + step) % 2147483647
        recorder.step(step=step, tokens=100, loss=value / 2147483647, compute_s=0.01)
        time.sleep(0.05)
"""
)


def say(what: str, **facts: object) -> None:
    print(json.dumps({"what": what, "at_s": time.time(), **facts}), flush=True)


def told(change: AllocationChange) -> None:
    say(change.kind, slot=change.slot, why=str(change.problem or ""))


def now(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def request(name: str, **options: str) -> NodesRequest:
    values = {"image": "train", "local_queue": QUEUE, "grace": "30", "reach": "direct"} | options
    given = {key.replace("_", "-"): (value,) for key, value in values.items()}
    return NodesRequest("kubernetes", NODES, name=name, options=given)


class Holder:
    """Other people's pods, which hold the whole quota."""

    def __init__(self, source: KubernetesSource, name: str) -> None:
        self._source, self._request = source, request(name, queue_priority="high")
        # Process 1 of a container ignores what it does not handle.
        command = SlotCommand(("bash", "-c", "trap exit TERM; sleep 600 & wait"))
        self._id = now(source.submit(self._request, command)).id

    def until_it_runs(self) -> None:
        until(lambda: now(self._source.look(self._id, self._request)).state == "running", "holder")

    def end(self) -> None:
        now(self._source.give_back(self._id, self._request))


def until_steps(job: Job, steps: int) -> None:
    def has_made() -> bool:
        view = job.view()
        assert view.state not in TERMINAL, view.problem
        made = [rank.step or 0 for part in view.parts for rank in part.ranks]
        return len(made) == view.attempt.world_size and min(made) >= steps

    until(has_made, f"{steps} steps")


def until_taken(nodes: AllocatedNodes) -> None:
    seen: set[str] = set()
    while "taken" not in seen:
        for change in nodes.look():
            told(change)
            seen.add(change.kind)
        time.sleep(0.2)


def main() -> None:
    source = KubernetesSource()
    holder = Holder(source, "first")
    holder.until_it_runs()
    with Cluster("of-pods", discovery=StaticDiscovery()) as cluster:
        nodes = AllocatedNodes.ask(cluster, source, request("ours", storage="runs"))
        until(lambda: [told(one) for one in nodes.look()], "why it waits")
        holder.end()
        nodes.wait(told)
        say("joined", hosts=[slot.host for slot in nodes.allocation.slots])
        slots = nodes.request.slots
        spec = JobSpec(
            ("train.py",),
            tuple(Participant(name, interface="eth1") for name in slots),
            files={"train.py": SCRIPT},
        )
        job = cluster.launch(spec, is_checked=False)
        until_steps(job, 5)
        say("trains", job=job.id)
        urgent = Holder(source, "urgent")
        until_taken(nodes)
        urgent.until_it_runs()
        say("evicted")
        urgent.end()
        nodes.wait(told)
        say("joined again", hosts=[slot.host for slot in nodes.allocation.slots])
        again = cluster.job(job.id)
        until(lambda: again.view().attempt.number == 2, "the job goes on by itself")
        saved = again.view().resumed_step or again.view().saved_step or 0
        until_steps(again, saved + 5)
        say("goes on", step=again.view().resumed_step)
        nodes.give_back()
        until(lambda: (nodes.look() and nodes.allocation.is_over) or again.view().state in TERMINAL)
        say("ended", state=again.view().state)
        nodes.close()


if __name__ == "__main__":
    main()
