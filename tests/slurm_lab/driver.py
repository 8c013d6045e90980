"""A driver on the login node: gets nodes from SLURM, trains on them, and ends that.

``python -m tests.slurm_lab.driver FOLDER cancel|save NODES``: prints one JSON object a line.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from jupyter_mntrain.cluster import Cluster, StaticDiscovery
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec, JobView, Participant
from jupyter_mntrain.model.sources.source import AllocationChange, NodesRequest
from jupyter_mntrain.sources.allocated_nodes import AllocatedNodes
from jupyter_mntrain.sources.slurm.slurm_source import SlurmSource
from tests.slurm_lab.rendezvous import RENDEZVOUS
from tests.waiting import until

SCRIPT = (
    RENDEZVOUS
    + """
from jupyter_mntrain import ControlReader, Recorder

assert "SLURM_PROCID" not in os.environ
wishes = ControlReader()
with Recorder() as recorder:
    recorder.start(saves=True)
    for step in range(1, 100_000):
        if agreed(wishes.wants_stop()):
            print("saved at", step, flush=True)
            break
        recorder.step(tokens=100, loss=1 / step, compute_s=0.01)
        time.sleep(0.1)
"""
)


def say(what: str, **facts: object) -> None:
    print(json.dumps({"what": what, "at_s": time.time(), **facts}), flush=True)


def told(change: AllocationChange) -> None:
    say(change.kind, slot=change.slot, why=str(change.problem or ""))


def all_step(view: JobView) -> bool:
    """Whether every rank has made a step."""
    assert view.state not in TERMINAL, view.problem
    steps = [rank.step for part in view.parts for rank in part.ranks]
    return len(steps) == view.attempt.world_size and all(steps)


def main(folder: Path, end: str, nodes: int) -> None:
    source, request = SlurmSource(folder), NodesRequest("slurm", nodes, gpus="2", time_s=600.0)
    with Cluster("of-slurm", discovery=StaticDiscovery()) as cluster:
        allocated = AllocatedNodes.ask(cluster, source, request)
        say("asked", id=allocated.allocation.id)
        allocated.wait(told)
        say("joined", hosts={slot.name: slot.host for slot in allocated.allocation.slots})
        spec = JobSpec(
            ("train.py",),
            tuple(Participant(name, interface="eth1") for name in request.slots),
            files={"train.py": SCRIPT},
        )
        job = cluster.launch(spec, is_checked=False)
        say("launched", job=job.id)
        until(lambda: all_step(job.view()), "a step")
        say("trains", ranks=[rank.rank for part in job.view().parts for rank in part.ranks])
        if end == "save":
            asyncio.run(source.save(allocated.allocation.id, request))
            until(lambda: job.view().state in TERMINAL, "the end of the job")
            say("saved", state=job.view().state)
        allocated.give_back()
        while not allocated.allocation.is_over:
            allocated.look()
        say("ended", outcome=allocated.allocation.outcome)
        allocated.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
