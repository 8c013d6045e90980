"""Cause: explains a failed attempt by its ranks' problems, torchrun's log and exit codes.

Peers of a failed rank also fail, with a lost connection. Those are symptoms: the node that failed
first is shown. Only reads files.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.attempt.topology import LOG_TAG
from jupyter_mntrain.agent.failure.fixes import FIXES
from jupyter_mntrain.agent.failure.foreign_messages import kind_of
from jupyter_mntrain.agent.failure.torchrun_log import Failure, rank_failures
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.restarts import USER_ERROR
from jupyter_mntrain.model.lifecycle.state import RankDown
from jupyter_mntrain.telemetry.problem_file import handed_over

LOG_TAIL_BYTES = tunables.size("failure.log_tail_bytes")
DETAIL_LINES = tunables.count("failure.detail_lines")
LINE_LIMIT = tunables.count("failure.line_characters")

_ERROR_LINE = re.compile(r"^[\w.]*(Error|Exception|Interrupt|Exit)\b.*")
_CRASH_LINE = re.compile(r"^(?: *what\(\): +|(?=[\w.]*Error\b))(?P<reason>.+)")
_NO_SCRIPT = re.compile(r"^\S*python[\d.]*: can't open file '(?:.*/)?([^'/]+)': .*")
_OF_PYTHON = re.compile(r"^\S*/python[\d.]*: ")
_NOISE = re.compile(
    r"^(E|W|I)\d{4} |^\[(W|E|I)\d{4} |^=+$|^-+$|^Root Cause|^Failures:|^\s*$|^" + re.escape(LOG_TAG)
)
_TORCH_TAG = re.compile(r"^\[rank\d+\]: ?")
"""Prefix that torch.distributed adds to an uncaught exception."""


def explain(
    directory: Path,
    ranks: Sequence[Rank],
    exit_code: int,
    now_s: float,
    *,
    has_run_out: bool | None = None,
) -> tuple[list[RankDown], Problem]:
    """Return how the failed ranks ended, and the problem to show.

    Args:
        directory: the attempt's.
        ranks: this node's, in local-rank order.
        exit_code: torchrun's.
        now_s: time of the problem if its own is unknown.
        has_run_out: whether the kernel's OOM killer has been active; ``None`` = unknown.
    """
    log = _tail(directory / "log")
    downs: list[RankDown] = []
    problems: list[Problem] = []
    for failure in rank_failures(log):
        if not 0 <= failure.local_rank < len(ranks):
            continue
        rank = ranks[failure.local_rank]
        problem = _account(directory, failure, rank, log, has_run_out)
        if problem is None:
            continue  # ended by torchrun because another rank failed
        # A problem that all ranks agreed on names the node that has it, and that node's rank.
        problem = msgspec.structs.replace(
            problem,
            rank=rank if problem.node is None else problem.rank,
            time_s=problem.time_s or failure.time_before(now_s),
        )
        downs.append(RankDown(rank=rank, exit_code=failure.exit_code, problem=problem))
        problems.append(problem)
    if problems:
        return downs, min(problems, key=lambda one: (one.is_symptom, one.time_s or now_s))
    return downs, _of_torchrun(log, exit_code, now_s, has_run_out)


def _account(
    directory: Path, failure: Failure, rank: Rank, log: str, has_run_out: bool | None
) -> Problem | None:
    """Explain a rank's end by its problem file, torchelastic's error file, or its output.

    ``None`` if torchrun ended it because of another rank.
    """
    lines = _output_of(rank, log)
    for folder in sorted((directory / "ranks").glob(f"*/attempt_*/{failure.local_rank}")):
        told = handed_over(folder) or _error_file(folder / "error.json")
        if told is not None:
            return told
    if failure.was_ended:
        return None
    if failure.exit_code < 0:
        return _of_signal(failure.exit_code, lines, has_run_out=has_run_out)
    # A program that rejects its input says why in its last line; others leave a traceback.
    is_clean = failure.exit_code == USER_ERROR
    spoken = _last_spoken(lines) if is_clean else _last_error(lines)
    return spoken or Problem(
        kind=Kind.EXIT_CODE,
        cause=f"exit code {failure.exit_code}",
        fix=FIXES[Kind.EXIT_CODE],
        detail=_last_lines(lines),
    )


def _error_file(path: Path) -> Problem | None:
    """Read the exception that torchelastic recorded; ``None`` if that is not possible."""
    try:
        message = json.loads(path.read_bytes())["message"]
        extra = message.get("extraInfo", {}) if isinstance(message, dict) else {}
        text = str(message["message"] if isinstance(message, dict) else message)
        stack = str(extra.get("py_callstack", text))
        time_s = float(extra["timestamp"]) if "timestamp" in extra else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    line = next((line for line in text.splitlines() if line.strip()), "failed")
    return _foreign(_with_place(line, stack), stack.splitlines(), time_s=time_s)


def _foreign(
    message: str, lines: Sequence[str], kind: Kind = Kind.EXCEPTION, time_s: float | None = None
) -> Problem:
    """Turn another program's message into a problem, of ``kind`` if it is not recognized."""
    known, fix = kind_of(message) or (kind, FIXES[kind])
    return Problem(kind=known, cause=message, fix=fix, detail=_last_lines(lines), time_s=time_s)


def _with_place(line: str, traceback: str) -> str:
    """Append the script's own line that an exception came from."""
    places = re.findall(r'File "([^"]+)", line (\d+)', traceback)
    own = [
        place
        for place in places
        if "/site-packages/" not in place[0] and "/lib/python" not in place[0]
    ]
    line = line.strip()[:LINE_LIMIT]
    return f"{line} ({Path(own[-1][0]).name}, line {own[-1][1]})" if own else line


def _last_error(lines: Sequence[str]) -> Problem | None:
    errors = [line for line in lines if _ERROR_LINE.match(line)]
    if not errors:
        return _last_spoken(lines)
    return _foreign(_with_place(errors[-1], "\n".join(lines)), lines)


def _last_spoken(lines: Sequence[str]) -> Problem | None:
    spoken = [line for line in lines if not _NOISE.match(line)]
    if not spoken:
        return None
    if missing := _NO_SCRIPT.match(spoken[-1]):
        return Problem(
            kind=Kind.NO_FILE,
            cause=f"script {missing[1]} not found",
            fix="send it with --file, or give its full path",
            detail=_last_lines(lines),
        )
    return _foreign(_OF_PYTHON.sub("", spoken[-1])[:LINE_LIMIT], lines, Kind.EXIT_CODE)


def _of_signal(
    code: int, lines: Sequence[str] = (), *, has_run_out: bool | None = None, who: str = ""
) -> Problem:
    """Explain a death by signal, with the reason that C++ code prints when it aborts."""
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    cause = f"{who}killed by {name}"
    if code == -signal.SIGKILL:
        cause += {
            None: ": by a person, another program, or the kernel's OOM killer",
            True: " by the kernel: the machine ran out of memory",
            False: "; the kernel's OOM killer was not involved",
        }[has_run_out]
        kind = Kind.OUT_OF_MEMORY if has_run_out else Kind.KILLED
        return Problem(kind=kind, cause=cause, fix=FIXES[kind], detail=_last_lines(lines))
    kind = Kind.TERMINATED if code == -signal.SIGTERM else Kind.CRASHED
    said = [match["reason"] for line in lines if (match := _CRASH_LINE.match(line))]
    if said:
        cause += f": {said[-1][:LINE_LIMIT]}"
        return _foreign(cause, lines, kind)
    return Problem(kind=kind, cause=cause, fix=FIXES[kind], detail=_last_lines(lines))


def _of_torchrun(log: str, exit_code: int, now_s: float, has_run_out: bool | None) -> Problem:
    """Explain a failure of torchrun itself: it could not start ranks, or was killed."""
    lines = [line for line in log.splitlines() if line.strip()]
    if exit_code < 0:
        problem = _of_signal(exit_code, has_run_out=has_run_out, who="torchrun was ")
    elif "SignalException" in log:
        problem = Problem(
            kind=Kind.TERMINATED,
            cause="torchrun was terminated by a signal that mntrain did not send",
            fix=FIXES[Kind.TERMINATED],
        )
    else:
        problem = _last_error(lines) or Problem(
            kind=Kind.EXIT_CODE,
            cause=f"torchrun ended with exit code {exit_code}",
            fix=FIXES[Kind.EXIT_CODE],
        )
    return msgspec.structs.replace(problem, time_s=now_s, detail=_last_lines(lines))


def _output_of(rank: Rank, log: str) -> list[str]:
    tag = re.compile(rf"^\[\S+ rank {rank}\] ?")
    return [_TORCH_TAG.sub("", tag.sub("", line)) for line in log.split("\n") if tag.match(line)]


def _last_lines(lines: Sequence[str]) -> str:
    return "\n".join(line[:LINE_LIMIT] for line in lines[-DETAIL_LINES:])


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
        return file.read().decode(errors="replace")
