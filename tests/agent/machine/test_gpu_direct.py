"""GPUDirect RDMA, in fake trees of sysfs and proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine.rdma import read_gpu_direct

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n"


@pytest.mark.parametrize(
    ("driver", "release", "found"),
    [
        (OPEN, "6.8.0-45-generic", "dma-buf"),
        (OPEN, "5.12.1", "dma-buf"),
        (OPEN, "5.4.0-190-generic", None),
        (OPEN, "unknown", None),
        (CLOSED, "6.8.0-45-generic", None),
        (None, "6.8.0-45-generic", None),
    ],
)
def test_dma_buf_needs_a_new_kernel_and_open_modules(
    tmp_path: Path, driver: str | None, release: str, found: str | None
) -> None:
    if driver is not None:
        place = tmp_path / "proc" / "driver" / "nvidia"
        place.mkdir(parents=True)
        (place / "version").write_text(driver)
    assert read_gpu_direct(tmp_path / "sys", tmp_path / "proc", release) == found
    (tmp_path / "sys" / "module" / "nvidia_peermem").mkdir(parents=True)
    assert read_gpu_direct(tmp_path / "sys", tmp_path / "proc", release) == "nvidia-peermem"
