"""Why an attempt failed here: from torchelastic's error files, its log, and exit codes. Pure reads.

Peers of a guilty rank die too, of a closed connection. Such ends are marked as symptoms, so that
the node that really failed stands first.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jupyter_mntrain.agent.attempt.topology import LOG_TAG
from jupyter_mntrain.agent.failure.torchrun_log import Failure, rank_failures
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.restarts import USER_ERROR
from jupyter_mntrain.model.lifecycle.state import RankDown
from jupyter_mntrain.model.records.job import Cause

LOG_TAIL_BYTES = tunables.size("failure.log_tail_bytes")
DETAIL_LINES = tunables.count("failure.detail_lines")
LINE_LIMIT = tunables.count("failure.line_characters")

_ERROR_LINE = re.compile(r"^[\w.]*(Error|Exception|Interrupt|Exit)\b.*")
_CRASH_LINE = re.compile(r"^(?: *what\(\): +|(?=[\w.]*Error\b))(?P<reason>.+)")
_NO_SCRIPT = re.compile(r"^\S*python[\d.]*: can't open file '(?:.*/)?([^'/]+)': .*")
_OF_PYTHON = re.compile(r"^\S*/python[\d.]*: ")
_OF_OURS = re.compile(r"^mntrain: ")
_OWN_MESSAGE = re.compile(r"(?:[\w.]+Error: )?(?P<message>.+ Fix: .+\.)")
"""A message of :mod:`model.errors`, with what Python and torchelastic put in front of it."""
_SYMPTOM = re.compile(
    r"connection closed by peer|connection reset|connection refused|connectFullMesh"
    r"|read error|write error|broken pipe|socket timeout|timed out|wait timeout|timeout after"
    r"|remote process exited|NCCL communicator was aborted|clients joined",
    re.IGNORECASE,
)
_NOISE = re.compile(
    r"^(E|W|I)\d{4} |^\[(W|E|I)\d{4} |^=+$|^-+$|^Root Cause|^Failures:|^\s*$|^" + re.escape(LOG_TAG)
)
_TORCH_TAG = re.compile(r"^\[rank\d+\]: ?")
"""What torch.distributed puts before an uncaught exception."""


class _Account(NamedTuple):
    """What a rank said of its own end."""

    summary: str
    detail: str
    time_s: float | None = None


def explain(
    directory: Path,
    ranks: Sequence[Rank],
    exit_code: int,
    now_s: float,
    *,
    has_run_out: bool | None = None,
) -> tuple[list[RankDown], Cause]:
    """What the failed ranks did, and the cause to show.

    Args:
        directory: the attempt's.
        ranks: this node's, in local-rank order.
        exit_code: torchrun's.
        now_s: time of the cause when nothing says one.
        has_run_out: whether the kernel has ended processes for want of memory meanwhile, if known.
    """
    log = _tail(directory / "log")
    downs: list[RankDown] = []
    causes: list[Cause] = []
    for failure in rank_failures(log):
        if not 0 <= failure.local_rank < len(ranks):
            continue
        rank = ranks[failure.local_rank]
        account = _account(directory, failure, rank, log, has_run_out)
        if account is None:
            continue  # ended by torchrun because of another one: cut off, not guilty
        downs.append(RankDown(rank=rank, exit_code=failure.exit_code, error=account.summary))
        causes.append(
            Cause(
                summary=f"rank {rank}: {account.summary}",
                time_s=account.time_s or failure.time_before(now_s),
                rank=rank,
                detail="" if _OWN_MESSAGE.fullmatch(account.summary) else account.detail,
                is_symptom=_SYMPTOM.search(account.summary) is not None,
            )
        )
    if causes:
        return downs, min(causes, key=lambda cause: (cause.is_symptom, cause.time_s))
    return downs, _torchrun_cause(log, exit_code, now_s, has_run_out)


def _account(
    directory: Path, failure: Failure, rank: Rank, log: str, has_run_out: bool | None
) -> _Account | None:
    """From the error file if the rank wrote one, else from its output; ``None`` if cut off."""
    lines = _output_of(rank, log)
    for path in sorted((directory / "ranks").glob(f"*/attempt_*/{failure.local_rank}/error.json")):
        told = _error_file(path)
        if told is not None:
            return told
    if failure.was_ended:
        return None
    if failure.exit_code < 0:
        line = _signal_line(failure.exit_code, lines, has_run_out=has_run_out)
        return _Account(line, _last_lines(lines))
    # A clean line is the last one; a traceback has its own shape.
    is_clean = failure.exit_code == USER_ERROR
    spoken = _last_spoken(lines) if is_clean else _last_error(lines)
    return _Account(spoken or f"exit code {failure.exit_code}", _last_lines(lines))


def _error_file(path: Path) -> _Account | None:
    """What torchelastic itself recorded of an exception; ``None`` if it is spoilt."""
    try:
        message = json.loads(path.read_bytes())["message"]
        extra = message.get("extraInfo", {}) if isinstance(message, dict) else {}
        text = str(message["message"] if isinstance(message, dict) else message)
        stack = str(extra.get("py_callstack", text))
        time_s = float(extra["timestamp"]) if "timestamp" in extra else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    line = next((line for line in text.splitlines() if line.strip()), "failed")
    return _Account(_with_place(line, stack), _last_lines(stack.splitlines()), time_s)


def _with_place(line: str, traceback: str) -> str:
    """``RuntimeError: …`` and the user's own line it came from."""
    own_message = _OWN_MESSAGE.fullmatch(line)
    if own_message is not None:
        # It says it all; where it was raised is of no use to anybody.
        return own_message["message"]
    places = re.findall(r'File "([^"]+)", line (\d+)', traceback)
    own = [
        place
        for place in places
        if "/site-packages/" not in place[0] and "/lib/python" not in place[0]
    ]
    line = line.strip()[:LINE_LIMIT]
    return f"{line} ({Path(own[-1][0]).name}, line {own[-1][1]})" if own else line


def _last_error(lines: list[str]) -> str | None:
    errors = [line for line in lines if _ERROR_LINE.match(line)]
    return _with_place(errors[-1], "\n".join(lines)) if errors else _last_spoken(lines)


def _last_spoken(lines: list[str]) -> str | None:
    spoken = [line for line in lines if not _NOISE.match(line)]
    if not spoken:
        return None
    line = _NO_SCRIPT.sub(
        r"there is no script \1; send it along or give its whole path", spoken[-1]
    )
    return _OF_OURS.sub("", _OF_PYTHON.sub("", line))[:LINE_LIMIT]


def _signal_line(code: int, lines: Sequence[str] = (), *, has_run_out: bool | None = None) -> str:
    """What killed it, and what it said of that: C++ code aborts with its reason."""
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if code == -signal.SIGKILL:
        by_whom = {
            None: "by a person, a program, or the kernel's OOM killer",
            True: "by the kernel: the machine ran out of memory",
            False: "the kernel's OOM killer was not involved",
        }
        return f"killed by {name}, {by_whom[has_run_out]}"
    said = [match for line in lines if (match := _CRASH_LINE.match(line))]
    return f"killed by {name}" + (f": {said[-1]['reason'][:LINE_LIMIT]}" if said else "")


def _torchrun_cause(log: str, exit_code: int, now_s: float, has_run_out: bool | None) -> Cause:
    """No rank is to blame: torchrun could not start them, or was ended itself."""
    lines = [line for line in log.splitlines() if line.strip()]
    if exit_code < 0:
        summary = f"torchrun was {_signal_line(exit_code, has_run_out=has_run_out)}"
    elif "SignalException" in log:
        summary = "torchrun was ended by a signal from outside"
    else:
        summary = _last_error(lines) or f"torchrun ended with exit code {exit_code}"
    return Cause(
        summary=summary,
        time_s=now_s,
        detail=_last_lines(lines),
        is_symptom=_SYMPTOM.search(summary) is not None,
    )


def _output_of(rank: Rank, log: str) -> list[str]:
    tag = re.compile(rf"^\[\S+ rank {rank}\] ?")
    return [_TORCH_TAG.sub("", tag.sub("", line)) for line in log.split("\n") if tag.match(line)]


def _last_lines(lines: list[str]) -> str:
    return "\n".join(line[:LINE_LIMIT] for line in lines[-DETAIL_LINES:])


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
        return file.read().decode(errors="replace")
