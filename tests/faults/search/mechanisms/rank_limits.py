"""Faults of a rank that meets a limit or crashes."""

from __future__ import annotations

from tests.faults.search.case import Moment, Truth
from tests.faults.search.mechanisms.mechanism import Code, Mechanism, Setting, coded
from tests.faults.search.mechanisms.truths import FAILED, fails, rank_of
from tests.faults.search.vocabulary import (
    CRASHED,
    EXCEPTION,
    OUT_OF_MEMORY,
    TOO_MANY_FILES,
    TOO_MANY_PROCESSES,
    WORKER_DIED,
)

RUNS: tuple[Moment, ...] = ("steps", "steps", "steps", "save", "before step 1", "restart")


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


def _processes(setting: Setting) -> Code:
    """As of a group that may have only so many."""
    text = f"""
import os, pathlib, subprocess
group = pathlib.Path('/sys/fs/cgroup/pids/mntrain-{setting.chance.randrange(10**6)}')
group.mkdir()
tasks = len(os.listdir('/proc/self/task'))
(group / 'pids.max').write_text(str(tasks + 2))
(group / 'cgroup.procs').write_text(str(os.getpid()))
kept = [subprocess.Popen(['sleep', '30']) for _ in range(6)]
"""
    return Code(text, fails(setting, TOO_MANY_PROCESSES, EXCEPTION))


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
    coded("too many processes", "rank", _processes),
    coded("a killed data worker", "rank", _worker),
)
