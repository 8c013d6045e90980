"""Achieved: the speeds that explain what a job measured."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.metrics.trace.achieved import achieved
from jupyter_mntrain.metrics.trace.off_plan import Measured
from jupyter_mntrain.metrics.trace.sent_messages import SentMessages
from jupyter_mntrain.model.ids import Rank
from tests.standin.plans import MESSAGES, plan_of
from tests.standin.traces import LINK

R0, R1 = Rank(0), Rank(1)


def test_a_rank_that_took_twice_as_long_has_half_the_speed() -> None:
    plan = plan_of(is_measured=False)
    found = achieved(plan, Measured(2.0, {0: 2.0}), "j-1")
    assert set(found.devices) == {("wopr", "CPU")}, "of the other nothing was measured"
    speed = found.devices["wopr", "CPU"]
    assert speed.flops_per_s == plan.ranks[0].speed.flops_per_s / 2
    assert speed.is_measured
    assert "j-1" in speed.source


def test_a_link_whose_messages_took_three_times_as_long_takes_so_in_the_next_plan() -> None:
    plan = plan_of()
    sent = {(R0, R1): SentMessages(MESSAGES, 3 * sum(LINK))}
    found = achieved(plan, Measured(2.0, {}, sent), "j-1")
    assert set(found.links) == {("wopr", "muthur")}
    link = found.links["wopr", "muthur"]
    planned = plan.links[0]
    each = planned.sent_bytes / MESSAGES
    assert link.latency_s + each / link.bytes_per_s == pytest.approx(3 * sum(LINK))


def test_of_two_ranks_on_a_node_the_slower_counts() -> None:
    plan = plan_of()
    both = tuple(msgspec.structs.replace(one, node="wopr") for one in plan.ranks)
    plan = msgspec.structs.replace(plan, ranks=both)
    found = achieved(plan, Measured(2.0, {0: 2.0, 1: 1.0}), "j-1")
    assert found.devices["wopr", "CPU"].flops_per_s == plan.ranks[0].speed.flops_per_s / 2


def test_a_message_that_was_late_for_want_of_a_core_makes_no_link_slower() -> None:
    plan = plan_of()
    sent = {(R0, R1): SentMessages(MESSAGES, 1490 * sum(LINK), late_s=1489.5 * sum(LINK))}
    link = achieved(plan, Measured(2.0, {}, sent), "j-1").links["wopr", "muthur"]
    assert link.bytes_per_s == pytest.approx(plan.links[0].speed.bytes_per_s)
