"""Faults that make ranks wait: for themselves, for each other, for ever."""

from __future__ import annotations

from tests.faults.search.case import Accept, Truth
from tests.faults.search.mechanisms.mechanism import RUNS, WORDS, Code, Mechanism, Setting, coded
from tests.faults.search.mechanisms.truths import GOES_ON, SLOW_S, STALL_S, rank_of, stalls
from tests.faults.search.vocabulary import (
    ALL_WAIT,
    BUSY,
    CRASHED,
    DEADLOCK,
    EXCEPTION,
    MISMATCH,
    STOPPED,
    STRAGGLER,
    SYMPTOM,
    THREAD_DIED,
)


def _stopped(setting: Setting) -> Code:
    how = setting.chance.choice(
        ("os.kill(os.getpid(), signal.SIGSTOP)", "signal.raise_signal(signal.SIGSTOP)")
    )
    return Code(f"import os, signal; {how}", stalls(setting, STOPPED))


def _thread(setting: Setting) -> Code:
    """A thread fails, and the rank waits for what it would have brought."""
    word = setting.chance.choice(WORDS)
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
    raise OSError('{setting.chance.choice(WORDS)}: no route to host')
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
    raise RuntimeError('{setting.chance.choice(WORDS)}: retrying')
except RuntimeError:
    traceback.print_exc()
print({line!r}, flush=True)
"""
    return Code(text, GOES_ON)


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
    """Each of its steps takes longer: it waits for something, or computes more."""
    extra_s = setting.chance.choice((0.5, 1.0, 2.0))
    compute = f"""
def exchange(kept=exchange):
    until = time.monotonic() + {extra_s}
    while time.monotonic() < until:
        payload.sum()
    kept()
"""
    how = setting.chance.choice((f"extra_s = {extra_s}", compute))
    return Code(how, Truth(rank_of(setting, STRAGGLER), is_harmless=True, within_s=SLOW_S))


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
    """This rank leaves out one of two calls, as after an `if`."""
    text = f"""
def exchange():
    dist.all_reduce(payload)
    if RANK != {setting.rank}:
        dist.barrier()
"""
    accepts = (Accept(MISMATCH, CRASHED | EXCEPTION | BUSY),)
    return Code(text, Truth(accepts, within_s=STALL_S), everywhere=True)


def _shapes(setting: Setting) -> Code:
    size = setting.chance.choice((100, 125_000, 500_000))
    accepts = (Accept(MISMATCH, CRASHED | EXCEPTION | ALL_WAIT | SYMPTOM),)
    return Code(f"payload = torch.zeros({size})", Truth(accepts, within_s=STALL_S))


def _all_receive(setting: Setting) -> Code:
    """Every rank receives before it sends."""
    text = """
def exchange():
    dist.recv(payload, (RANK + 1) % WORLD)
    dist.send(payload, (RANK - 1) % WORLD)
"""
    accepts = (Accept(MISMATCH, BUSY | CRASHED | EXCEPTION),)
    return Code(text, Truth(accepts, within_s=STALL_S), everywhere=True)


RANK_WAITS: tuple[Mechanism, ...] = (
    coded("a stop signal", "rank", _stopped, moments=RUNS, pairs=True),
    coded("a dead thread that is waited for", "rank", _thread),
    coded("a dead thread", "rank", _thread_harmless, spoils=False, weight=1),
    coded("a handled error", "rank", _logged, spoils=False, distracts=True, weight=1),
    coded("a busy rank", "rank", _busy, moments=("steps", "save"), pairs=True, weight=3),
    coded("a deadlock of threads", "rank", _deadlock, moments=("steps", "save"), pairs=True),
    coded("a straggler", "rank", _straggler, slows=True, weight=3),
    coded("another call than the others'", "rank", _mismatch, weight=3),
    coded("a skipped call", "rank", _skips),
    coded("another shape", "rank", _shapes),
    coded("all receive first", "rank", _all_receive),
)
