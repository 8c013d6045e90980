"""Faults of a rank: what a process may do to itself, or have done to it."""

from __future__ import annotations

import signal

from tests.faults.search.case import Accept, Moment, Truth
from tests.faults.search.mechanism import Code, Mechanism, Setting, coded, rank_of
from tests.faults.search.vocabulary import (
    ALL_WAIT,
    BUSY,
    CRASHED,
    DEADLOCK,
    ENDED_EARLY,
    EXCEPTION,
    EXITED,
    GPU_OUT_OF_MEMORY,
    KILLED,
    MISMATCH,
    OUT_OF_MEMORY,
    STOPPED,
    STRAGGLER,
    SWALLOWED,
    SYMPTOM,
    TERMINATED,
    THREAD_DIED,
    TOO_MANY_FILES,
    TOO_MANY_PROCESSES,
    WORKER_DIED,
)

FAILED = frozenset({"failed", "stopping"})
STALLED = frozenset({"running", "starting"})
RUNS: tuple[Moment, ...] = ("steps", "steps", "steps", "save", "before step 1", "restart")
STALL_S = 25.0

_WORDS = ("label", "batch", "tensor", "shard", "token", "epoch", "vocabulary", "weight")


def fails(setting: Setting, kinds: frozenset[str], vague: frozenset[str] = frozenset()) -> Truth:
    """The job ends because of this rank."""
    return Truth(rank_of(setting, kinds, vague), states=FAILED)


def stalls(setting: Setting, kinds: frozenset[str], vague: frozenset[str] = frozenset()) -> Truth:
    """The job waits because of this rank."""
    return Truth(rank_of(setting, kinds, vague), states=STALLED, within_s=STALL_S)


GOES_ON = Truth(is_harmless=True, states=frozenset({"running"}))


# Signals and exits

_FATAL = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGQUIT", "SIGSYS")
_ENDING = ("SIGTERM", "SIGHUP", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGSTKFLT")


def _signal(setting: Setting) -> Code:
    """Sent from outside or by itself: the same to its parent."""
    name = setting.chance.choice(("SIGKILL", *_FATAL, *_ENDING))
    kinds = KILLED if name == "SIGKILL" else CRASHED if name in _FATAL else TERMINATED
    vague = frozenset() if kinds is not TERMINATED or name == "SIGTERM" else CRASHED
    truth = Truth(
        rank_of(setting, kinds, vague), states=FAILED, exit_code=-signal.Signals[name].value
    )
    return Code(f"import os, signal; os.kill(os.getpid(), signal.{name}); time.sleep(9)", truth)


def _exit_code(setting: Setting) -> Code:
    number = setting.chance.choice((2, 3, 7, 42, 77, 101, 127, 130, 137, 139, 143, 255))
    how = setting.chance.choice(("os._exit({})", "raise SystemExit({})", "sys.exit({})"))
    truth = Truth(rank_of(setting, EXITED), states=FAILED, exit_code=number)
    return Code(f"import os, sys\n{how.format(number)}", truth)


def _exit_0(setting: Setting) -> Code:
    how = setting.chance.choice(("os._exit(0)", "raise SystemExit(0)", "sys.exit()", "quit()"))
    return Code(f"import os, sys\n{how}", fails(setting, ENDED_EARLY), exits_0=True)


def _exit_message(setting: Setting) -> Code:
    word = setting.chance.choice(_WORDS)
    text = f"import sys\nsys.exit('no {word} in {setting.chance.randrange(9000)}')"
    return Code(text, fails(setting, EXITED | EXCEPTION))


def _stopped(setting: Setting) -> Code:
    number = setting.chance.choice(("SIGSTOP", "SIGTSTP"))
    return Code(
        f"import os, signal; os.kill(os.getpid(), signal.{number})", stalls(setting, STOPPED)
    )


# Exceptions

_ERRORS = ("ValueError", "TypeError", "KeyError", "IndexError", "AssertionError", "RuntimeError")


def _exception(setting: Setting) -> Code:
    error, word = setting.chance.choice(_ERRORS), setting.chance.choice(_WORDS)
    raised = setting.chance.choice(
        (
            f"raise {error}('the {word} is wrong')",
            f"def load():\n    raise {error}('{word} {setting.chance.randrange(999)}')\nload()",
            f"assert {{}}.get('{word}')",
            f"{{}}['{word}']",
            "1 / 0",
            f"import json; json.loads('{{{word}')",
            f"int('{word}')",
            f"b'\\xff{word}'.decode()",
            f"torch.zeros(3)[{setting.chance.randrange(5, 50)}]",
            "torch.zeros(3, 4) @ torch.zeros(3, 4)",
            f"import os; os.environ['{word.upper()}_DIR']",
            f"class Own{word.title()}(Exception): pass\nraise Own{word.title()}('connection reset')"
            if setting.chance.random() < 0.3
            else f"raise Exception('{word}')",
        )
    )
    kinds = EXCEPTION
    return Code(raised, fails(setting, kinds))


def _chained(setting: Setting) -> Code:
    word = setting.chance.choice(_WORDS)
    link = setting.chance.choice((" from error", ""))
    text = f"""
try:
    {{}}['{word}']
except KeyError as error:
    raise {setting.chance.choice(_ERRORS)}('cannot load {word}'){link}
"""
    return Code(text, fails(setting, EXCEPTION))


def _interrupted(setting: Setting) -> Code:
    text = setting.chance.choice(
        ("raise KeyboardInterrupt", "import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    )
    return Code(text, fails(setting, EXCEPTION | TERMINATED))


def _gpu_memory(setting: Setting) -> Code:
    size = setting.chance.randrange(1, 60)
    text = f"raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate {size}.00 GiB.')"
    return Code(text, fails(setting, GPU_OUT_OF_MEMORY))


def _handled_then(setting: Setting) -> Code:
    """An error that is handled and logged, and later another end."""
    word = setting.chance.choice(_WORDS)
    number = setting.chance.choice((3, 9, 77))
    end, truth = setting.chance.choice(
        (
            (
                f"os._exit({number})",
                Truth(rank_of(setting, EXITED), states=FAILED, exit_code=number),
            ),
            ("os.kill(os.getpid(), 9)", fails(setting, KILLED)),
            ("os._exit(0)", fails(setting, ENDED_EARLY)),
            ("os.abort()", fails(setting, CRASHED)),
        )
    )
    text = f"""
import os, sys, traceback
try:
    raise ValueError('{word}: retrying')
except ValueError:
    traceback.print_exc()
print('{setting.chance.choice(_ERRORS)}: {word} skipped', flush=True)
{end}
"""
    return Code(text, truth, exits_0=end == "os._exit(0)")


def _thread(setting: Setting) -> Code:
    """A thread fails, and the rank waits for what it would have brought."""
    word = setting.chance.choice(_WORDS)
    text = f"""
import queue, threading
brought = queue.Queue()
def load():
    raise ValueError('{word}')
threading.Thread(target=load).start()
brought.get()
"""
    return Code(text, stalls(setting, THREAD_DIED))


def _thread_harmless(setting: Setting) -> Code:
    text = f"""
import threading
def report():
    raise OSError('{setting.chance.choice(_WORDS)}: no route to host')
threading.Thread(target=report).start()
"""
    return Code(text, GOES_ON)


def _logged(setting: Setting) -> Code:
    """A handled error, and a line that reads like a cause."""
    line = setting.chance.choice(
        (
            "RuntimeError: Connection closed by peer [10.77.2.9]:1234",
            "torch.OutOfMemoryError: CUDA out of memory",
            "ModuleNotFoundError: No module named 'apex'",
            "OSError: [Errno 28] No space left on device",
            "Killed",
        )
    )
    text = f"""
import traceback
try:
    raise RuntimeError('{setting.chance.choice(_WORDS)}: retrying')
except RuntimeError:
    traceback.print_exc()
print({line!r}, flush=True)
"""
    return Code(text, GOES_ON)


def _at_exit(setting: Setting) -> Code:
    """All is well, and the interpreter complains while it ends."""
    word = setting.chance.choice(_WORDS)
    text = f"import atexit\n@atexit.register\ndef close():\n    raise OSError('{word}')"
    truth = Truth(is_harmless=True, states=frozenset({"succeeded"}))
    return Code(text, truth, everywhere=True, exits_0=True)


def _swallowed(setting: Setting) -> Code:
    """A traceback and exit code 0, everywhere."""
    word, error = setting.chance.choice(_WORDS), setting.chance.choice(_ERRORS)
    text = f"""
import os, traceback
try:
    raise {error}('{word} {setting.chance.randrange(999)}')
except {error}:
    traceback.print_exc()
os._exit(0)
"""
    accept = Accept(SWALLOWED | ENDED_EARLY, EXCEPTION, channels=frozenset({"cause", "other"}))
    return Code(text, Truth((accept,), within_s=20.0), exits_0=True, everywhere=True)


# Crashes and limits


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
    return Code(text, fails(setting, CRASHED))


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


# Waiting and slowness


def _busy(setting: Setting) -> Code:
    how = setting.chance.choice(
        (
            "while True: pass",
            "time.sleep(10**6)",
            "def load_shard():\n    while True:\n        time.sleep(1)\nload_shard()",
            "import select; select.select([], [], [])",
            "import subprocess; subprocess.run(['sleep', '1000'])",
        )
    )
    return Code(how, stalls(setting, BUSY))


def _deadlock(setting: Setting) -> Code:
    how = setting.chance.choice(
        (
            "import threading; one = threading.Lock(); one.acquire(); one.acquire()",
            "import threading; threading.Event().wait()",
            "import threading; threading.Barrier(2).wait()",
            "import multiprocessing; multiprocessing.Queue().get()",
            "import os; os.read(os.pipe()[0], 1)",
        )
    )
    return Code(how, stalls(setting, DEADLOCK))


def _straggler(setting: Setting) -> Code:
    extra_s = setting.chance.choice((0.5, 1.0, 2.0))
    how = setting.chance.choice(
        (f"extra_s = {extra_s}", f"options.slow = {extra_s}\nextra_s = {extra_s}")
    )
    accepts = rank_of(setting, STRAGGLER)
    return Code(how, Truth(accepts, is_harmless=True, within_s=35.0))


# Collectives


def _mismatch(setting: Setting) -> Code:
    """This rank makes another call than the others."""
    how = setting.chance.choice(
        (
            "dist.barrier()",
            "dist.all_reduce(torch.zeros(7))",
            "dist.broadcast(torch.zeros(9), 0)",
            "dist.all_gather([torch.zeros(5)] * WORLD, torch.zeros(5))",
            "dist.recv(torch.zeros(3), (RANK + 1) % WORLD)",
            "dist.new_group(list(range(WORLD)))",
        )
    )
    accepts = (Accept(MISMATCH, CRASHED | EXCEPTION | BUSY | ALL_WAIT),)
    return Code(how, Truth(accepts, within_s=STALL_S))


def _skips(setting: Setting) -> Code:
    """This rank leaves one exchange out."""
    how = "def exchange(kept=exchange):\n    globals()['exchange'] = kept"
    accepts = (Accept(MISMATCH, CRASHED | EXCEPTION | BUSY | ALL_WAIT),)
    return Code(how, Truth(accepts, within_s=STALL_S))


def _shapes(setting: Setting) -> Code:
    size = setting.chance.choice((100, 125_000, 500_000))
    accepts = (Accept(MISMATCH, CRASHED | EXCEPTION | ALL_WAIT | SYMPTOM),)
    return Code(f"payload = torch.zeros({size})", Truth(accepts, within_s=STALL_S))


def _leaves(setting: Setting) -> Code:
    """This rank's loop ends early, as with fewer batches, and it waits in a barrier."""
    text = "dist.barrier()\nos._exit(0)"
    accepts = (Accept(MISMATCH | ENDED_EARLY, CRASHED | EXCEPTION),)
    return Code(text, Truth(accepts, within_s=STALL_S), exits_0=True)


RANK: tuple[Mechanism, ...] = (
    coded("a signal", "rank", _signal, moments=RUNS, pairs=True, weight=5),
    coded("an exit code", "rank", _exit_code, moments=RUNS, pairs=True, weight=4),
    coded("an early end with exit code 0", "rank", _exit_0, moments=RUNS, pairs=True, weight=4),
    coded("sys.exit with a message", "rank", _exit_message, moments=RUNS, pairs=True),
    coded("a stop signal", "rank", _stopped, moments=RUNS, pairs=True),
    coded("an exception", "rank", _exception, moments=RUNS, pairs=True, weight=5),
    coded("a chained exception", "rank", _chained, moments=RUNS, pairs=True),
    coded("an interrupt", "rank", _interrupted, moments=RUNS),
    coded("GPU memory runs out", "rank", _gpu_memory, moments=RUNS, weight=1),
    coded("a handled error, then another end", "rank", _handled_then, moments=RUNS, weight=4),
    coded("a dead thread that is waited for", "rank", _thread),
    coded("a dead thread", "rank", _thread_harmless, spoils=False, weight=1),
    coded("a handled error", "rank", _logged, spoils=False, distracts=True, weight=1),
    coded("an error at exit", "rank", _at_exit, moments=("end",), weight=1),
    coded("a traceback and exit code 0", "rank", _swallowed, moments=("steps", "before step 1")),
    coded("a crash", "rank", _crash, moments=RUNS, pairs=True, weight=3),
    coded("endless recursion", "rank", _recursion, moments=RUNS, weight=1),
    coded("no memory left", "rank", _memory, moments=RUNS, weight=3),
    coded("too many open files", "rank", _files, moments=RUNS),
    coded("too many processes", "rank", _processes),
    coded("a killed data worker", "rank", _worker),
    coded("a busy rank", "rank", _busy, moments=("steps", "save"), pairs=True, weight=3),
    coded("a deadlock of threads", "rank", _deadlock, moments=("steps", "save"), pairs=True),
    coded("a straggler", "rank", _straggler, weight=3),
    coded("another call than the others'", "rank", _mismatch, weight=3),
    coded("a skipped exchange", "rank", _skips),
    coded("another shape", "rank", _shapes),
    coded("a loop that ends early", "rank", _leaves, moments=("steps",)),
)
