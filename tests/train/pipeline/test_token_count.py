"""Token count: what the trainer says of its throughput is what was counted over wall time."""

from __future__ import annotations

import pytest

from jupyter_mntrain.metrics.recent import RECENT_S
from jupyter_mntrain.train.pipeline.steps import TokenCount


def test_tokens_of_the_last_minute_over_wall_time_without_the_warm_up() -> None:
    now, told = 0.0, []
    count = TokenCount(lambda: now)
    now = 7.0
    count.begin()  # seven seconds of something else
    for step in range(1, 400):
        took_s = 30.0 if step <= 2 else 4.2 if step % 10 == 0 else 0.2
        now += took_s
        told.append((now, step, took_s))
        count.add(step)
        if step > 2:
            recent = [one for one in told[2:] if one[0] > now - RECENT_S]
            true = sum(tokens for _, tokens, _ in recent) / sum(each for *_, each in recent)
            assert count.recent_per_s == pytest.approx(true)
    assert count.per_s == pytest.approx(sum(range(400)) / (now - 7.0))
