"""Ranks of the GPU acceptance: started without torchrun, with a time limit, and ended by pid.

Where a CPU tries the checks, they are forked from a process that has imported the trainer.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_mntrain.agent.machine.ports import PortHolder
from tests.gpu.findings import Bench
from tests.searches import runs_all
from tests.train import forked

ROOT = Path(__file__).resolve().parents[2]
POLL_S = 0.05
GRACE_S = 10.0
"""For the others to end by themselves, once a rank has failed."""

Case = dict[str, Any]
"""``name``, ``kind`` and what :mod:`tests.gpu.program` knows of that kind."""


@dataclass(frozen=True)
class Answer:
    """What the ranks said of a case.

    Attributes:
        error: why there is no result, in one line.
        ranks: each rank's result, if there is no error.
    """

    error: str | None
    ranks: tuple[dict[str, Any], ...] = ()

    @property
    def first(self) -> dict[str, Any]:
        return self.ranks[0]

    @property
    def losses(self) -> list[float]:
        return list(self.ranks[0]["losses"])

    @property
    def norms(self) -> list[float]:
        return list(self.ranks[0]["norms"])


def run_cases(
    bench: Bench,
    cases: Sequence[Case],
    *,
    ranks: int = 1,
    case_s: float = 60.0,
    start_s: float = 90.0,
    environment: Mapping[str, str] = {},
) -> dict[str, Answer]:
    """Run cases one after another in the same ranks; after one that fails, the rest in new ones.

    Args:
        case_s: after which a case counts as hanging.
        start_s: for imports, before the first case.
    """
    answers: dict[str, Answer] = {}
    left = list(cases)
    case_s = case_s if bench.patience_s is None else bench.patience_s
    while left:
        if time.monotonic() > bench.until:
            late = Answer("not begun: the time of this check was over")
            return answers | {case["name"]: late for case in left}
        found = _run_once(bench, left, ranks, case_s, start_s, environment)
        answers |= found
        left = [case for case in left if case["name"] not in found]
    return answers


def _run_once(
    bench: Bench,
    cases: Sequence[Case],
    ranks: int,
    case_s: float,
    start_s: float,
    environment: Mapping[str, str],
) -> dict[str, Answer]:
    """Run until a case has no result; return that of at least one."""
    directory = Path(tempfile.mkdtemp(dir=bench.directory))
    # One for each case, because the last one's may still be closing; held, because others ask too.
    held = [PortHolder.hold("127.0.0.1", 0, "here") for _ in cases]
    ported = [case | {"port": one.port} for case, one in zip(cases, held, strict=True)]
    (directory / "plan.json").write_text(json.dumps({"cases": ported, "before": bench.before}))
    processes = [
        _begin(bench, directory, rank, _of_rank(bench, rank, ranks) | dict(environment))
        for rank in range(ranks)
    ]
    try:
        hung = _wait(processes, directory, case_s, start_s, bench.until)
    finally:
        for process in processes:
            end(process)
        for one in held:
            one.close()
    return _answers(directory, cases, processes, hung)


class Forked:
    """A rank that has imported the trainer before it began, with what ranks need of ``Popen``."""

    def __init__(self, directory: Path, environment: Mapping[str, str], log: Path) -> None:
        self._process = forked.begin(
            _lead, str(directory), environment=environment, log=log, directory=ROOT
        )
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        self._process.join()


def _lead(directory: str) -> None:
    """Be a session's leader, as what ``Popen`` starts below."""
    os.setsid()
    from tests.gpu.program import main

    sys.exit(main(Path(directory)))


Process = subprocess.Popen[Any] | Forked


def _begin(bench: Bench, directory: Path, rank: int, own: Mapping[str, str]) -> Process:
    environment, log = _base() | dict(own), directory / f"rank-{rank}.log"
    if not bench.is_real and not runs_all():
        return Forked(directory, environment, log)
    command = [sys.executable, "-m", "tests.gpu.program", str(directory)]
    with log.open("wb") as file:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def end(process: Process) -> None:
    """Kill a process and all that it started: it has a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # it may lead no session yet
    process.wait()


def _base() -> dict[str, str]:
    """This environment, without what a launch or torchrun would have set."""
    prefixes = ("MNTRAIN_", "TORCHELASTIC_", "NCCL_", "GLOO_", "SLURM_")
    names = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in names and not name.startswith(prefixes)
    }
    return kept | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def _of_rank(bench: Bench, rank: int, ranks: int) -> dict[str, str]:
    """What torchrun would have set, and what lets ranks share a card.

    NCCL refuses two ranks on a card, unless it takes them for ranks of different hosts. Then they
    exchange data through sockets, as on two nodes.
    """
    own = {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank % max(1, bench.cards)) if bench.is_real else "0",
        "MASTER_ADDR": "127.0.0.1",
        "MNTRAIN_NODE": f"rank-{rank}",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    if bench.is_real:
        own |= {"NCCL_SOCKET_IFNAME": "=lo", "NCCL_DEBUG": "WARN"}
        own |= {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # products are the same bit for bit
        own |= {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    if bench.is_real and ranks > bench.cards:
        own |= {"NCCL_HOSTID": f"rank-{rank}", "NCCL_IB_DISABLE": "1"}
    return own


def _wait(
    processes: Sequence[Process],
    directory: Path,
    case_s: float,
    start_s: float,
    until: float,
) -> bool:
    """Wait until all ranks have ended; return whether they had to be given up."""
    heard, said = time.monotonic(), 0
    failed_at: float | None = None
    while any(process.poll() is None for process in processes):
        now = time.monotonic()
        size = sum(path.stat().st_size for path in directory.glob("rank-*.ndjson"))
        if size != said:
            heard, said = now, size
        if now > until or now - heard > (case_s if said else start_s):
            return True
        if failed_at is None and any(process.poll() for process in processes):
            failed_at = now
        if failed_at is not None and now - failed_at > GRACE_S:
            return False
        time.sleep(POLL_S)
    return False


def _answers(
    directory: Path,
    cases: Sequence[Case],
    processes: Sequence[Process],
    hung: bool,
) -> dict[str, Answer]:
    told = [_lines(directory / f"rank-{rank}.ndjson") for rank in range(len(processes))]
    answers: dict[str, Answer] = {}
    for case in cases:
        results = [lines.get(case["name"]) for lines in told]
        complete = tuple(one for one in results if one is not None)
        errors = [one["error"] for one in complete if "error" in one]
        if errors:
            answers[case["name"]] = Answer(_worst(errors))
        elif len(complete) == len(processes):
            answers[case["name"]] = Answer(None, complete)
            continue
        else:
            answers[case["name"]] = Answer(_silence(directory, processes, results, hung))
        break
    return answers


def _worst(errors: Sequence[str]) -> str:
    """The cause: other ranks often only say that a connection closed."""
    return min(errors, key=lambda error: ("onnection" in error, len(error)))


def _silence(
    directory: Path,
    processes: Sequence[Process],
    results: Sequence[dict[str, Any] | None],
    hung: bool,
) -> str:
    silent = [rank for rank, result in enumerate(results) if result is None]
    if hung:
        names = ", ".join(map(str, silent))
        return f"it hangs: nothing more from rank {names}; ended"
    first = next((rank for rank in silent if processes[rank].returncode not in (0, -9)), silent[0])
    words = last_words(directory / f"rank-{first}.log")
    return f"rank {first} ended with {processes[first].returncode}: {words}"


def last_words(log: Path) -> str:
    """The last line of a log."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "no output"


def _lines(path: Path) -> dict[str, dict[str, Any]]:
    """Results by case; the last line may be cut off."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            one = json.loads(line)
            if "begun" not in one:
                found[one["case"]] = one
    return found
