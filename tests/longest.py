"""Longest test files: begun first, so that no worker is left alone with one of them at the end.

With ``--dist loadfile`` a file is one worker's. By itself xdist begins those with the most tests,
and the longest have few; ``--no-loadscope-reorder`` leaves it to this order.
"""

from __future__ import annotations

import pytest

FILES = (
    "tests/agent/gang/test_restarter.py",
    "tests/cluster/test_resume.py",
    "tests/train/test_equality.py",
    "tests/cluster/test_real_agents.py",
    "tests/notebook/test_finetuning.py",
    "tests/cluster/admission/test_members.py",
    "tests/notebook/test_lessons.py",
    "tests/cluster/acceptance/test_accepting.py",
    "tests/faults/test_surroundings.py",
    "tests/e2e/test_demo.py",
    "tests/train/checkpoint/test_checkpoints.py",
    "tests/cluster/discovery/test_slot_discovery.py",
    "tests/gpu/test_stand_in.py",
    "tests/e2e/test_systemd.py",
    "tests/agent/attempt/test_attempts.py",
    "tests/slurm_lab/test_launch_on_slurm.py",
    "tests/own_scripts/test_callbacks.py",
    "tests/slurm_lab/test_slurm_source.py",
    "tests/agent/gang/test_verdicts.py",
    "tests/cluster/test_trying.py",
    "tests/kubernetes_lab/test_agents_in_pods.py",
    "tests/faults/test_faults.py",
    "tests/notebook/test_kernel.py",
    "tests/e2e/test_clusters.py",
    "tests/e2e/test_netlab.py",
    "tests/faults/test_slowdowns.py",
    "tests/faults/test_fixes.py",
    "tests/cluster/test_generating.py",
    "tests/e2e/test_install.py",
    "tests/agent/http/test_device_routes.py",
    "tests/e2e/test_doctor.py",
    "tests/agent/warnings/test_watch.py",
    "tests/faults/test_harmless.py",
    "tests/train/checkpoint/test_kills.py",
    "tests/agent/http/test_limits.py",
    "tests/agent/http/test_fuzz.py",
    "tests/agent/gang/test_queue.py",
    "tests/e2e/test_bad_input.py",
    "tests/agent/gang/test_gpu_contention.py",
)
"""The longest first, on two cores; those that compute between those that wait."""

_PLACES = {file: place for place, file in enumerate(FILES)}


def longest_first(items: list[pytest.Item]) -> None:
    """Sort tests by file; those of one stay together, in their order."""
    items.sort(key=lambda item: _PLACES.get(item.nodeid.partition("::")[0], len(FILES)))
