"""Foreign messages of torch, NCCL, CUDA, Python and Linux: the kind and fix of each."""

from __future__ import annotations

import pytest

from jupyter_mntrain.agent.attempt.directory import KeeperIdentity, oom_kills, oom_kills_since
from jupyter_mntrain.agent.failure.foreign_messages import PATTERNS, kind_of
from jupyter_mntrain.model.failure.fixes import FIXES
from jupyter_mntrain.model.failure.kinds import Kind
from tests.rows import has_rows_for
from tests.wording import says


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
        ("ModuleNotFoundError: No module named 'datasets'", Kind.NO_MODULE),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/d'", Kind.NO_FILE),
        ("PermissionError: [Errno 13] Permission denied: '/d'", Kind.NO_PERMISSION),
        ("RuntimeError: Unable to find address for: eth9", Kind.NO_INTERFACE),
        ("CUDA error: no kernel image is available for execution", Kind.NO_GPU_KERNEL),
        ("AssertionError: Torch not compiled with CUDA enabled", Kind.NO_CUDA),
        ("RuntimeError: No CUDA GPUs are available", Kind.NO_CUDA),
        (
            "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'. Did you mean",
            Kind.NO_CUDA,
        ),
        ("RuntimeError: Tried to instantiate dummy base class CUDAGraph", Kind.NO_CUDA),
        ("RuntimeError: Distributed package doesn't have NCCL built in", Kind.NO_CUDA),
        ("ProcessGroupNCCL is only supported with GPUs, no GPUs found!", Kind.NO_CUDA),
        ("CUDA driver version is insufficient for CUDA runtime", Kind.OLD_DRIVER),
        ("The server socket has failed to bind: EADDRINUSE", Kind.PORT_TAKEN),
        ("RuntimeError: Connection closed by peer [10.0.0.2]", Kind.CONNECTION_LOST),
        ("Timed out waiting 1800000ms for recv operation", Kind.TIMED_OUT),
        ("ValueError: the label is no number", None),
    ],
)
def test_the_kind(message: str, kind: Kind | None) -> None:
    found = kind_of(message)
    assert (found and found[0]) == kind
    assert found is None or (found[1] and "{" not in found[1] and not found[1].endswith("."))


def test_a_fix_names_what_the_message_names() -> None:
    found = kind_of("ModuleNotFoundError: No module named 'datasets'")
    assert found is not None
    assert "datasets" in found[1]


def test_the_fix_of_an_allocator_names_its_variables() -> None:
    found = kind_of("RuntimeError: CUDA driver error: operation not supported")
    assert found is not None
    for variable in ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False", "PYTORCH_ALLOC_CONF"):
        assert says(variable, found[1])


def test_every_kind_that_a_message_may_mean_has_a_fix() -> None:
    no_fix = "a message may mean '{}', which has no fix: add one to model/failure/fixes.py"
    has_rows_for((kind for _, kind in PATTERNS), FIXES, no_fix)


def test_whether_the_kernel_ran_out_of_memory_since_it_began() -> None:
    now = oom_kills()
    if now is None:
        pytest.skip("this kernel does not count them")

    def began(kills: int | None) -> KeeperIdentity:
        return KeeperIdentity(pid=1, start_time=1, boot_id="b", oom_kills=kills)

    assert oom_kills_since(began(now - 1)) == 1
    assert oom_kills_since(began(now)) == 0
    assert oom_kills_since(began(None)) is None
    assert oom_kills_since(None) is None
