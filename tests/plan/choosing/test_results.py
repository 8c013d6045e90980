"""Results: what stands next to a plan, what would help, what is guessed, and what is refused."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.plan import DeviceSpeed, LinkSpeed, OtherPlan, Plan
from jupyter_mntrain.plan.choosing.pricing import ring_seconds, update_seconds
from jupyter_mntrain.plan.prediction.step import predict_step
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName
from jupyter_mntrain.recipe.stored import resolved
from tests.plan.choosing.jobs import ETHERNET, FAST, devices, job, planned
from tests.wording import says, wording


def other(plan: Plan, name: str) -> OtherPlan:
    return next(one for one in plan.others if one.name == name)


def test_the_second_best_is_another_choice_and_no_faster() -> None:
    plan = planned(*job(), devices([1e10, 1e10]), ETHERNET)
    second = other(plan, "second best")
    assert second.step_s is not None
    assert second.step_s >= plan.step_s
    names = ("pipeline.schedule", "pipeline.microbatches", "memory.checkpointing")
    assert any(second.chosen[name] != plan.chosen[name] for name in names)


def test_over_a_slow_link_every_other_way_is_slower() -> None:
    """Gradients and weights are many more bytes than the activations between stages."""
    slow = LinkSpeed(1e6, 1e-3, is_measured=True)
    plan = planned(*job(), devices([1e10, 1e10]), slow, advises=True)
    for name in ("data parallel", "FSDP", "tensor parallel"):
        step_s = other(plan, name).step_s
        assert step_s is not None
        assert step_s > 1.2 * plan.step_s


def test_data_parallel_sums_gradients_in_a_ring() -> None:
    slow = LinkSpeed(1e5, 0.0, is_measured=True)
    recipe, config = job()
    step_s = other(planned(recipe, config, devices([1e12, 1e12]), slow), "data parallel").step_s
    hidden, wide, layers = 256, 704, 8
    values = layers * (4 * hidden * hidden + 3 * hidden * wide + 2 * hidden)
    values += 2 * 512 * hidden + hidden
    assert step_s == pytest.approx(4 * values / 1e5, rel=0.02)


def test_what_cannot_run_says_why() -> None:
    roomy = planned(*job(), devices([1e10] * 3), ETHERNET)
    assert says("cannot be divided among 3 ranks", other(roomy, "tensor parallel").obstacle)
    assert says("cannot be divided among 3 ranks", other(roomy, "data parallel").obstacle)
    size = 100e6  # less than weights, gradients and AdamW's averages of the whole model
    tight = planned(*job(), devices([1e10, 1e10], [size, size]), ETHERNET)
    needed = other(tight, "data parallel")
    assert needed.step_s is None
    assert says("of memory and has", needed.obstacle)
    assert needed.memory_bytes[0] > size


def test_a_slow_link_would_help_most_if_it_were_faster() -> None:
    slow = LinkSpeed(1e5, 1e-3, is_measured=True)
    plan = planned(*job(), devices([1e10, 1e10]), slow, advises=True)
    *fewer_bytes, best = plan.improvements
    assert best.what == "a 100 Mbit/s link from node0 to node1"
    assert all("pipeline.transfer" in one.what for one in fewer_bytes)
    assert best.gain > 1.1
    faster = msgspec.structs.replace(slow, bytes_per_s=100e6 / 8 * 1448 / 1514)
    again = planned(*job(), devices([1e10, 1e10]), faster)
    assert plan.step_s / again.step_s == pytest.approx(best.gain, rel=0.02)


def test_a_slow_device_would_help_if_it_were_faster() -> None:
    plan = planned(*job(), devices([1e10, 3e10]), advises=True)
    (only,) = plan.improvements
    assert only.what == "rank 0 as fast as rank 1"
    assert 1.2 < only.gain < 2.5


@pytest.mark.slow
def test_a_promise_on_guessed_speeds_says_how_far_it_may_be_off() -> None:
    """15.7 times were promised once, and doing it gave 4.7."""
    link = LinkSpeed(1e5, 1e-3, is_measured=True)
    plain = job("pipeline.transfer=none")
    sure = planned(*plain, devices([1e10, 1e10]), link, advises=True).improvements[-1]
    assert (sure.low, sure.high) == (None, None)
    guessed = [
        msgspec.structs.replace(one, speed=msgspec.structs.replace(one.speed, is_measured=False))
        for one in devices([1e10, 1e10])
    ]
    unsure = planned(*plain, guessed, link, advises=True).improvements[-1]
    assert unsure.what == sure.what
    assert unsure.low is not None
    assert unsure.high is not None
    assert unsure.low < 0.8 * unsure.gain
    assert unsure.high > 1.2 * unsure.gain


def test_recomputation_for_lack_of_memory_is_named() -> None:
    fixed = ["pipeline.schedule", "pipeline.microbatches"]
    free = planned(*job(), devices([1e10, 1e10]), fixed=fixed)
    size = 0.5 * max(rank.memory_bytes for rank in free.ranks)
    tight = planned(*job(), devices([1e10, 1e10], [size, size]), fixed=fixed, advises=True)
    assert tight.chosen["memory.checkpointing"] == "full"
    assert any(one.what.startswith("no recomputation, with") for one in tight.improvements)


def test_what_was_not_measured_is_named() -> None:
    assert planned(*job(), devices([1e10, 1e10]), FAST).guesses == ()
    claimed = LinkSpeed(1e9, 0.0, "its nominal speed")
    guessed = devices([1e10, 1e10])
    speed = DeviceSpeed(1e10, source="from its data sheet")
    guessed[1] = msgspec.structs.replace(guessed[1], speed=speed)
    guesses = planned(*job(), guessed, claimed).guesses
    assert "speed of node1's CPU: from its data sheet" in guesses
    assert "link from node0 to node1: its nominal speed" in guesses
    assert len(guesses) == 3


@pytest.mark.parametrize(
    ("held", "share", "fix"),
    [
        (("memory.checkpointing=none",), 0.5, 'use memory.checkpointing = "full"'),
        ((), 0.3, 'use optimizer.kind = "adamw-8bit"'),
        (
            ("pipeline.split=[7, 1]", "pipeline.in_flight=[2, 1]", "memory.checkpointing=none"),
            0.8,
            "leave pipeline.split out",
        ),
    ],
)
def test_what_fits_nowhere_is_refused_with_the_smallest_change(
    held: tuple[str, ...], share: float, fix: str
) -> None:
    fixed = ["pipeline.schedule", "pipeline.microbatches"]
    recipe, config = job(*held)
    free = planned(recipe, config, devices([1e10, 1e10]), fixed=fixed)
    size = share * max(rank.memory_bytes for rank in free.ranks)
    with pytest.raises(RecipeError, match=wording(r"rank \d needs .* of memory and has")) as caught:
        planned(recipe, config, devices([1e10, 1e10], [size, size]), fixed=fixed, advises=True)
    assert caught.value.node in {"node0", "node1"}
    assert says(fix, caught.value.fix)


@pytest.mark.parametrize(
    ("more", "fix"),
    [
        (
            (),
            "use data_parallel.shards = 2 in place of replicas, with reshard_after_forward = true",
        ),
        (("optimizer.grad_dtype=float32",), 'use optimizer.kind = "adamw-8bit"'),
    ],
)
def test_shards_are_proposed_where_replicas_do_not_fit(more: tuple[str, ...], fix: str) -> None:
    """They learn the same; but not where a recipe has what excludes them."""
    recipe, config = job("data_parallel.replicas=2", "train.batch_size=4", *more)
    with pytest.raises(RecipeError) as caught:
        planned(recipe, config, devices([1e10, 1e10], [80e6, 80e6]), advises=True)
    assert says(fix, caught.value.fix)


def test_one_more_rank_is_proposed_where_nothing_else_fits() -> None:
    recipe, config = job("optimizer.kind=adafactor", "train.batch_size=4")
    with pytest.raises(RecipeError) as caught:
        planned(recipe, config, devices([1e10, 1e10], [34e6, 34e6]))
    assert says("add 1 more rank like that of node0", caught.value.fix)
    assert len(planned(recipe, config, devices([1e10] * 3, [34e6] * 3)).ranks) == 3


def test_a_recipe_that_cannot_run_is_refused_as_before() -> None:
    recipe, config = job("model.layers=2")
    with pytest.raises(RecipeError, match=wording("layers")):
        planned(recipe, config, devices([1e10] * 3))


def test_replicas_of_a_node_share_its_link() -> None:
    recipe, config = job("data_parallel.replicas=2")
    link = LinkSpeed(1e6, 0.0, is_measured=True)
    fixed = ["pipeline.schedule", "pipeline.microbatches", "pipeline.split"]
    plan = planned(recipe, config, devices([1e10] * 4, per_node=2), link, fixed=fixed)
    assert len(plan.ranks) == 2
    assert [(one.sender, one.receiver) for one in plan.links] == [(0, 2), (2, 0)]
    assert plan.links[0].speed.bytes_per_s == pytest.approx(5e5)


def test_gradients_that_cross_the_network_make_the_end_longer() -> None:
    recipe, config = job("data_parallel.replicas=2")
    near = planned(recipe, config, devices([1e10] * 2, per_node=2))
    far = planned(recipe, config, devices([1e10] * 2), LinkSpeed(1e6, 0.0, is_measured=True))
    assert far.update_s > 10 * near.update_s


def test_the_update_is_bytes_over_bandwidth() -> None:
    recipe, _ = job("optimizer.clip_norm=0")
    speed = DeviceSpeed(1e12, 1e9)
    # Gradients read and cleared; weights and two averages read and written; a step counter.
    assert update_seconds(recipe, [(1000, 1000)], speed) == pytest.approx(4e6 * 8 / 1e9, rel=1e-3)
    assert update_seconds(recipe, [(1000, 1000)], DeviceSpeed(1e12)) == 0.0
    clipped, _ = job()
    longer = update_seconds(clipped, [(1000, 1000)], speed)
    assert longer == pytest.approx(4e6 * 11 / 1e9, rel=1e-3)


def test_a_ring_passes_each_byte_almost_twice() -> None:
    link = LinkSpeed(100.0, 0.5)
    assert ring_seconds(800.0, 4, link) == pytest.approx(2 * (0.75 * 8 + 3 * 0.5))
    assert ring_seconds(800.0, 1, link) == 0.0


@pytest.mark.parametrize("schedule", KINDS)
def test_its_step_is_that_of_the_walk(schedule: ScheduleName) -> None:
    """What is chosen, predicted again by the walk that draws it, takes as long."""
    recipe, config = job(f"pipeline.schedule={schedule}")
    given = devices([1e10, 3e10])
    plan = planned(recipe, config, given, ETHERNET)
    speeds = [one.speed for one in given]
    links = {(0, 1): ETHERNET, (1, 0): ETHERNET}
    step, _ = predict_step(resolved(recipe, plan.chosen), config, speeds, links, over_gloo=True)
    assert plan.step_s == pytest.approx(step.seconds + plan.update_s)
    assert [rank.computing_s for rank in plan.ranks] == pytest.approx(step.computing_s)
    assert plan.in_flight == step.in_flight


def test_where_1f1b_does_not_fit_fewer_microbatches_are_in_flight() -> None:
    fixed = ["pipeline.schedule", "pipeline.microbatches", "pipeline.split", "memory.checkpointing"]
    recipe, config = job("model.layers=8")
    roomy = planned(recipe, config, devices([1e10] * 4), fixed=fixed)
    size = 0.8 * roomy.ranks[0].memory_bytes
    tight = planned(recipe, config, devices([1e10] * 4, [size, None, None, None]), fixed=fixed)
    assert tight.in_flight[0] < 4
    assert tight.ranks[0].memory_bytes <= size
    assert tight.step_s > roomy.step_s


def test_replicas_that_meet_rarely_share_a_slow_link_by_their_steps() -> None:
    slow = LinkSpeed(1e4, 0.0, is_measured=True)
    recipe, config = job()
    plan = planned(recipe, config, devices([1e12, 1e12]), slow)
    often = other(plan, "data parallel").step_s
    seldom = other(plan, "data parallel, sync every 50 steps").step_s
    assert often is not None
    assert seldom == pytest.approx(often / 50, rel=0.1)
    rarely = ("data_parallel.replicas=2", "data_parallel.sync_every=10")
    mine = planned(*job(*rarely), devices([1e12, 1e12]), slow)
    assert mine.step_s == pytest.approx(often / 10, rel=0.1)
    narrow = planned(*job(*rarely, "data_parallel.sync_dtype=bfloat16"), devices([1e12] * 2), slow)
    assert narrow.step_s == pytest.approx(mine.step_s / 2, rel=0.1)
    assert other(mine, "data parallel, sync every 10 steps").step_s == pytest.approx(mine.step_s)


def test_an_average_that_comes_later_arrives_behind_computing() -> None:
    recipe = ("data_parallel.replicas=2", "data_parallel.sync_every=10")
    link = LinkSpeed(3e7, 0.0, is_measured=True)
    given = devices([1e10, 1e10])
    at_once = planned(*job(*recipe), given, link).step_s
    alone = planned(*job(*recipe), given, LinkSpeed(1e12, 0.0, is_measured=True)).step_s
    sent_s = at_once - alone
    assert sent_s > 0
    for delay, fragments in ((1, 1), (4, 1), (4, 2), (9, 1)):
        late = (f"data_parallel.sync_delay={delay}", f"data_parallel.sync_fragments={fragments}")
        found = planned(*job(*recipe, *late), given, link).step_s
        hidden_s = delay * fragments / 10 * alone
        assert found == pytest.approx(alone + max(0.0, sent_s - hidden_s), rel=0.05)


def test_a_replica_that_meets_rarely_is_on_a_node_of_its_own() -> None:
    rarely = ("data_parallel.replicas=2", "data_parallel.sync_every=10")
    fixed = ["pipeline.schedule", "pipeline.microbatches", "pipeline.split"]
    slow = LinkSpeed(1e6, 0.0, is_measured=True)
    plan = planned(*job(*rarely), devices([1e10] * 4, per_node=2), slow, fixed=fixed)
    assert [rank.node for rank in plan.ranks] == ["node0", "node0"]
    assert plan.links == (), "no activation crosses the network"


RARELY = ("data_parallel.replicas=2", "data_parallel.sync_every=10")


def test_rings_of_ranks_that_share_a_network_card_share_its_bandwidth() -> None:
    """The stages of a replica meet at the same time: half as wide, but half as much each."""
    fixed = ["pipeline.schedule", "pipeline.microbatches", "pipeline.split"]
    slow = LinkSpeed(1e4, 0.0, is_measured=True)
    alone = planned(*job(*RARELY), devices([1e12] * 2), slow, fixed=fixed)
    halves = planned(*job(*RARELY), devices([1e12] * 4, per_node=2), slow, fixed=fixed)
    assert halves.update_s == pytest.approx(alone.update_s, rel=0.1)


def test_guessed_links_of_a_ring_are_named_like_others() -> None:
    claimed = LinkSpeed(1e9, 0.0, "its nominal speed")
    for changes in (RARELY, RARELY[:1]):
        guesses = planned(*job(*changes), devices([1e10] * 2), claimed).guesses
        assert guesses == (
            "link from node0 to node1: its nominal speed",
            "link from node1 to node0: its nominal speed",
        )
    for changes, what in ((RARELY, "syncs of replicas"), (RARELY[:1], "sums of gradients")):
        within = planned(*job(*changes), devices([1e10] * 2, per_node=2)).guesses
        assert within == (f"{what} within a node: 5 GB/s",)
        measured = planned(*job(*changes), devices([1e10] * 2)).guesses
        assert measured == ()
