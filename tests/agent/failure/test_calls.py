"""Calls: torch's flight recorder, as ranks write it when they are asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.agent.failure.calls import MOST_CALLS, MOST_GROUPS, CallsRequest, read_calls
from jupyter_mntrain.model.failure.causes.collectives import Caller, mismatched_call
from jupyter_mntrain.model.failure.diagnosis import diagnose
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import RankStack
from jupyter_mntrain.telemetry.startup import STARTUP_DIRECTORY
from tests.agent.live import launch
from tests.waiting import until
from tests.wording import says


def entry(seq: int, name: str, sizes: list[list[int]], **changes: Any) -> dict[str, Any]:
    """An entry as ``FlightRecorderDetail.hpp`` of torch 2.13 writes it."""
    dtypes = ["Float"] * len(sizes)
    return {
        "record_id": seq - 1, "pg_id": 0, "process_group": ["0", "default_pg"],
        "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq, "is_p2p": False,
        "profiling_name": name, "time_created_ns": 1795434160240843763,
        "input_sizes": sizes, "input_dtypes": dtypes,
        "output_sizes": sizes, "output_dtypes": dtypes,
        "state": "completed", "retired": True, "timeout_ms": 600000,
        "time_discovered_started_ns": 0, "time_discovered_completed_ns": 0,
        "thread_id": "140239987161984", "thread_name": "python", **changes,
    }  # fmt: skip


def dump(*entries: dict[str, Any]) -> bytes:
    whole = {
        "version": "2.10", "entries": entries, "nccl_comm_state": {},
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "pg_status": {"0": {"last_enqueued_collective": "4", "last_started_collective": "4",
                            "last_completed_collective": "3"}},
    }  # fmt: skip
    return json.dumps([whole]).encode()


def test_a_recorder_is_read_group_by_group() -> None:
    found = read_calls(
        dump(
            entry(1, "nccl:all_reduce", [[1024], [4, 3]], retired=False),
            entry(1, "nccl:broadcast", [[]], process_group=["7", "tensor"], state="started",
                  retired=False, input_dtypes=["BFloat16"]),
            entry(2, "nccl:all_to_all", [[3]], state="scheduled", retired=True),
            entry(0, "nccl:send 0->1", [[9]], is_p2p=True),
            entry(3, "nccl:scatter", [[2]], input_sizes=[], state="scheduled", retired=False),
        )
    )  # fmt: skip
    by_group = {one.group: one for one in found}
    assert {one.backend for one in found} == {"nccl"}
    assert [one.said for one in by_group["0"].calls] == [
        "all_reduce (seq 1, 1024 float32, 4x3 float32)",
        "all_to_all (seq 2)",
        "scatter (seq 3, 2 float32)",
    ]
    assert [one.is_over for one in by_group["0"].calls] == [True, True, False]
    assert [one.said for one in by_group["7"].calls] == ["broadcast (seq 1, scalar bfloat16)"]


def test_nccl_dumps_of_ranks_are_compared() -> None:
    """Dumps in the format of torch's sources: there is no card here."""
    done = [entry(seq, "nccl:all_reduce", [[1024]]) for seq in range(1, 41)]
    running: dict[str, Any] = {"state": "started", "retired": False}
    dumps = [
        dump(*done, entry(41, "nccl:all_reduce", [[1024]], **running)),
        dump(*done, entry(41, "nccl:all_gather", [[1024]], **running)),
        dump(*done, entry(41, "nccl:all_reduce", [[1024]], **running)),
    ]
    ranks = [
        Caller(f"n{n}", RankStack(rank=Rank(n), doing="waiting for others", calls=read_calls(one)))
        for n, one in enumerate(dumps)
    ]
    found = mismatched_call(ranks)
    assert found is not None
    assert (found.kind, found.rank) == (Kind.COLLECTIVE_MISMATCH, 1)
    assert says("called all_gather (seq 41, 1024 float32), the others all_reduce", found.cause)


def test_only_the_last_calls_are_kept() -> None:
    many = [
        entry(seq, "gloo:barrier", [], process_group=[str(group), ""])
        for group in range(MOST_GROUPS + 3)
        for seq in range(1, 2 * MOST_CALLS)
    ]
    found = read_calls(dump(*many))
    assert [one.group for one in found] == [str(3 + n) for n in range(MOST_GROUPS)]
    assert all(one.calls[-1].seq == 2 * MOST_CALLS - 1 for one in found)
    assert all(len(one.calls) == MOST_CALLS for one in found)


@pytest.mark.parametrize(
    "content", [b"", b"[", b"[1]", b"{}", b"\xff", b'[{"entries": [{"is_p2p": "x"}]}]', b"[{}]"]
)
def test_what_anybody_may_have_written_is_no_error(content: bytes) -> None:
    assert read_calls(content) == ()


def test_who_has_no_hook_or_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    request = CallsRequest(tmp_path, Rank(0))
    assert request.is_answered
    assert request.result() == ()
    os.mkfifo(tmp_path / "metrics" / "calls-0.ask")
    assert CallsRequest(tmp_path, Rank(0)).is_answered, "nobody reads it"
    (tmp_path / "metrics" / "calls-1.ask").write_text("a plain file")
    assert CallsRequest(tmp_path, Rank(1)).result() == ()


FAKE_TORCH = """
class _Recorder:
    @staticmethod
    def _dump_fr_trace_json():
        {body}
import sys
sys.modules["torch._C._distributed_c10d"] = _Recorder
"""

RANK = """
import sys, threading, time
print(threading.active_count(), flush=True)
import torch.distributed.distributed_c10d
print(threading.active_count(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def start(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Starts a rank with a torch whose recorder does something."""
    started: list[subprocess.Popen[str]] = []

    def begin(body: str, metrics: Path) -> list[str]:
        package = tmp_path / "lib" / "torch" / "distributed"
        package.mkdir(parents=True)
        for folder in (package.parent, package):
            (folder / "__init__.py").touch()
        (package / "distributed_c10d.py").write_text(FAKE_TORCH.format(body=body))
        paths = os.pathsep.join([str(STARTUP_DIRECTORY), str(tmp_path / "lib")])
        variables = {"PYTHONPATH": paths, "MNTRAIN_METRICS_DIR": str(metrics)}
        process = subprocess.Popen(
            [sys.executable, "-c", RANK],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables, "RANK": "0", "LOCAL_RANK": "0"},
        )
        started.append(process)
        assert process.stdout is not None
        return [process.stdout.readline().strip() for _ in range(2)]

    yield begin
    for one in started:
        one.kill()
        one.communicate()


def test_a_rank_writes_its_calls_each_time_it_is_asked(tmp_path: Path, start) -> None:  # type: ignore[no-untyped-def]
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    told = dump(entry(1, "gloo:barrier", []))[1:-1]
    assert start(f"return {told!r}", metrics) == ["1", "2"], "no thread before torch is there"
    until((metrics / "calls-0.ask").exists, "the rank to listen")

    def asked() -> bool:
        request = CallsRequest(tmp_path, Rank(0))
        until(lambda: request.is_answered, "an answer")
        return [one.said for group in request.result() for one in group.calls] == [
            "barrier (seq 1)"
        ]

    until(asked, "its calls")
    assert asked(), "again"


def test_a_torch_without_a_recorder_breaks_nothing(tmp_path: Path, start) -> None:  # type: ignore[no-untyped-def]
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    assert start("raise RuntimeError('no recorder')", metrics) == ["1", "2"]
    until((metrics / "calls-0.ask").exists, "the rank to listen")
    until(lambda: not CallsRequest(tmp_path, Rank(0)).is_answered, "the rank to be asked")
    until((metrics / "calls-0.json").exists, "an answer")
    assert read_calls((metrics / "calls-0.json").read_bytes()) == ()


def test_a_rank_goes_on_where_nothing_can_be_written(tmp_path: Path, start) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "metrics").touch()
    assert len(start("return b''", tmp_path / "metrics")) == 2


SCRIPT = """
import time
import torch
import torch.distributed as dist
from jupyter_mntrain import Recorder

def lose_each_other():
    if rank == 0:
        dist.barrier()
    dist.all_reduce(data)

dist.init_process_group("gloo")
rank, data = dist.get_rank(), torch.ones(1024)
with Recorder() as recorder:
    for step in range(1, 40):
        dist.all_reduce(data)
        recorder.step(tokens=1)
        if step == 5:
            lose_each_other()
        time.sleep(0.02)
"""


@pytest.mark.slow
def test_a_job_whose_ranks_lost_each_other_says_at_which_call(new_agent) -> None:  # type: ignore[no-untyped-def]
    agents = [new_agent() for _ in range(2)]
    job_id = launch(agents, SCRIPT)

    def parts() -> list[Any]:
        return [agent.record(job_id).part for agent in agents]

    until(lambda: all(part.stall for part in parts()), "both parts to be called stalled")
    found = diagnose(parts())
    assert found is not None
    assert found.kind is Kind.COLLECTIVE_MISMATCH
    zero, one = (agent.name for agent in agents)
    told = (
        f"rank 1 on {one} called all_reduce (seq 6, 1024 float32), in lose_each_other "
        f"(script.py:10), but rank 0 on {zero} barrier (seq 6), in lose_each_other (script.py:9)"
    )
    assert says(told, found.cause)
