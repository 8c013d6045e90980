"""Faults of what a job reads on its nodes."""

from __future__ import annotations

from jupyter_mntrain.doctor.check import Case
from jupyter_mntrain.model.records.doctor.machine import FoundPath, PathKind
from tests.doctor.faults.fault import Fault
from tests.doctor.healthy import changed

DATA = "/data/corpus"


def reading(case: Case, kind: PathKind, *, elsewhere: PathKind = "folder") -> Case:
    """A job reads data that lies behind a link; it is so on the second node."""
    for at, node in enumerate(case.nodes):
        of_node = kind if at == 1 else elsewhere
        real = "/mnt/nas/corpus" if of_node == "folder" else ""
        found = FoundPath(use="data", path=DATA, kind=of_node, real_path=real)
        assert node.facts is not None
        case = changed(case, at, paths=(*node.facts.paths, found))
    return case


WORKLOAD = (
    Fault(
        "job-paths",
        "a job's data is a link on the other nodes, and missing on one",
        "stops",
        lambda case: reading(case, "missing"),
    ),
    Fault(
        "job-paths",
        "a job's data belongs to another user",
        "stops",
        lambda case: reading(case, "unreadable"),
    ),
)
