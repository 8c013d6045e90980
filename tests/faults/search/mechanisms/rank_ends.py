"""Faults that end a rank: signals, exits, exceptions."""

from __future__ import annotations

import signal

from tests.faults.search.case import Accept, Truth
from tests.faults.search.mechanisms.mechanism import RUNS, WORDS, Code, Mechanism, Setting, coded
from tests.faults.search.mechanisms.truths import FAILED, fails, leaves, rank_of
from tests.faults.search.vocabulary import (
    CRASHED,
    ENDED_EARLY,
    EXCEPTION,
    EXITED,
    GPU_OUT_OF_MEMORY,
    KILLED,
    NCCL_SYSTEM,
    NCCL_VERSION,
    NO_ROUTE,
    SWALLOWED,
    SYMPTOM,
    TERMINATED,
)

_ERRORS = ("ValueError", "TypeError", "KeyError", "IndexError", "AssertionError", "RuntimeError")


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
    return Code(f"import os, sys\n{how}", leaves(setting), exits_0=True)


def _exit_message(setting: Setting) -> Code:
    word = setting.chance.choice(WORDS)
    text = f"import sys\nsys.exit('no {word} in {setting.chance.randrange(9000)}')"
    return Code(text, fails(setting, EXITED | EXCEPTION))


def _exception(setting: Setting) -> Code:
    error, word = setting.chance.choice(_ERRORS), setting.chance.choice(WORDS)
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
            f"class {word.title()}Error(Exception): pass\nraise {word.title()}Error('no {word}')",
            "raise ConnectionResetError('the data server is gone')",
        )
    )
    vague = SYMPTOM if "ConnectionReset" in raised else frozenset()
    return Code(raised, fails(setting, EXCEPTION, vague))


def _chained(setting: Setting) -> Code:
    word = setting.chance.choice(WORDS)
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
    word = setting.chance.choice(WORDS)
    number = setting.chance.choice((3, 9, 77))
    end, truth = setting.chance.choice(
        (
            (
                f"os._exit({number})",
                Truth(rank_of(setting, EXITED), states=FAILED, exit_code=number),
            ),
            ("os.kill(os.getpid(), 9)", fails(setting, KILLED)),
            ("os._exit(0)", leaves(setting)),
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


def _at_exit(setting: Setting) -> Code:
    """All is well, and the interpreter complains while it ends."""
    word = setting.chance.choice(WORDS)
    text = f"import atexit\n@atexit.register\ndef close():\n    raise OSError('{word}')"
    also = (Accept(SWALLOWED),)
    truth = Truth(is_harmless=True, states=frozenset({"succeeded"}), may=also)
    return Code(text, truth, everywhere=True, exits_0=True)


def _swallowed(setting: Setting) -> Code:
    """A traceback and exit code 0, everywhere."""
    word, error = setting.chance.choice(WORDS), setting.chance.choice(_ERRORS)
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


_NCCL_SYSTEM = (
    "NCCL error in: ProcessGroupNCCL.cpp:2356, unhandled system error (run with "
    "NCCL_DEBUG=INFO for details), NCCL version 2.27.5\\nncclSystemError: System call "
    "(e.g. socket, malloc) or external library call failed or device error."
)
_NCCL_VERSION = (
    "NCCL error in: NCCLUtils.cpp:94, invalid usage (run with NCCL_DEBUG=WARN for details), "
    "NCCL version 2.21.5\\nLast error:\\nMismatched collective detected or NCCL version "
    "mismatch: expected 2.27.5, got 2.21.5"
)
_NCCL = ((_NCCL_SYSTEM, NCCL_SYSTEM), (_NCCL_VERSION, NCCL_VERSION))


def _nccl(setting: Setting) -> Code:
    """What NCCL says where it fails; raised here, as there is no GPU."""
    message, kinds = setting.chance.choice(_NCCL)
    text = f"raise dist.DistBackendError('{message}')"
    return Code(text, fails(setting, kinds, EXCEPTION))


def _unreachable(setting: Setting) -> Code:
    """The script's own connection to a data server."""
    number = setting.chance.choice(("EHOSTUNREACH", "ENETUNREACH", "ETIMEDOUT"))
    text = f"""
import errno
raise OSError(errno.{number}, os.strerror(errno.{number}))
"""
    return Code(text, fails(setting, EXCEPTION | NO_ROUTE))


RANK_ENDS: tuple[Mechanism, ...] = (
    coded("a signal", "rank", _signal, moments=RUNS, pairs=True, weight=5),
    coded("an exit code", "rank", _exit_code, moments=RUNS, pairs=True, weight=4),
    coded("an early end with exit code 0", "rank", _exit_0, moments=RUNS, pairs=True, weight=4),
    coded("sys.exit with a message", "rank", _exit_message, moments=RUNS, pairs=True),
    coded("an exception", "rank", _exception, moments=RUNS, pairs=True, weight=5),
    coded("a chained exception", "rank", _chained, moments=RUNS, pairs=True),
    coded("an interrupt", "rank", _interrupted, moments=RUNS),
    coded("GPU memory runs out", "rank", _gpu_memory, moments=RUNS, weight=1),
    coded("a handled error, then another end", "rank", _handled_then, moments=RUNS, weight=4),
    coded("an error at exit", "rank", _at_exit, moments=("end",), weight=1),
    coded("a traceback and exit code 0", "rank", _swallowed, moments=("steps", "before step 1")),
    coded("an error of NCCL", "rank", _nccl, weight=1),
    coded("no route to a data server", "rank", _unreachable, moments=RUNS, weight=1),
)
