"""Whose a GPU is, as far as a node may know. The cards themselves need a machine that has some."""

from __future__ import annotations

import os

import psutil

from jupyter_mntrain.agent.gpus import _process
from jupyter_mntrain.model.node import Gpu, GpuProcess


def test_a_process_is_named_by_user_program_and_pid() -> None:
    me = psutil.Process()
    told = _process(os.getpid())
    assert (told.user, told.command) == (me.username(), me.name())
    assert str(told) == f"{me.username()}, {me.name()} (pid {os.getpid()})"


def test_a_process_that_is_gone_or_of_another_namespace_keeps_its_pid() -> None:
    assert str(_process(2**22 + 5)) == f"pid {2**22 + 5}"


def test_a_gpu_somebody_computes_on_is_not_idle() -> None:
    basis = {
        "index": 0,
        "uuid": "u",
        "name": "RTX",
        "memory_total_bytes": 9,
        "memory_used_bytes": 1,
    }
    assert Gpu(**basis).is_idle
    busy = Gpu(**basis, processes=(GpuProcess(pid=7, user="ada"), GpuProcess(pid=8)))
    assert not busy.is_idle
    assert busy.owners == "ada (pid 7) and pid 8"
