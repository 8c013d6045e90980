"""Fault table, continued: a job that is slower than before, and whose speed comes back, twice."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jupyter_mntrain.model.failure.kinds import SLOWNESS
from tests.faults.bench import Bench
from tests.faults.limits import PATIENCE_S
from tests.faults.table import Outcome, busyness, report
from tests.netlab import DATA
from tests.netlab.lab import SHAPES
from tests.waiting import until

pytestmark = [pytest.mark.netlab, pytest.mark.slow]

KNOWN_WITHIN_S = 20.0
NORMAL_STEPS = 250
"""Steps before the fault: what is normal has to be known, of 16 s."""

SLOW_SEND = """
def slow(*words, kept=dist.send):
    time.sleep(0.3)
    kept(*words)
dist.send = slow
"""
AS_BEFORE = "dist.send, = slow.__defaults__"


def warnings(seen: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in seen.get("others", ()) if one["field"] == "warnings"]


@contextmanager
def narrow_link(bench: Bench) -> Iterator[None]:
    bench.lab.shape_sending(bench.second, DATA, "rate 60mbit burst 32kb latency 50ms")
    try:
        yield
    finally:
        bench.lab.shape_sending(bench.second, DATA, SHAPES[DATA])


@contextmanager
def slow_code(bench: Bench) -> Iterator[None]:
    bench.inject(bench.second, SLOW_SEND)
    try:
        yield
    finally:
        bench.inject(bench.second, AS_BEFORE)


@pytest.mark.parametrize(
    ("fault", "slow_down", "kind", "rank"),
    [
        ("the link between two nodes gets narrow", narrow_link, "link-slow", None),
        ("a rank's own code gets slow", slow_code, "slow-rank", 1),
    ],
)
def test_a_slower_job_names_who_slows_it_down(
    bench: Bench, fault: str, slow_down: Any, kind: str, rank: int | None
) -> None:
    def warned(seen: dict[str, Any], kinds: Collection[str]) -> bool:
        return seen.get("job") == bench.job and any(one["kind"] in kinds for one in warnings(seen))

    with bench.left_running():
        bench.goes_on(NORMAL_STEPS)
        assert not warnings(bench.latest)
        since_s = time.time()
        with slow_down(bench):
            slow_s, _ = bench.first_time(since_s, lambda o: warned(o, SLOWNESS), PATIENCE_S)
            # Who it is takes longer where other programs take the cores: that comes and goes.
            took_s, seen = bench.first_time(since_s, lambda o: warned(o, {kind}), PATIENCE_S)
        (warning,) = warnings(seen)
        assert (warning["node"], warning["rank"]) == ("node2", rank)
        told = "node2: " + ("" if rank is None else f"rank {rank}: ") + warning["cause"]
        row = Outcome(f"{fault}; the job keeps running", took_s, told, warning["fix"], "a slow job")
        assert slow_s <= KNOWN_WITHIN_S * busyness(), f"called slow only after {slow_s:.1f} s"
        report(row, PATIENCE_S)
        until(lambda: not warnings(bench.latest), "speed to be back", PATIENCE_S)
