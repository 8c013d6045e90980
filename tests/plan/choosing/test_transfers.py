"""Transfers: what a plan compresses between nodes, and what it says of the other ways."""

from __future__ import annotations

import json
from itertools import product

import msgspec
import pytest

from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.records.plan import CodecSpeed, Compressed, DeviceSpeed, LinkSpeed, Plan
from jupyter_mntrain.plan.choosing.alternatives import TRANSFERS
from jupyter_mntrain.plan.choosing.job_plan import plan_job
from jupyter_mntrain.plan.choosing.search import WORTH_COMPRESSING
from jupyter_mntrain.plan.prediction.step import predict_step
from tests.plan.choosing.jobs import FAST, devices, gpus_on_a_link, job, planned
from tests.standin.nodes import measured, nic, node
from tests.wording import says

SLOW = LinkSpeed(50e6 / 8, 1e-4, is_measured=True)
TRANSFER = "pipeline.transfer"
FIXED = ("pipeline.schedule", "memory.checkpointing")


def on(link: LinkSpeed, *changes: str, count: int = 2, advises: bool = False) -> Plan:
    recipe, config = job(*changes)
    return planned(recipe, config, devices([3e11] * count), link, fixed=FIXED, advises=advises)


def test_eight_bits_are_taken_where_they_are_worth_it() -> None:
    plan = on(SLOW)
    assert json.loads(plan.chosen[TRANSFER]) == ["int8"]
    assert plan.compressed == (Compressed("int8", ("node0", "node1")),)
    plain = on(SLOW, "pipeline.transfer=none")
    assert plan.compressed_gain is not None
    assert plan.compressed_gain >= WORTH_COMPRESSING
    assert plain.step_s == pytest.approx(plan.compressed_gain * plan.step_s)
    assert plan.links[0].sent_bytes < 0.3 * plain.links[0].sent_bytes, "float32"
    assert plain.compressed == ()
    assert TRANSFER not in plain.chosen


def test_what_is_chosen_runs_and_takes_as_long() -> None:
    plan = on(SLOW, count=3)
    recipe, config = job(*(f"{name}={value}" for name, value in plan.chosen.items()))
    again = planned(recipe, config, devices([3e11] * 3), SLOW, fixed=FIXED)
    assert again.step_s == pytest.approx(plan.step_s)
    assert again.compressed == plan.compressed


@pytest.mark.parametrize("link", [FAST, LinkSpeed(1e10, 1e-6, is_measured=True)])
def test_nothing_is_compressed_over_a_fast_link(link: LinkSpeed) -> None:
    plan = on(link)
    assert plan.chosen[TRANSFER] == "none"
    assert plan.compressed == ()
    assert plan.compressed_gain is None


def test_within_a_node_there_is_nothing_to_choose() -> None:
    recipe, config = job()
    plan = planned(recipe, config, devices([3e11] * 2, per_node=2), SLOW, fixed=FIXED, advises=True)
    assert TRANSFER not in plan.chosen
    assert not [one for one in plan.others if "nodes" in one.name]


def test_four_bits_are_never_taken_by_a_plan() -> None:
    for bits_per_s in (1e5, 1e7, 1e9):
        plan = on(LinkSpeed(bits_per_s / 8, 1e-4, is_measured=True))
        assert "int4" not in plan.chosen[TRANSFER]


@pytest.mark.parametrize("transfer", ["int4", "int8-int4", "bfloat16", "none"])
def test_what_a_recipe_says_is_obeyed(transfer: str) -> None:
    plan = on(SLOW, f"pipeline.transfer={transfer}")
    assert TRANSFER not in plan.chosen
    assert {one.sent_as for one in plan.compressed} == {transfer} - {"none"}
    assert plan.compressed_gain is None


def test_a_list_is_obeyed_boundary_by_boundary() -> None:
    plan = on(SLOW, 'pipeline.transfer=["int4", "none"]', count=3)
    assert plan.compressed == (Compressed("int4", ("node0", "node1")),)
    sent = {(one.sender, one.receiver): one.sent_bytes for one in plan.links}
    assert sent[0, 1] < 0.2 * sent[1, 2]


def test_a_gain_that_is_small_is_left_to_the_user() -> None:
    """It is what would help first, before another link."""
    recipe, config = job("pipeline.microbatches=4")
    for rate in (2e7, 3e7, 4e7, 6e7, 8e7, 12e7):
        link = LinkSpeed(rate, 1e-4, is_measured=True)
        plan = planned(recipe, config, devices([3e11] * 2), link, fixed=FIXED, advises=True)
        eight = next(
            one
            for one in (*plan.others, *plan.improvements)
            if says("8 bits between nodes", getattr(one, "name", getattr(one, "what", "")))
        )
        assert eight
        if plan.chosen[TRANSFER] == "none" and plan.improvements:
            assert TRANSFER in plan.improvements[0].what
            assert plan.improvements[0].gain < WORTH_COMPRESSING
            return
    pytest.fail("no link on which 8 bits help a little")


def test_only_the_slow_link_is_compressed() -> None:
    def links(sender: int, receiver: int) -> LinkSpeed:
        return SLOW if 2 in (sender, receiver) else FAST

    plan = planned(*job(), devices([3e11] * 3), links, fixed=FIXED)
    assert json.loads(plan.chosen[TRANSFER]) == ["none", "int8"]
    assert plan.compressed == (Compressed("int8", ("node1", "node2")),)
    everywhere = planned(*job("pipeline.transfer=int8"), devices([3e11] * 3), links, fixed=FIXED)
    assert plan.step_s <= 1.011 * everywhere.step_s


def test_every_way_to_send_is_compared_with_the_plan() -> None:
    link = LinkSpeed(10e6 / 8, 1e-4, is_measured=True)
    plan = on(link, advises=True)
    others = {one.chosen[TRANSFER]: one for one in plan.others if one.name in TRANSFERS.values()}
    assert {*others} == {"none", "bfloat16", "int8-int4", "int4"}, "and 8 bits are its own"
    step = {word: one.step_s for word, one in others.items()}
    assert step["none"] > step["bfloat16"] > plan.step_s > step["int8-int4"] > step["int4"]
    assert others["none"].step_s == pytest.approx(plan.step_s * (plan.compressed_gain or 0))
    assert all(bool(one.note) == ("int4" in word) for word, one in others.items())
    fewer = ["pipeline.transfer" in one.what for one in plan.improvements]
    assert fewer == [True] * 2 + [False] * (len(fewer) - 2), "before another link"
    assert len(fewer) > 2
    asked = on(link, "pipeline.transfer=int8", advises=True)
    assert [one.chosen.get(TRANSFER) for one in asked.others if one.name == "nothing compressed"]


def test_in_bfloat16_messages_in_bfloat16_are_no_other_way() -> None:
    plan = on(SLOW, "model.dtype=bfloat16", advises=True)
    assert not [one for one in plan.others if one.chosen.get(TRANSFER) == "bfloat16"]


def test_a_slow_codec_is_not_worth_it() -> None:
    recipe, config = job()
    plain = on(SLOW)
    assert plain.chosen[TRANSFER] != "none"
    slow = CodecSpeed("int8", encoding=1e6, decoding=1e6)
    given = [
        msgspec.structs.replace(one, speed=msgspec.structs.replace(one.speed, codecs=(slow,)))
        for one in devices([3e11] * 2)
    ]
    plan = planned(recipe, config, given, SLOW, fixed=FIXED)
    assert plan.chosen[TRANSFER] == "none"
    coded = planned(*job("pipeline.transfer=int8"), given, SLOW, fixed=FIXED)
    assert all(rank.coding_s > 0 for rank in coded.ranks)
    assert all(rank.coding_s == 0 for rank in plan.ranks)


def test_nodes_that_cannot_compress_keep_a_plan_from_it() -> None:
    """Their trainer does not know the setting: it is not chosen, and one line says so."""
    recipe, _ = job()

    def nodes(*, compresses: bool) -> list[NodeInfo]:
        able = {"torch": "2.13.0"}
        mute = {**able, "compresses": compresses}
        return [
            node("a", nic("eth0", "10.0.0.1/24", links=measured(10)), versions=able),
            node("b", nic("eth0", "10.0.0.2/24", links=measured(10)), versions=mute),
        ]

    participants = [Participant("a"), Participant("b")]
    old = plan_job(recipe, participants, nodes(compresses=False)).plan
    assert TRANSFER not in old.chosen
    assert old.compressed == ()
    assert says("of b is older", old.uncompressed)
    new = plan_job(recipe, participants, nodes(compresses=True)).plan
    assert json.loads(new.chosen[TRANSFER]) == ["int8"]
    assert new.uncompressed == ""


@pytest.mark.parametrize(
    ("transfer", "bits_per_s", "expected"),
    [("none", 1e9, 2.34), ("int8", 1e9, 1.31), ("int4", 1e9, 0.94), ("none", 1e15, 0.80)],
)
def test_four_cards_on_gigabit_gain_what_was_foreseen(
    transfer: str, bits_per_s: float, expected: float
) -> None:
    """1B parameters, 4 GPUs of 100 TFLOP/s, each link by itself, as predicted before there was
    compression: by links that are 2 and 4 times as fast.
    """
    speed = DeviceSpeed(1e14, 1e12, overhead_s=2e-4)
    link = LinkSpeed(0.94 * bits_per_s / 8, 1e-4)
    links = {pair: link for rank in range(3) for pair in ((rank, rank + 1), (rank + 1, rank))}
    found = []
    for schedule, count in product(("1f1b", "eager-1f1b", "eager-zero-bubble"), (4, 8, 16)):
        recipe, config = job(
            *("model.dtype=bfloat16", "data.sequence_length=2048", "train.batch_size=16"),
            *("data.vocabulary_size=32000", f"pipeline.transfer={transfer}"),
            *(f"pipeline.schedule={schedule}", f"pipeline.microbatches={count}"),
            preset="llama-1b",
        )
        found.append(predict_step(recipe, config, [speed] * 4, links)[0].seconds)
    assert min(found) == pytest.approx(expected, rel=0.06)


@pytest.mark.slow
def test_on_gigabit_a_plan_for_four_cards_takes_eight_bits() -> None:
    plan = gpus_on_a_link(1e9, 1e14, 4, batch=16, transfer="auto")
    assert json.loads(plan.chosen[TRANSFER]) == ["int8"] * 3
    assert plan.compressed_gain is not None
    assert plan.compressed_gain > 1.5
