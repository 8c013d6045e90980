"""Bus bandwidth: the factors and an example of NCCL-tests' own documentation."""

from __future__ import annotations

import pytest

from jupyter_mntrain.metrics.benchmark.bandwidth import (
    algorithm_bandwidth,
    bus_bandwidth,
    bus_factor,
)


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_gather", 2, 0.5),
        ("all_gather", 8, 0.875),
        ("send", 2, 1.0),
        ("send", 8, 1.0),
    ],
)
def test_the_factor_is_that_of_nccl_tests(operation, ranks, factor):
    assert bus_factor(operation, ranks) == pytest.approx(factor)


def test_a_row_of_nccl_tests_own_output():
    # nccl-tests' README, ./build/all_reduce_perf -g 8: 134217728 bytes in 1539.3 µs, algbw 87.19,
    # busbw 152.59 GB/s, is such a row.
    size, seconds = 134_217_728, 1539.3e-6
    assert algorithm_bandwidth(size, seconds) == pytest.approx(87.19e9, rel=1e-3)
    assert bus_bandwidth("all_reduce", size, seconds, 8) == pytest.approx(152.59e9, rel=1e-3)


def test_no_time_is_no_rate():
    assert bus_bandwidth("send", 1024, 0.0, 2) == 0.0
