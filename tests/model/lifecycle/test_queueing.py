"""Queue order: which of two jobs that wait comes first."""

from __future__ import annotations

from jupyter_mntrain.model.lifecycle.queueing import KEPT_AFTER_S, kept_for, order
from jupyter_mntrain.model.records.job import (
    JobRecord,
)
from tests.model.lifecycle.waiting_jobs import NOW_S, queued


def first_of(
    asks: JobRecord, *waiting: JobRecord, gpus: tuple[int, ...] = (0,)
) -> JobRecord | None:
    return kept_for(asks.job_id, gpus, [*waiting, asks], mine=order(asks), now_s=NOW_S)


def test_a_job_of_higher_priority_comes_first() -> None:
    urgent = queued(1, {1: (0,)}, priority=5, submitted_s=NOW_S)
    asks = queued(2, {1: (0,)})
    assert first_of(asks, urgent) == urgent
    assert first_of(urgent, asks) is None


def test_among_equals_others_may_pass_for_a_minute_and_then_no_more() -> None:
    asks = queued(2, {1: (0,)}, submitted_s=NOW_S)
    fresh = queued(1, {1: (0,)}, submitted_s=NOW_S - KEPT_AFTER_S + 1)
    waits = queued(1, {1: (0,)}, submitted_s=NOW_S - KEPT_AFTER_S)
    assert first_of(asks, fresh) is None
    assert first_of(asks, waits) == waits


def test_nothing_is_kept_that_the_other_does_not_want() -> None:
    urgent = queued(1, {1: (1,)}, priority=5)
    assert first_of(queued(2, {1: (0,)}), urgent) is None
