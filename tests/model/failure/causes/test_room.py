"""Room: a rank that wrote to mapped memory for which a file system had no room."""

from __future__ import annotations

import signal

import pytest

from jupyter_mntrain.model.failure.judge import judge
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.evidence import Disk, DiskUse, Evidence, NetworkState
from jupyter_mntrain.model.records.job import PartStatus, RankStatus

ETH1 = NetworkState(interface="eth1", is_there=True, is_up=True)


@pytest.mark.parametrize(
    ("number", "use", "free_bytes", "kind"),
    [
        (signal.SIGBUS, "shared memory", 4096, Kind.SHARED_MEMORY),
        (signal.SIGBUS, "job", 0, Kind.DISK_FULL),
        (signal.SIGBUS, "shared memory", 9 << 30, Kind.CRASHED),
        (signal.SIGSEGV, "shared memory", 0, Kind.CRASHED),
    ],
)
def test_a_write_to_a_mapped_file_without_room_is_no_crash_of_the_program(
    number: signal.Signals, use: DiskUse, free_bytes: int, kind: Kind
) -> None:
    problem = Problem(kind=Kind.CRASHED, cause="killed by a signal", rank=Rank(0), time_s=1.0)
    rank = RankStatus(rank=Rank(0), state="failed", exit_code=-number, problem=problem)
    disk = Disk(use=use, path="/there", free_bytes=free_bytes)
    found = judge(
        [
            PartStatus(
                node_id=NodeId("0" * 32),
                node="n0",
                state="failed",
                ranks=(rank,),
                problem=problem,
                evidence=Evidence(time_s=2.0, network=ETH1, at_launch=ETH1, disks=(disk,)),
            )
        ]
    )
    assert found is not None
    assert (found.problem.kind, found.problem.rank) == (kind, 0)
    assert ("/there" in found.problem.cause) is (kind is not Kind.CRASHED)
