"""Longest test files: begun first, so that no worker is left alone with one of them at the end.

With ``--dist loadfile`` a file is one worker's. By itself xdist begins those with the most tests,
and the longest have few; ``--no-loadscope-reorder`` leaves it to this order.
"""

from __future__ import annotations

import pytest

FILES = (
    "tests/notebook/test_finetuning.py",
    "tests/notebook/test_lessons.py",
    "tests/cluster/test_resume.py",
    "tests/train/test_equality.py",
    "tests/agent/gang/test_restarter.py",
    "tests/cluster/acceptance/test_accepting.py",
    "tests/e2e/test_demo.py",
    "tests/gpu/test_stand_in.py",
    "tests/agent/attempt/test_attempts.py",
    "tests/cluster/test_trying.py",
    "tests/notebook/test_kernel.py",
    "tests/cluster/test_generating.py",
    "tests/cluster/test_real_agents.py",
    "tests/train/checkpoint/test_checkpoints.py",
    "tests/own_scripts/test_callbacks.py",
    "tests/agent/gang/test_verdicts.py",
    "tests/faults/test_fixes.py",
    "tests/cluster/admission/test_members.py",
    "tests/cluster/discovery/test_slot_discovery.py",
    "tests/agent/doubts/test_doubts.py",
    "tests/e2e/test_bad_input.py",
    "tests/agent/gang/test_queue.py",
    "tests/train/checkpoint/test_kills.py",
    "tests/agent/http/test_device_routes.py",
    "tests/agent/gang/test_gpu_contention.py",
    # On simulated hosts.
    "tests/faults/test_faults.py",
    "tests/faults/test_surroundings.py",
    "tests/e2e/test_systemd.py",
    "tests/e2e/test_netlab.py",
    "tests/slurm_lab/test_launch_on_slurm.py",
    "tests/e2e/test_clusters.py",
    "tests/slurm_lab/test_slurm_source.py",
    "tests/e2e/test_install.py",
    "tests/kubernetes_lab/test_agents_in_pods.py",
    "tests/faults/test_slowdowns.py",
    "tests/e2e/test_doctor.py",
    "tests/faults/test_harmless.py",
)
"""By what they took on two cores, the longest first."""

_PLACES = {file: place for place, file in enumerate(FILES)}


def longest_first(items: list[pytest.Item]) -> None:
    """Sort tests by file; those of one stay together, in their order."""
    items.sort(key=lambda item: _PLACES.get(item.nodeid.partition("::")[0], len(FILES)))
