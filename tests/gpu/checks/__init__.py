"""Checks of the GPU acceptance, by number."""

from __future__ import annotations

from tests.gpu.checks.card import check_card
from tests.gpu.checks.resuming import check_resuming
from tests.gpu.checks.same import check_collectives, check_same_as_cpu
from tests.gpu.checks.speed import check_speed
from tests.gpu.checks.stages import check_stages
from tests.gpu.checks.steps import check_kernels, check_timing, check_waits
from tests.gpu.checks.variants import check_variants
from tests.gpu.findings import Check

CHECKS = (
    Check(0, "two ranks: an all-reduce and a send", 60, check_collectives, on_cpu=True),
    Check(1, "one rank: losses and norms as on a CPU", 90, check_same_as_cpu, on_cpu=True),
    Check(2, "optimizers, precisions, losses, memory", 200, check_variants, on_cpu=True),
    Check(3, "two, three and six ranks", 240, check_stages, on_cpu=True),
    Check(4, "save, kill and resume", 90, check_resuming, on_cpu=True),
    Check(5, "no waits for the GPU in a step", 60, check_waits),
    Check(6, "times and memory as recorded", 60, check_timing),
    Check(7, "the card's id, and its speed in a matrix product", 45, check_card),
    Check(8, "fast kernels for attention and optimizer", 60, check_kernels),
    Check(9, "MFU of 1B and 8B, against a bare loop", 360, check_speed),
)
