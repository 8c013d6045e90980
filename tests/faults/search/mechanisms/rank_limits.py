"""Faults of a rank that meets a limit or crashes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.search.case import Case, Truth
from tests.faults.search.mechanisms.mechanism import (
    RUNS,
    Code,
    Drawn,
    Mechanism,
    Parameters,
    Setting,
    coded,
)
from tests.faults.search.mechanisms.tampering import control_group
from tests.faults.search.mechanisms.truths import FAILED, fails, rank_of
from tests.faults.search.vocabulary import (
    CRASHED,
    EXCEPTION,
    OUT_OF_MEMORY,
    TOO_MANY_FILES,
    TOO_MANY_PROCESSES,
    WORKER_DIED,
)

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage


_OVERFLOW = """
import ctypes, sys
sys.setrecursionlimit(10**8)
deeper = ctypes.CFUNCTYPE(None)(lambda: deeper())
deeper()
"""


def _crash(setting: Setting) -> Code:
    text = setting.chance.choice(
        (
            "import ctypes; ctypes.string_at(0)",
            "import ctypes; ctypes.memset(8, 0, 64)",
            "import os; os.abort()",
            "import ctypes; ctypes.CDLL(None).abort()",
            _OVERFLOW,
        )
    )
    # Whose line it was that crashed.
    truth = Truth(rank_of(setting, CRASHED), states=FAILED, evidence="own_code.py")
    return Code(text, truth)


def _recursion(setting: Setting) -> Code:
    return Code("def f(n):\n    return f(n + 1)\nf(0)", fails(setting, EXCEPTION))


def _memory(setting: Setting) -> Code:
    how = setting.chance.choice(
        (
            "bytearray(10**10)",
            "torch.zeros(10**10)",
            "[bytes(10**7) for _ in range(10**4)]",
            "raise MemoryError",
        )
    )
    text = f"""
import resource
used = int(open('/proc/self/statm').read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + 2**27, used + 2**27))
{how}
"""
    return Code(text, fails(setting, OUT_OF_MEMORY, EXCEPTION))


def _files(setting: Setting) -> Code:
    text = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({setting.chance.choice((64, 128, 256))},) * 2)
kept = [open('/dev/null') for _ in range(1000)]
"""
    return Code(text, fails(setting, TOO_MANY_FILES, EXCEPTION))


def _processes(setting: Setting) -> Drawn:
    """The rank's control group may have only so many processes, as in a container."""
    truth = fails(setting, TOO_MANY_PROCESSES, EXCEPTION)
    return Drawn(truth, {"more": setting.chance.choice((1, 4))})


@contextmanager
def _limit_processes(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    pid = stage.rank_pid(case.guilty, case.rank)
    threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    with control_group("pids", pid, {"pids.max": str(threads + parameters["more"])}):
        code = "import subprocess\nkept = [subprocess.Popen(['sleep', '30']) for _ in range(9)]"
        stage.put(case.layout, case.rank, "step", code)
        yield


def _worker(setting: Setting) -> Code:
    """A data loader's process is killed."""
    text = """
import os, signal
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): os.kill(os.getpid(), signal.SIGKILL)
list(torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context='fork'))
"""
    return Code(text, fails(setting, WORKER_DIED, EXCEPTION))


RANK_LIMITS: tuple[Mechanism, ...] = (
    coded("a crash", "rank", _crash, moments=RUNS, pairs=True, weight=3),
    coded("endless recursion", "rank", _recursion, moments=RUNS, weight=1),
    coded("no memory left", "rank", _memory, moments=RUNS, weight=3),
    coded("too many open files", "rank", _files, moments=RUNS),
    Mechanism("too many processes", "rank", _processes, _limit_processes, spoils=True),
    coded("a killed data worker", "rank", _worker),
)
