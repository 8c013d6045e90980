"""Foreign messages of torch, NCCL, CUDA, Python, Linux and the hub: the kind and fix of each.

``messages.toml`` has those that people reported, and where. What only some calls raise is raised
here.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_mntrain.agent.attempt.directory import SupervisorIdentity, oom_kills, oom_kills_since
from jupyter_mntrain.agent.failure.foreign_messages import MESSAGES, recognize, told
from jupyter_mntrain.agent.failure.rank_end import of_exception
from jupyter_mntrain.model.failure.fixes import FIXES, SPECIAL
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.telemetry.startup.exit_record import Raised
from tests.rows import has_rows_for
from tests.wording import says

REPORTED = [
    (message, *header.partition("/")[::2], source)
    for header, found in tomllib.loads(
        Path(__file__).with_name("messages.toml").read_text()
    ).items()
    for source, message in found.items()
]


@pytest.mark.parametrize(
    ("message", "kind", "fix"),
    [pytest.param(*row[:3], id=row[3].removeprefix("https://github.com/")) for row in REPORTED],
)
def test_a_reported_message_has_its_kind_and_its_fix(message: str, kind: str, fix: str) -> None:
    found = recognize(message)
    assert found is not None
    assert found.kind == kind
    wanted = SPECIAL[Kind(kind), fix] if fix else FIXES[Kind(kind)]
    assert re.fullmatch(re.escape(wanted).replace(r"\{what\}", ".+"), found.fix)


def test_there_are_a_hundred_reports_with_their_sources() -> None:
    assert len(REPORTED) >= 100
    assert all(source.startswith("https://") for *_, source in REPORTED)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", Kind.GPU_OUT_OF_MEMORY),
        ("RuntimeError: CUDA driver error: out of memory", Kind.GPU_OUT_OF_MEMORY),
        ("RuntimeError: CUDA driver error: operation not supported", Kind.GPU_ALLOCATOR),
        ("RuntimeError: CUDA driver error: unknown error", Kind.GPU_ALLOCATOR),
        ("RuntimeError: CUDA driver error: invalid argument", Kind.GPU_ALLOCATOR),
        (
            'RuntimeError: handle_0 INTERNAL ASSERT FAILED at "../c10/cuda/driver_api.cpp":15',
            Kind.GPU_ALLOCATOR,
        ),
        ("RuntimeError: CUDA driver error: device not ready", Kind.GPU_ERROR),
        ("RuntimeError: CUDA error: operation not supported", Kind.GPU_ERROR),
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory", Kind.OUT_OF_MEMORY),
        ("OSError: [Errno 28] No space left on device", Kind.DISK_FULL),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/d'", Kind.NO_FILE),
        ("PermissionError: [Errno 13] Permission denied: '/d'", Kind.NO_PERMISSION),
        ("TimeoutError: [Errno 110] Connection timed out: '/mnt/nas/a.bin'", Kind.DISK_ERROR),
        ("RuntimeError: Unable to find address for: eth9", Kind.NO_INTERFACE),
        ("AssertionError: Torch not compiled with CUDA enabled", Kind.NO_CUDA),
        ("RuntimeError: No CUDA GPUs are available", Kind.NO_CUDA),
        (
            "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'. Did you mean",
            Kind.NO_CUDA,
        ),
        ("RuntimeError: Tried to instantiate dummy base class CUDAGraph", Kind.NO_CUDA),
        ("RuntimeError: Distributed package doesn't have NCCL built in", Kind.NO_CUDA),
        ("ProcessGroupNCCL is only supported with GPUs, no GPUs found!", Kind.NO_CUDA),
        ("libcuda.so.1: cannot open shared object file: No such file", Kind.NO_CUDA),
        ("CUDA driver version is insufficient for CUDA runtime", Kind.OLD_DRIVER),
        ("The server socket has failed to bind: EADDRINUSE", Kind.PORT_TAKEN),
        ("RuntimeError: Connection closed by peer [10.0.0.2]", Kind.CONNECTION_LOST),
        (
            "NCCL error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to",
            Kind.CONNECTION_LOST,
        ),
        ("Timed out waiting 1800000ms for recv operation", Kind.TIMED_OUT),
        ("free(): corrupted unsorted chunks", None),
        ("SyntaxError: unexpected EOF while parsing", None),
        ("ValueError: the label is no number", None),
        ("KeyError: 'step'", None),
    ],
)
def test_the_kind(message: str, kind: Kind | None) -> None:
    found = recognize(message)
    assert (found and found.kind) == kind
    assert found is None or (found.fix and "{" not in found.fix and not found.fix.endswith("."))


def test_a_fix_names_what_the_message_names() -> None:
    for message, what in (
        ("ModuleNotFoundError: No module named 'datasets'", "datasets"),
        (
            "No module named a.b.__main__; 'a.b' is a package and cannot be directly executed",
            "a.b.",
        ),
        ("ImportError: libGL.so.1: cannot open shared object file", "libGL.so.1"),
        ("sh: 1: ffmpeg: not found", "ffmpeg"),
        ("bash: line 3: hf: command not found", "hf"),
    ):
        found = recognize(message)
        assert found is not None
        assert what in found.fix


def raised_by(action: Callable[[], object]) -> Raised:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - whatever it raises is what is told
        text = "".join(traceback.format_exception(error))
        return Raised(type(error).__name__, "builtins", str(error), 1.0, (), text)
    raise AssertionError("it raised nothing")


def test_a_program_that_is_not_there_is_told_from_a_file() -> None:
    program = of_exception(raised_by(lambda: subprocess.run(["no-such-git", "pull"], check=True)))
    assert program.kind is Kind.NO_PROGRAM
    assert "no-such-git" in program.fix
    file = of_exception(raised_by(Path("no-such-data").read_text))
    assert file.kind is Kind.NO_FILE


def test_what_a_worker_raised_stands_in_the_first_line() -> None:
    message = (
        "Caught OSError in DataLoader worker process 0.\n"
        "Original Traceback (most recent call last):\n"
        '  File "/usr/lib/python3/multiprocessing/queues.py", line 244, in _feed\n'
        "    obj = dumps(obj)  # /dev/shm\n"
        "OSError: AF_UNIX path too long\n"
    )
    problem = of_exception(Raised("OSError", "builtins", message, 1.0))
    assert problem.kind is Kind.PATH_TOO_LONG
    assert says("OSError: AF_UNIX path too long, in DataLoader worker process 0", problem.cause)


def test_a_later_line_that_says_why_joins_the_first() -> None:
    message = (
        "RuntimeError: Error(s) in loading state_dict for Net:\n"
        "\tsize mismatch for weight: copying a param with shape torch.Size([2])"
    )
    assert told(message, recognize(message)) == (
        "RuntimeError: Error(s) in loading state_dict for Net: "
        "size mismatch for weight: copying a param with shape torch.Size([2])"
    )


def test_the_fix_of_an_allocator_names_its_variables() -> None:
    found = recognize("RuntimeError: CUDA driver error: operation not supported")
    assert found is not None
    for variable in ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False", "PYTORCH_ALLOC_CONF"):
        assert says(variable, found.fix)


def test_every_row_has_a_fix() -> None:
    no_fix = "a message may mean '{}', which has no fix: add one to model/failure/fixes.py"
    has_rows_for(
        ((row.kind, row.fix) for row in MESSAGES),
        [*SPECIAL, *((kind, "") for kind in FIXES)],
        no_fix,
    )


def test_whether_the_kernel_ran_out_of_memory_since_it_began() -> None:
    now = oom_kills()
    if now is None:
        pytest.skip("this kernel does not count them")

    def began(kills: int | None) -> SupervisorIdentity:
        return SupervisorIdentity(pid=1, start_time=1, boot_id="b", oom_kills=kills)

    assert oom_kills_since(began(now - 1)) == 1
    assert oom_kills_since(began(now)) == 0
    assert oom_kills_since(began(None)) is None
    assert oom_kills_since(None) is None
