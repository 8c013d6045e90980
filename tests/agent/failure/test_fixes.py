"""What to do about a failure, told by what it says."""

from __future__ import annotations

import pytest

from jupyter_mntrain.agent.attempt.directory import KeeperIdentity, has_oom_since, oom_kills
from jupyter_mntrain.agent.failure.fixes import fix_for


@pytest.mark.parametrize(
    ("summary", "fix"),
    [
        ("rank 1: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "microbatches"),
        ("rank 1: killed by SIGKILL, by the kernel: the machine ran out of memory", "fewer proc"),
        ("rank 1: killed by SIGKILL, the kernel's OOM killer was not involved", "dmesg"),
        ("torchrun was ended by a signal from outside", "journalctl"),
        ("rank 0: killed by SIGSEGV", "compare the versions"),
        ("rank 0: OSError: [Errno 28] No space left on device", "free some space"),
        ("rank 2: ModuleNotFoundError: No module named 'datasets'", "install datasets on that"),
        ("rank 2: FileNotFoundError: [Errno 2] No such file or directory: '/d'", "--file"),
        ("rank 2: PermissionError: [Errno 13] Permission denied: '/d'", "agent's user"),
        ("rank 1: RuntimeError: Unable to find address for: eth9", "another interface"),
        ("rank 1: CUDA error: no kernel image is available for execution", "built for the GPUs"),
        ("the machine was restarted while the job was running", "--restarts"),
        (
            "rank 0: RuntimeError: Connection closed by peer [10.0.0.2]",
            "closed the connection failed first",
        ),
        ("rank 0: Timed out waiting 1800000ms for recv operation", "measure the links"),
        ("rank 0: no layers for it. Fix: use fewer ranks.", ""),
        ("rank 0: ValueError: the label is no number", ""),
    ],
)
def test_the_fix(summary: str, fix: str) -> None:
    found = fix_for(summary)
    assert fix in found
    assert bool(found) == bool(fix)
    assert not found.endswith(".")


def test_whether_the_kernel_ran_out_of_memory_since_it_began() -> None:
    now = oom_kills()
    if now is None:
        pytest.skip("this kernel does not count them")

    def began(kills: int | None) -> KeeperIdentity:
        return KeeperIdentity(pid=1, start_time=1, boot_id="b", oom_kills=kills)

    assert has_oom_since(began(now - 1)) is True
    assert has_oom_since(began(now)) is False
    assert has_oom_since(began(None)) is None
    assert has_oom_since(None) is None
