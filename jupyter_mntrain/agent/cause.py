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

from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.job import Cause
from jupyter_mntrain.model.state import RankDown

LOG_TAIL_BYTES = 1 << 18
DETAIL_LINES = 40

_OURS = re.compile(r"(?:[\w.]+Error: )?(?P<message>.+ Fix: .+?\.)(?: \([^()]+, line \d+\))?")
"""A message of :mod:`model.errors`, with what Python and torchelastic put around it."""

_FAILED = re.compile(rb"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)")
_ERROR_LINE = re.compile(r"^[\w.]*(Error|Exception|Interrupt|Exit)\b.*")
_SYMPTOM = re.compile(
    r"connection closed by peer|connection reset|read error|write error|broken pipe"
    r"|connection refused|socket timeout|timed out waiting|wait timeout|timeout after"
    r"|barrier|SignalException|remote process exited|NCCL communicator was aborted",
    re.IGNORECASE,
)
_TORCHRUN_NOISE = re.compile(
    r"^(E|W|I)\d{4} |^\[(W|E|I)\d{4} |^=+$|^-+$|^Root Cause|^Failures:|^\s*$"
)


def explain(
    directory: Path, ranks: Sequence[Rank], exit_code: int | None, now_s: float
) -> tuple[list[RankDown], Cause]:
    """What the failed ranks did, and the cause to show.

    Args:
        directory: the attempt's.
        ranks: this node's, in local-rank order.
        exit_code: torchrun's; ``None`` if the keeper itself was lost.
        now_s: time of the cause when no error file carries one.
    """
    log = _tail(directory / "log")
    downs: list[RankDown] = []
    causes: list[Cause] = []
    for code, local_rank in _failures(log):
        if local_rank >= len(ranks):
            continue
        rank = ranks[local_rank]
        summary, detail, time_s = _rank_error(directory, local_rank, rank, log, code)
        clean = _OURS.fullmatch(summary)
        if clean is not None:
            # One of our own messages says it all; where it was raised is of no use to anybody.
            summary, detail = clean["message"], ""
        downs.append(RankDown(rank=rank, exit_code=code, error=summary))
        causes.append(
            Cause(
                summary=f"rank {rank}: {summary}",
                time_s=time_s or now_s,
                rank=rank,
                detail=detail,
                is_symptom=_SYMPTOM.search(summary) is not None,
            )
        )
    if causes:
        return downs, min(causes, key=lambda cause: (cause.is_symptom, cause.time_s))
    return downs, _torchrun_cause(log, exit_code, now_s)


def _failures(log: bytes) -> list[tuple[int, int]]:
    """(exit code, local rank) in the order torchrun saw them."""
    return [(int(m[1]), int(m[2])) for m in _FAILED.finditer(log)]


def _rank_error(
    directory: Path, local_rank: int, rank: Rank, log: bytes, code: int
) -> tuple[str, str, float | None]:
    """(one line, detail, time) from the error file if the rank wrote one, else from its output."""
    for path in sorted((directory / "ranks").glob(f"*/attempt_*/{local_rank}/error.json")):
        message = json.loads(path.read_bytes())["message"]
        if isinstance(message, dict):
            info = message.get("extraInfo", {})
            detail = info.get("py_callstack", message.get("message", ""))
            stamp = float(info["timestamp"]) if "timestamp" in info else None
            return _with_place(str(message["message"]), detail), detail, stamp
        return str(message).strip().splitlines()[-1], str(message), None
    if code < 0:
        return _signal_line(code), _last_lines(_output_of(rank, log)), None
    lines = _output_of(rank, log)
    return _last_error(lines) or f"exit code {code}", _last_lines(lines), None


def _with_place(message: str, traceback: str) -> str:
    """``RuntimeError: …`` and the user's own line it came from."""
    line = message.strip().splitlines()[-1] if message.strip() else "failed"
    places = re.findall(r'File "([^"]+)", line (\d+)', traceback)
    own = [
        place
        for place in places
        if "/site-packages/" not in place[0] and "/lib/python" not in place[0]
    ]
    return f"{line} ({Path(own[-1][0]).name}, line {own[-1][1]})" if own else line


def _last_error(lines: list[str]) -> str | None:
    errors = [line for line in lines if _ERROR_LINE.match(line)]
    if errors:
        return _with_place(errors[-1], "\n".join(lines))
    spoken = [line for line in lines if not _TORCHRUN_NOISE.match(line)]
    return spoken[-1] if spoken else None


def _signal_line(code: int) -> str:
    name = signal.Signals(-code).name
    if code == -signal.SIGKILL:
        return f"killed by {name}, by somebody or by the kernel when memory ran out"
    return f"killed by {name}"


def _torchrun_cause(log: bytes, exit_code: int | None, now_s: float) -> Cause:
    lines = [line for line in log.decode(errors="replace").splitlines() if line.strip()]
    if exit_code is None:
        summary = "the keeper of the attempt was killed; its processes were ended"
    elif exit_code < 0:
        summary = f"torchrun was {_signal_line(exit_code)}"
    else:
        summary = _last_error(lines) or f"torchrun ended with exit code {exit_code}"
    return Cause(
        summary=summary,
        time_s=now_s,
        detail=_last_lines(lines),
        is_symptom=_SYMPTOM.search(summary) is not None,
    )


def _output_of(rank: Rank, log: bytes) -> list[str]:
    tag = re.compile(rf"^\[\S+ rank {rank}\] ?")
    lines = log.decode(errors="replace").splitlines()
    return [tag.sub("", line) for line in lines if tag.match(line)]


def _last_lines(lines: list[str]) -> str:
    return "\n".join(lines[-DETAIL_LINES:])


def _tail(path: Path) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
        return file.read()
