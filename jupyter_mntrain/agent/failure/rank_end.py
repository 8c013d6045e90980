"""Rank end: determines how one rank ended, from the best evidence that it left."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import msgspec

from jupyter_mntrain.agent.attempt.processes import metrics_of
from jupyter_mntrain.agent.failure.foreign_messages import (
    Known,
    recognize,
    speaks_of_peers,
    told,
)
from jupyter_mntrain.agent.failure.printed import (
    abort_reason,
    hydra_error,
    last_error,
    last_lines,
    last_spoken,
    last_traceback_error,
    missing_script,
    placed,
    rejection,
    with_place,
)
from jupyter_mntrain.agent.failure.stacks import crashed_thread, own_line
from jupyter_mntrain.agent.failure.torchrun_log import Failure
from jupyter_mntrain.launch.project.own_imports import is_module
from jupyter_mntrain.launch.project.tree import BLOBS, Tree, blob_path, read_tree
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.hypotheses import kind_of_signal, signal_name
from jupyter_mntrain.model.failure.kinds import SYMPTOMS, Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.restarts import USER_ERROR
from jupyter_mntrain.model.quantities import rough_size
from jupyter_mntrain.model.text.foreign import visible
from jupyter_mntrain.telemetry.problem_file import handed_over
from jupyter_mntrain.telemetry.startup.exit_record import ExitRecord, Raised, read_crash
from jupyter_mntrain.telemetry.startup.mntrain_rank_hooks import EXIT_FILE

NO_COMMAND = 127
"""Exit code of a shell that does not find a program."""


_LOST_WORKER = frozenset(
    {"BrokenPipeError", "ConnectionRefusedError", "ConnectionResetError", "EOFError"}
    | {"FileNotFoundError"}
)
"""What Python raises where the other end of a connection is gone, or its address."""


class RankEnding:
    """Evidence that one rank left about its end.

    Args:
        directory: the attempt's.
        record: what its hooks wrote; ``None`` if it had none.
        failure: what torchrun says of it; ``None`` if nothing.
        lines: what it printed.
        latest: the last of it, which it did not go on from; all of it unless given.
        has_run_out: whether the kernel's OOM killer has been active; ``None`` = unknown.
    """

    def __init__(
        self,
        directory: Path,
        rank: Rank,
        local_rank: int,
        record: ExitRecord | None,
        failure: Failure | None,
        lines: Sequence[str],
        *,
        latest: Sequence[str] | None = None,
        has_run_out: bool | None = None,
    ) -> None:
        self._latest = lines if latest is None else latest
        self._directory = directory
        self._metrics = metrics_of(directory)
        self._rank = rank
        self._local_rank = local_rank
        self._failure = failure
        self._lines = lines
        self._has_run_out = has_run_out
        self._record = record

    @property
    def ended_normally_s(self) -> float | None:
        """Unix time at which the rank reached its normal end; ``None`` if it is not known to have
        done so.
        """
        record, failure = self._record, self._failure
        is_normal = record is not None and record.is_over and record.escaped is None
        if record is None or not is_normal or (failure is not None and failure.exit_code >= 0):
            return None
        return unix_s(record.monotonic_s)

    def printed(self) -> Problem | None:
        """Return the exception that the output ends with, though the exit code was 0."""
        said = last_error(self._lines)
        if said is None:
            return None
        cause = f"printed a traceback and exited with code 0: {said}"
        known = recognize(said)
        fix = known.fix if known else fix_of(Kind.TRACEBACK)
        return Problem(kind=Kind.TRACEBACK, cause=cause, fix=fix, detail=last_lines(self._lines))

    def problem(self) -> Problem | None:
        """Return why the rank failed; ``None`` if it did not, or if torchrun ended it because of
        another.
        """
        found = self._told() or self._escaped() or self._of_failure()
        escaped = self._record.escaped if self._record is not None else None
        return found if found is None or escaped is None else self._sent(found, escaped.line)

    def _sent(self, found: Problem, message: str) -> Problem:
        """Add the fix for a missing file or module, if the problem is one."""
        known = {Kind.NO_FILE: fix_of_missing, Kind.NO_MODULE: fix_of_missing_module}
        look = known.get(found.kind)
        fix = None if look is None else look(message, self._directory)
        return found if fix is None else msgspec.structs.replace(found, fix=fix)

    def _told(self) -> Problem | None:
        """Return the problem that the rank itself reported."""
        folders = sorted((self._directory / "ranks").glob(f"*/attempt_*/{self._local_rank}"))
        return next((told for folder in folders if (told := handed_over(folder))), None)

    def _escaped(self) -> Problem | None:
        """Return the uncaught exception, from the rank's hooks or torchelastic's ``@record``."""
        record = self._record
        if record is not None and record.escaped is not None:
            if record.escaped.kind == "KeyboardInterrupt" and not _is_raised(record.escaped):
                return None  # it was interrupted by a signal
            return _within_limit(of_exception(record.escaped), record.address_bytes)
        folders = sorted((self._directory / "ranks").glob(f"*/attempt_*/{self._local_rank}"))
        found = (_error_file(folder / "error.json") for folder in folders)
        return next((one for one in found if one), None)

    def _of_failure(self) -> Problem | None:
        failure = self._failure
        if failure is None or failure.was_ended:
            return None
        if failure.exit_code < 0:
            crash = read_crash(self._metrics, self._rank)
            found = of_signal(failure.exit_code, self._lines, self._has_run_out, crash=crash)
            if found.kind is Kind.CRASHED and self.ended_normally_s is not None:
                return _at_end(found)
            return found
        return self._of_exit_code(failure.exit_code)

    def _of_exit_code(self, code: int) -> Problem:
        """Explain an end for which no exception is known."""
        detail = last_lines(self._lines)
        if any(self._metrics.glob(f"{EXIT_FILE.format(self._rank)}.*.new")):
            return Problem(
                kind=Kind.DISK_FULL,
                cause=f"ended with exit code {code}, and could not write down why: the disk of "
                f"{self._directory} was full",
                fix=fix_of(Kind.DISK_FULL),
                detail=detail,
            )
        if (script := missing_script(self._lines)) is not None:
            return Problem(
                kind=Kind.NO_FILE,
                cause=f"script {script} not found",
                fix=fix_of(Kind.NO_FILE, "script"),
                detail=detail,
            )
        if (error := hydra_error(self._lines)) is not None:
            return self._sent(_foreign(error, detail), error)
        said = (rejection(self._lines) if code == USER_ERROR else "") or last_spoken(self._lines)
        if self._record is None and (error := last_error(self._lines)):
            return _foreign(error, detail)
        # Such programs say in their last line why they reject their input; so does Python itself.
        known = recognize(said) if code in (1, USER_ERROR, NO_COMMAND) else None
        if said and (code == USER_ERROR or (known and known.kind not in SYMPTOMS)):
            return _foreign(said, detail, Kind.EXIT_CODE)
        cause = f"ended with exit code {code} and without an exception"
        if self._record is not None and not self._record.is_over:
            cause = f"ended itself at once (os._exit) with exit code {code}"
        if said:
            cause += f"; its last line: {said}"
        error = last_traceback_error(self._latest)
        if error is None or error.startswith(said):
            return _problem(cause, None, Kind.EXIT_CODE, detail)
        cause += f"; the last exception that it printed: {error}"
        return _problem(cause, recognize(error), Kind.EXIT_CODE, detail)


def of_exception(raised: Raised) -> Problem:
    """Turn an exception that escaped into a problem."""
    places = [(file, line) for file, line, _ in raised.frames]
    is_of_torch = raised.module.startswith("torch") or any(
        "/torch/" in file for file, _ in places[-3:]
    )
    found = _lost_worker(raised) or recognize(raised.line, raised.traceback)
    is_of_peers = is_of_torch or speaks_of_peers(raised.line)
    if found and found.kind in SYMPTOMS and not is_of_peers:
        found = None  # the script's own service was out of reach, not a rank
    if found and found.kind is Kind.PORT_TAKEN and not is_of_peers:
        kind = Kind.OWN_PORT_TAKEN
        found = found._replace(kind=kind, fix=fix_of(kind))
    if found is None:
        found = next(filter(None, map(_symptom_of_peers, raised.causes)), None)
        found = found and found._replace(line="")  # of what it was raised from
    return _problem(
        placed(told(raised.line, found) or raised.kind, places),
        found,
        Kind.EXCEPTION,
        last_lines(raised.traceback.splitlines()),
        unix_s(raised.monotonic_s),
    )


def _is_raised(interrupt: Raised) -> bool:
    """Return whether the script itself raised a KeyboardInterrupt, rather than a signal."""
    lines = [line.strip() for line in interrupt.traceback.splitlines() if line.startswith("    ")]
    code = [line for line in lines if line.strip("~^ ")]
    return bool(interrupt.message) or (bool(code) and code[-1].startswith("raise "))


def _within_limit(problem: Problem, address_bytes: int | None) -> Problem:
    """Add the process's own memory limit (``ulimit -v``) to an out-of-memory problem."""
    if address_bytes is None or problem.kind is not Kind.OUT_OF_MEMORY:
        return problem
    limit = f"a process there may have {rough_size(address_bytes)} of memory (ulimit -v)"
    fix = fix_of(problem.kind, "limited")
    return msgspec.structs.replace(problem, cause=f"{problem.cause}; {limit}", fix=fix)


def _lost_worker(raised: Raised) -> Known | None:
    """Recognize a connection to a killed data loader worker: what a worker sent is fetched from it,
    and a killed one does not answer.
    """
    files = [file for file, _, _ in raised.frames]
    is_of_loader = any(file.endswith("/torch/utils/data/dataloader.py") for file in files)
    is_lost = raised.kind in _LOST_WORKER and "/multiprocessing/" in files[-1] if files else False
    if not (is_of_loader and is_lost):
        return None
    return Known(Kind.WORKER_DIED, fix_of(Kind.WORKER_DIED), raised.line)


def _symptom_of_peers(message: str) -> Known | None:
    """Recognize a message that is only a symptom of a problem in another rank."""
    found = recognize(message)
    return found if found and found.kind in SYMPTOMS and speaks_of_peers(message) else None


def of_signal(
    code: int,
    lines: Sequence[str] = (),
    has_run_out: bool | None = None,
    *,
    who: str = "",
    crash: str = "",
) -> Problem:
    """Explain a death by signal.

    Args:
        lines: printed ones, for the reason that C++ code prints when it aborts.
        crash: stacks that faulthandler wrote.
    """
    cause = f"{who}killed by {signal_name(-code)}"
    if where := own_line(crashed_thread(crash)):
        cause += f" in {where}"
    detail = crash or last_lines(lines)
    if code == -signal.SIGKILL:
        cause += {
            None: ": by a person, another program, or the kernel's OOM killer",
            True: " by the kernel: the machine ran out of memory",
            False: "; the kernel's OOM killer was not involved",
        }[has_run_out]
        kind = Kind.OUT_OF_MEMORY if has_run_out else Kind.KILLED
        return Problem(kind=kind, cause=cause, fix=fix_of(kind), detail=detail)
    kind = kind_of_signal(-code)
    reason = abort_reason(lines) if kind is Kind.CRASHED else ""
    known = recognize(reason)
    # Only abort() is called because of what was printed; a lost connection is no crash.
    if reason and (code == -signal.SIGABRT or not (known and known.kind in SYMPTOMS)):
        return _foreign(f"{cause}: {reason}", detail, kind)
    return Problem(kind=kind, cause=cause, fix=fix_of(kind), detail=detail)


def _at_end(crash: Problem) -> Problem:
    kind = Kind.CRASHED_AT_END
    cause = f"{crash.cause} while Python closed down, after its program had reached its end"
    return msgspec.structs.replace(crash, kind=kind, cause=cause, fix=fix_of(kind))


def of_message(message: str, detail: str) -> Problem:
    """Turn another program's message into a problem."""
    return _foreign(message, detail)


def _foreign(message: str, detail: str, kind: Kind = Kind.EXCEPTION) -> Problem:
    return _problem(message, recognize(message, detail), kind, detail)


def _problem(
    cause: str, known: Known | None, kind: Kind, detail: str, time_s: float | None = None
) -> Problem:
    """Make the problem for a message: of its known kind, otherwise of the given kind."""
    kind, fix = (known.kind, known.fix) if known is not None else (kind, fix_of(kind))
    return Problem(kind=kind, cause=cause, fix=fix, detail=detail, time_s=time_s)


def _error_file(path: Path) -> Problem | None:
    """Read the exception that torchelastic recorded; ``None`` if that fails."""
    try:
        message = json.loads(path.read_bytes())["message"]
        extra = message.get("extraInfo", {}) if isinstance(message, dict) else {}
        # JSON can hold half a surrogate pair, which no record can.
        text = visible(str(message["message"] if isinstance(message, dict) else message))
        stack = visible(str(extra.get("py_callstack", text)))
        time_s = float(extra["timestamp"]) if "timestamp" in extra else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    known = recognize(text, stack)
    cause = with_place(told(text, known) or "failed", stack)
    return _problem(cause, known, Kind.EXCEPTION, last_lines(stack.splitlines()), time_s)


def unix_s(monotonic_s: float) -> float:
    """Convert a moment of this machine's monotonic clock to Unix time."""
    return time.time() - time.monotonic() + monotonic_s


_NAMED = re.compile(r"No such file or directory: b?(['\"])(?P<path>.+?)\1")
_OF_PATH = re.compile(r"[./]")
_MODULE = re.compile(r"No module named '(?P<name>\w+)'")
MOST_FOLDERS = 100


def fix_of_missing(message: str, attempt: Path) -> str | None:
    """Return the fix for a file that was excluded or never sent; ``None`` if it is neither.

    Args:
        message: what Python, or a library, said of it.
        attempt: its directory, ``jobs/ID/attempt-N``.
    """
    try:
        command = json.loads((attempt / "command.json").read_bytes())
        folder, project = str(command["directory"]), command["project"]
        tree = _tree(attempt, project) if project else Tree(files=())
        path = _named(message, attempt / "work", command["argv"])
    except (OSError, ValueError, KeyError, SpecError):
        return None
    if folder != str(attempt / "work"):
        return None  # in a folder of the nodes
    if path is None or path.is_absolute() or ".." in path.parts:
        return None
    is_left_out = tree.leaves_out(str(path))
    return fix_of(Kind.NO_FILE, "left out" if is_left_out else "unsent", path=path)


def fix_of_missing_module(message: str, attempt: Path) -> str | None:
    """The fix for a module that is in the folder that the ranks run in, or in one of its folders,
    where Python does not look for a script of another folder; ``None`` if it is in none.
    """
    if (found := _MODULE.search(message)) is None:
        return None
    name = found["name"]
    try:
        folder = Path(json.loads((attempt / "command.json").read_bytes())["directory"])
        below = sorted(one for one in folder.iterdir() if one.is_dir() and one.name[:1] != ".")
        place = next((one for one in (folder, *below[:MOST_FOLDERS]) if is_module(one, name)), None)
    except (OSError, ValueError, KeyError):
        return None
    if place is None:
        return None
    return fix_of(Kind.NO_MODULE, "not on path", what=name, folder=place.relative_to(folder))


def _named(message: str, work: Path, argv: Sequence[str]) -> PurePosixPath | None:
    """Find the path in a message, as Python prints it, below the folder that the ranks run in, or
    as an argument of the job that does not exist.
    """
    if found := _NAMED.search(message):
        path = PurePosixPath(found["path"])
        return path.relative_to(work) if path.is_relative_to(work) else path
    if found := re.search(rf"{re.escape(str(work))}/([^'\"\s]+)", message):
        return PurePosixPath(found[1])
    for word in argv:
        # Hydra's are written key=path.
        given = word.rpartition("=")[2]
        path = PurePosixPath(given)
        if not given or given.startswith("-") or path.is_absolute() or (work / path).exists():
            continue
        before, after = (
            (r"(?<![\w./-])", r"(?![\w/-])") if _OF_PATH.search(given) else ("['\"]",) * 2
        )
        if re.search(f"{before}{re.escape(given)}{after}", message):
            return path
    return None


def _tree(attempt: Path, sha256: str) -> Tree:
    return read_tree(blob_path(attempt.parents[2] / BLOBS, sha256).read_bytes())
