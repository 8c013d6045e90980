"""Cause: determines how an attempt's ranks and torchrun ended on this node. Only reads files.

Peers of a failed rank also fail, with a lost connection. Those are symptoms.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.attempt.processes import metrics_of
from jupyter_mntrain.agent.attempt.supervisor import marks_between
from jupyter_mntrain.agent.failure.printed import (
    last_error,
    last_lines,
    last_spoken,
    latest_output_of,
    output_of,
    tail,
    tail_bytes,
)
from jupyter_mntrain.agent.failure.rank_end import RankEnding, of_message, of_signal, unix_s
from jupyter_mntrain.agent.failure.torchrun_log import CLOSING, Failure, rank_failures
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.events import RankDown
from jupyter_mntrain.telemetry.startup.exit_record import (
    ExitRecord,
    ProcessExit,
    read_exit_record,
    read_exits,
)


def rank_ends(
    directory: Path,
    ranks: Sequence[Rank],
    now_s: float,
    *,
    gone: Mapping[Rank, tuple[float, int | None]] = {},
    has_run_out: bool | None = None,
    swept_s: float | None = None,
) -> list[RankDown]:
    """Return the ends of ranks that failed or ended normally, not of those that were killed in a
    stop.

    Args:
        directory: the attempt's.
        ranks: this node's, in local-rank order.
        now_s: time of an end that nothing else tells.
        gone: when the agent first missed a rank's process, and the exit code that it saw.
        has_run_out: whether the kernel's OOM killer has been active; ``None`` = unknown.
        swept_s: when the agent began to kill all of them; ``None`` = it did not.
    """
    path, metrics = directory / "log", metrics_of(directory)
    content = tail_bytes(path)
    log = content.decode(errors="replace")
    size = path.stat().st_size if content else 0
    marks = marks_between(path, 0, size, now_s)
    records = [read_exit_record(metrics, rank) for rank in ranks]
    exits = read_exits(metrics)
    failures = _failures(log, records, exits)
    downs = []
    for local, (rank, record) in enumerate(zip(ranks, records, strict=True)):
        gone_s, seen_code = gone.get(rank, (None, None))
        failure, lines = failures.get(local) or _unreaped(local, seen_code), output_of(rank, log)
        if swept_s is not None and _was_swept(failure, gone_s, swept_s):
            continue
        latest = latest_output_of(rank, content, size, marks)
        end = RankEnding(
            *(directory, rank, local, record, failure, lines),
            latest=latest,
            has_run_out=has_run_out,
        )
        if failure is None:
            # Its own word first: a busy machine collects the process seconds later.
            ended_s = end.ended_normally_s or _ended_well_s(record, exits)
            if seen_code == 0:
                ended_s = ended_s or gone_s
            if ended_s is not None:
                said = end.printed()
                if said is not None:
                    said = msgspec.structs.replace(said, rank=rank, time_s=ended_s)
                downs.append(RankDown(rank=rank, exit_code=0, time_s=ended_s, problem=said))
            continue
        problem = end.problem()
        if problem is None:
            continue
        # A problem that all ranks agreed on names the node that has it, and that node's rank.
        problem = msgspec.structs.replace(
            problem,
            rank=rank if problem.node is None else problem.rank,
            time_s=problem.time_s or gone_s or failure.time_before(now_s),
        )
        ended_s = end.ended_normally_s if problem.kind is Kind.CRASHED_AT_END else None
        downs.append(
            RankDown(rank=rank, exit_code=failure.exit_code, problem=problem, time_s=ended_s)
        )
    return downs


def _was_swept(failure: Failure | None, gone_s: float | None, swept_s: float) -> bool:
    """Return whether the agent killed a rank, rather than something else before it."""
    if failure is None or failure.exit_code != -signal.SIGKILL:
        return False
    ended_s = failure.time_s or gone_s
    return ended_s is not None and ended_s >= swept_s


def _unreaped(local: int, exit_code: int | None) -> Failure | None:
    """Return a failure that torchrun never noticed, because it was stopped and then killed."""
    if not exit_code:
        return None
    return Failure(local_rank=local, exit_code=exit_code, was_ended=exit_code == -signal.SIGTERM)


def _ended_well_s(record: ExitRecord | None, exits: Mapping[int, ProcessExit]) -> float | None:
    """Return when torchrun saw the process end with exit code 0, however that came about."""
    seen = exits.get(record.pid) if record is not None else None
    return unix_s(seen.monotonic_s) if seen is not None and seen.exit_code == 0 else None


def _failures(
    log: str, records: Sequence[ExitRecord | None], exits: Mapping[int, ProcessExit]
) -> dict[int, Failure]:
    """Return failures by local rank, as torchrun saw its processes end, or from its log."""
    logged = {failure.local_rank: failure for failure in rank_failures(log)}
    seen = {
        local: exits[record.pid]
        for local, record in enumerate(records)
        if record is not None and record.pid in exits
    }
    failed = {local: one for local, one in seen.items() if one.exit_code != 0}
    first_s = min((one.monotonic_s for one in failed.values()), default=0.0)
    found = {
        local: Failure(
            local_rank=local,
            exit_code=one.exit_code,
            # torchrun ends the others once it has seen that one has failed.
            was_ended=one.exit_code in CLOSING and one.monotonic_s > first_s,
            time_s=unix_s(one.monotonic_s),
        )
        for local, one in failed.items()
        if local not in logged
    }
    precise = {
        local: msgspec.structs.replace(failure, time_s=unix_s(seen[local].monotonic_s))
        for local, failure in logged.items()
        if local in seen
    }
    return logged | precise | found


def explain(
    directory: Path,
    downs: Sequence[RankDown],
    exit_code: int,
    now_s: float,
    *,
    has_run_out: bool | None = None,
) -> Problem:
    """Return the problem of a failed attempt on this node: that of the rank that failed first, or
    torchrun's.
    """
    problems = [down.problem for down in downs if down.problem is not None and down.exit_code]
    if problems:
        return min(problems, key=lambda one: (one.is_symptom, one.time_s or now_s))
    return _of_torchrun(tail(directory / "log"), exit_code, now_s, has_run_out)


def _of_torchrun(log: str, exit_code: int, now_s: float, has_run_out: bool | None) -> Problem:
    """Explain a failure of torchrun itself: it could not start ranks, or was killed."""
    lines = [line for line in log.splitlines() if line.strip()]
    if exit_code < 0:
        problem = of_signal(exit_code, has_run_out=has_run_out, who="torchrun was ")
    elif "SignalException" in log:
        problem = Problem(
            kind=Kind.TERMINATED,
            cause="torchrun was terminated by a signal that mntrain did not send",
            fix=fix_of(Kind.TERMINATED),
        )
    elif said := last_error(lines) or last_spoken(lines):
        problem = of_message(said, "")
    else:
        problem = Problem(
            kind=Kind.EXIT_CODE,
            cause=f"torchrun ended with exit code {exit_code}",
            fix=fix_of(Kind.EXIT_CODE),
        )
    return msgspec.structs.replace(problem, time_s=now_s, detail=last_lines(lines))
