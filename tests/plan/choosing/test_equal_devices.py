"""Equal devices: a difference that is chance splits nothing unequally; a larger one does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.records.plan import AchievedRate, DeviceMeasurement, Plan
from jupyter_mntrain.plan.choosing.job_plan import plan_job
from tests.plan.choosing.jobs import job, split_of
from tests.standin.devices import device, layer
from tests.standin.nodes import gpu, measured, nic, node

BASIS_S = 2e-2


def cpu(slower: float, variation: float, **fields: Any) -> DeviceMeasurement:
    """Args: slower: than another of its kind."""
    few, many = (
        layer(tokens, seconds * slower, rate=1e11 / slower)
        for tokens, seconds in ((32, BASIS_S / 4), (256, BASIS_S))
    )
    layers = tuple(msgspec.structs.replace(one, variation=variation) for one in (few, many))
    return device(layers=layers, **fields)


def with_cpu(name: str, number: int, one: DeviceMeasurement) -> NodeInfo:
    links = measured(100_000)
    found = node(
        name, nic("eth0", f"10.0.0.{number}/24", links=links), versions={"torch": "2.13.0"}
    )
    inventory = msgspec.structs.replace(found.inventory, devices=(one,))
    return msgspec.structs.replace(found, inventory=inventory)


def planned(*measured_cpus: DeviceMeasurement) -> Plan:
    names = "abc"[: len(measured_cpus)]
    nodes = [with_cpu(name, at + 1, measured_cpus[at]) for at, name in enumerate(names)]
    recipe, _ = job("pipeline.schedule=eager-1f1b", "pipeline.microbatches=8")
    return plan_job(recipe, [Participant(name) for name in names], nodes).plan


@pytest.mark.parametrize(
    ("slower", "variation", "is_equal"),
    [(1.25, 0.2, True), (1.25, 0.01, False), (2.0, 0.2, False), (1.0, 0.0, True)],
    ids=["it varies as much", "it hardly varies", "it varies by less", "they are the same"],
)
def test_devices_of_one_kind_are_equal_if_they_differ_by_chance(
    slower: float, variation: float, *, is_equal: bool
) -> None:
    plan = planned(cpu(1.0, variation), cpu(slower, variation))
    fast, slow = split_of(plan)
    assert (fast == slow) == is_equal
    assert (plan.ranks[0].speed.flops_per_s == plan.ranks[1].speed.flops_per_s) == is_equal


def test_the_mean_takes_the_mean_of_their_times() -> None:
    plan = planned(cpu(1.0, 0.2), cpu(1.25, 0.2))
    assert plan.ranks[0].speed.flops_per_s == pytest.approx(1e11 / 1.125)
    assert "2 equal devices" in plan.ranks[0].speed.source


def test_one_that_is_unlike_the_others_of_its_kind_stays_by_itself() -> None:
    plan = planned(cpu(1.0, 0.1), cpu(2.0, 0.1), cpu(1.1, 0.1))
    fast, slow, other = (rank.speed.flops_per_s for rank in plan.ranks)
    assert fast == other
    assert slow == pytest.approx(1e11 / 2)


@pytest.mark.parametrize(
    "fields",
    [{"cpus": 2.0}, {"threads": 2}, {"torch": "2.9.0"}, {"device": "another CPU"}],
    ids=lambda fields: next(iter(fields)),
)
def test_only_the_same_kind_is_equal(fields: dict[str, Any]) -> None:
    plan = planned(cpu(1.0, 0.2), cpu(1.25, 0.2, **fields))
    first, second = plan.ranks
    assert first.speed.flops_per_s == pytest.approx(1e11)
    assert second.speed.flops_per_s == pytest.approx(1e11 / 1.25)


def achieved(slower: float) -> AchievedRate:
    return AchievedRate(JobId("j-1"), 8e10, 9.0, slower)


def test_what_a_job_has_corrected_counts_for_the_equal_ones_that_it_could_not_correct() -> None:
    """One that was measured too fast by chance is held up, as it seems."""
    lucky = cpu(1.0, 0.2, achieved=achieved(1.3))
    plan = planned(lucky, cpu(1.25, 0.2, achieved=achieved(1.04)))
    assert len(set(split_of(plan))) == 1
    for rank in plan.ranks:
        assert rank.speed.flops_per_s == pytest.approx(1e11 / 1.25 / 1.04)
        assert "1 of 2 equal devices" in rank.speed.source


def test_devices_that_jobs_have_shown_to_be_unlike_stay_unlike() -> None:
    plan = planned(cpu(1.0, 0.05, achieved=achieved(1.0)), cpu(1.05, 0.05, achieved=achieved(1.2)))
    fast, slow = (rank.speed.flops_per_s for rank in plan.ranks)
    assert fast / slow == pytest.approx(1.05 * 1.2)


def test_what_was_disturbed_is_planned_as_its_undisturbed_equal() -> None:
    disturbed = cpu(1.1, 0.2, disturbed="while other programs used 2.1 cores")
    first, second = planned(disturbed, cpu(1.0, 0.2)).ranks
    assert first.speed == second.speed
    assert first.speed.flops_per_s == pytest.approx(1e11)
    assert "while" not in first.speed.source


def test_however_much_they_vary_very_unlike_devices_are_unlike() -> None:
    fast, slow = planned(cpu(1.0, 2.5), cpu(1.5, 2.5)).ranks
    assert fast.speed.flops_per_s == pytest.approx(1.5 * slow.speed.flops_per_s)


def test_ranks_that_share_a_cpu_are_no_equal_devices() -> None:
    recipe, _ = job("pipeline.schedule=eager-1f1b", "pipeline.microbatches=8")
    one = with_cpu("a", 1, cpu(1.0, 0.2, ranks=2))
    plan = plan_job(recipe, [Participant("a", nproc=2)], [one]).plan
    assert [rank.speed.source for rank in plan.ranks] == ["measured, float32"] * 2


def test_the_same_card_is_equal_however_many_its_node_has() -> None:
    card = {"gpu": 0, "uuid": "GPU-0", "device": "RTX", "dtype": "float32"}
    nodes = []
    for at, slower in ((1, 1.0), (2, 1.2)):
        found = with_cpu("ab"[at - 1], at, cpu(slower, 0.2, ranks=at, threads=at, **card))
        cards = tuple(gpu(index) for index in range(at))
        inventory = msgspec.structs.replace(found.inventory, gpus=cards)
        nodes.append(msgspec.structs.replace(found, inventory=inventory))
    recipe, _ = job("pipeline.schedule=eager-1f1b", "pipeline.microbatches=8")
    plan = plan_job(recipe, [Participant(name, gpus=(0,)) for name in "ab"], nodes).plan
    assert "2 equal devices" in plan.ranks[0].speed.source
