"""Rare syncs: what the row of replicas that sync rarely says, and what they take."""

from __future__ import annotations

import json

import msgspec
import pytest

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.plan import LinkSpeed, OtherPlan, Plan
from jupyter_mntrain.plan.choosing.devices import make_chain
from jupyter_mntrain.plan.choosing.pricing import agreement_seconds
from jupyter_mntrain.recipe.memory import forecast
from jupyter_mntrain.recipe.parse import check
from tests.plan.choosing.jobs import ETHERNET, FAST, devices, job, planned
from tests.wording import says, wording

SELDOM = "data parallel, sync every 50 steps"
SLOW = LinkSpeed(1e6, 0.0, is_measured=True)


def row(plan: Plan) -> OtherPlan:
    return next(one for one in plan.others if one.name == SELDOM)


def test_a_replica_that_meets_rarely_may_be_a_pipeline_where_a_rank_is_too_small() -> None:
    roomy = row(planned(*job(), devices([1e10] * 4, per_node=2), SLOW))
    assert roomy.chosen["data_parallel.replicas"] == "4"
    assert not {"pipeline.split", "pipeline.in_flight"} & set(roomy.chosen)
    assert says("in one benchmark run", roomy.note)
    size = 120e6  # less than weights, gradients, averages and last sync of the whole model
    tight = row(planned(*job(), devices([1e10] * 4, [size] * 4, per_node=2), SLOW))
    assert tight.chosen["data_parallel.replicas"] == "2"
    assert len(json.loads(tight.chosen["pipeline.split"])) == 2
    assert tight.step_s is not None
    assert roomy.step_s is not None
    assert tight.step_s > roomy.step_s
    assert max(tight.memory_bytes) <= size


def test_what_is_kept_between_syncs_counts_on_a_cpu_and_is_named_beside_a_gpu() -> None:
    rarely = ("data_parallel.replicas=2", "data_parallel.sync_every=50")
    recipe, config = job(*rarely, "pipeline.microbatches=1", "memory.checkpointing=none")
    (estimate,) = forecast(recipe, config, 2)
    assert estimate.host > 50e6, "weights and momentum"
    late = (*rarely, "data_parallel.sync_fragments=2", "data_parallel.sync_delay=1")
    given = job(*late, "pipeline.microbatches=1", "memory.checkpointing=none")
    (behind,) = forecast(*given, 2)
    assert behind.host == pytest.approx(1.25 * estimate.host), "half of the weights are under way"
    (rank,) = planned(recipe, config, devices([1e10, 1e10])).ranks
    assert rank.memory_bytes == estimate.total + estimate.host
    given = devices([1e10, 1e10])
    on_cpus = row(planned(*job(), given))
    assert "host memory" not in on_cpus.note
    gpus = [msgspec.structs.replace(one, name="GPU 0", is_gpu=True) for one in given]
    on_gpus = row(planned(*job(), gpus))
    assert says(f"{estimate.host / 1e6:.1f} MB per rank in host memory", on_gpus.note)


def test_replicas_that_fit_nowhere_say_what_is_missing() -> None:
    size = 100e6
    found = row(planned(*job(), devices([1e10, 1e10], [size, size]), ETHERNET))
    assert found.step_s is None
    assert says("of memory and has", found.obstacle)
    odd = row(planned(*job(), devices([1e10] * 3), ETHERNET))
    assert says("3", odd.obstacle), "32 sequences"


def test_what_does_not_fit_names_the_smallest_device_of_its_place() -> None:
    sizes = [10e9, 100e6]
    found = row(planned(*job(), devices([1e10, 1e10], sizes), ETHERNET))
    assert found.obstacle.startswith("rank 1 (node1) needs ")
    assert says("has 100.0 MB", found.obstacle)
    recipe, config = job("data_parallel.replicas=2")
    for small, others in ((40e6, 10e9), (40e6, None)):
        with pytest.raises(RecipeError, match=wording("rank 1 needs .* has 40.0 MB")) as caught:
            planned(recipe, config, devices([1e10, 1e10], [others, small]), ETHERNET)
        assert caught.value.node == "node1"


@pytest.mark.slow
def test_a_replica_is_a_pipeline_too_where_links_within_it_are_fast() -> None:
    """With as many replicas as ranks, half as much again would be sent by each card."""
    very_slow = LinkSpeed(1e3, 0.0, is_measured=True)
    found = row(planned(*job(), devices([1e12] * 4, per_node=2), very_slow))
    assert found.chosen["data_parallel.replicas"] == "2"


@pytest.mark.parametrize("size", [None, 120e6])
@pytest.mark.parametrize(
    "own",
    [
        (),
        ("train.accumulation=4", "pipeline.microbatches=8"),
        ("pipeline.split=[2,2,2,2]",),
        ("pipeline.split=[2,2,2,2]", "pipeline.in_flight=[4,3,2,1]", "pipeline.microbatches=8"),
        ("pipeline.schedule=interleaved-1f1b", "pipeline.stages_per_rank=2"),
        ("pipeline.schedule=eager-zero-bubble", "pipeline.deferred=[0,1,2,3]"),
        ("evaluation.interval_steps=20",),
    ],
)
def test_a_recipe_with_what_the_row_shows_is_accepted_and_takes_as_long(
    own: tuple[str, ...], size: float | None
) -> None:
    given = devices([1e10] * 4, [size] * 4, per_node=2)
    found = row(planned(*job(*own), given, SLOW))
    assert found.chosen["data_parallel.sync_every"] == "50"
    assert found.chosen["memory.checkpointing"], "it was open"
    assert found.chosen.get("train.accumulation") == (
        "1" if "train.accumulation=4" in own else None
    )
    recipe, config = job(*own, *(f"{name}={value}" for name, value in found.chosen.items()))
    check(recipe, 4)
    again = planned(recipe, config, given, SLOW)
    assert again.step_s == pytest.approx(found.step_s, rel=0.02)


def test_all_ranks_agree_in_every_step_however_rarely_they_meet() -> None:
    late = LinkSpeed(1e12, 0.1, is_measured=True)
    often, config = job("data_parallel.replicas=4")
    rarely, _ = job("data_parallel.replicas=4", "data_parallel.sync_every=1000")
    given = devices([1e10] * 4)
    for recipe in (often, rarely):
        chain = make_chain(given, lambda *_: late, recipe, range(4))
        agreed_s = agreement_seconds(recipe, config, chain, given, lambda *_: late)
        assert agreed_s == pytest.approx(2 * 3 * 0.1, rel=1e-3)
        here, near = (planned(recipe, config, given, one) for one in (late, FAST))
        assert here.step_s - near.step_s >= 0.6
    pipeline, _ = job()
    assert planned(pipeline, config, given[:2], late).update_s > 2 * 0.1
    far, close = (
        next(
            one.step_s
            for one in planned(pipeline, config, given[:2], link).others
            if one.name == "data parallel"
        )
        for link in (late, FAST)
    )
    assert far is not None
    assert close is not None
    assert far - close == pytest.approx(2 * 0.1, rel=1e-3), "sums hide behind the backward pass"
    assert planned(pipeline, config, given[:1], late).update_s < 0.1


def fsdp(plan: Plan) -> OtherPlan:
    return next(one for one in plan.others if one.name == "FSDP")


def test_the_row_of_fsdp_drops_weights_only_where_they_do_not_fit() -> None:
    roomy = fsdp(planned(*job(), devices([1e10] * 2), ETHERNET))
    assert roomy.chosen["data_parallel.shards"] == "2"
    assert "data_parallel.reshard_after_forward" not in roomy.chosen
    given = ("data_parallel.shards=2", "pipeline.microbatches=16", "memory.checkpointing=full")
    kept, described = job(*given)
    size = 0.9 * forecast(kept, described, 2)[0].total
    tight = fsdp(planned(*job(), devices([1e10] * 2, [size] * 2), ETHERNET))
    assert tight.chosen["data_parallel.reshard_after_forward"] == "true"
    assert max(tight.memory_bytes) <= size
    assert tight.step_s is not None
    assert roomy.step_s is not None
    assert tight.step_s > roomy.step_s
    for found, sizes in ((roomy, None), (tight, [size] * 2)):
        recipe, config = job(*(f"{name}={value}" for name, value in found.chosen.items()))
        check(recipe, 2)
        again = planned(recipe, config, devices([1e10] * 2, sizes), ETHERNET)
        assert again.step_s == pytest.approx(found.step_s, rel=0.02)


def test_weights_in_4_bits_are_planned_but_not_sharded() -> None:
    in_4_bits = ("adapters.rank=4", "adapters.quantize_base=nf4")
    plan = planned(*job(*in_4_bits), devices([1e10] * 2), ETHERNET)
    assert says("weights in 4 bits", fsdp(plan).obstacle)
    whole = planned(*job(in_4_bits[0]), devices([1e10] * 2), ETHERNET)
    assert max(one.memory_bytes for one in plan.ranks) < max(
        one.memory_bytes for one in whole.ranks
    )
