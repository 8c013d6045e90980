"""Rank processes: how a rank ended, before its torchrun has told it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.agent.attempt.directory import AttemptDirectory
from jupyter_mntrain.agent.jobs.rank_processes import RankProcesses
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.lifecycle.events import RankGone
from jupyter_mntrain.model.records.job import PartStatus, RankStatus
from jupyter_mntrain.telemetry.startup.exit_record import ExitRecord, ProcessExit, Raised

NO_SPACE = Raised("OSError", "builtins", "[Errno 28] No space left on device", 1.0)
TRACEBACK = "Traceback (most recent call last):\nValueError: no label"


@pytest.mark.parametrize(
    ("status", "escaped", "printed", "is_swept", "code", "kind"),
    [
        (0, None, "", False, 0, None),
        (0, None, TRACEBACK, False, 0, Kind.TRACEBACK),
        (3 << 8, None, "", False, 3, Kind.EXIT_CODE),
        (1 << 8, NO_SPACE, "", False, 1, Kind.DISK_FULL),
        (9, None, "", False, -9, Kind.KILLED),
        (9, None, "", True, -9, None),  # by the agent
        (3 << 8, None, "", True, 3, Kind.EXIT_CODE),
        (None, None, "", False, None, None),
    ],
)
def test_a_rank_that_has_gone_is_told_with_its_exit_code_and_why(
    tmp_path: Path,
    status: int | None,
    escaped: Raised | None,
    printed: str,
    is_swept: bool,
    code: int | None,
    kind: Kind | None,
) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    attempt = AttemptDirectory(tmp_path, JobId("j"), 1)
    if is_swept:
        attempt.kill()
    now_s = time.monotonic()
    record = ExitRecord(pid=gone.pid, monotonic_s=now_s, is_over=escaped is not None)
    record = msgspec.structs.replace(record, escaped=escaped)
    (metrics / "exit-0.json").write_bytes(msgspec.json.encode(record))
    if status is not None:
        seen = msgspec.to_builtins(ProcessExit(gone.pid, status, now_s))
        (metrics / "exits.ndjson").write_text(json.dumps(seen) + "\n")
    lines = "".join(f"[n rank 0] {line}\n" for line in printed.splitlines())
    (tmp_path / "log").write_text(lines)
    rank = RankStatus(rank=Rank(0), state="running", pid=gone.pid)
    part = PartStatus(node_id=NodeId("0" * 32), node="n", state="running", ranks=(rank,))

    processes = RankProcesses(attempt)
    [event] = processes.look(part, now_s, may_begin=False)
    assert isinstance(event, RankGone)
    assert event.exit_code == code
    assert (event.problem and event.problem.kind) == kind
