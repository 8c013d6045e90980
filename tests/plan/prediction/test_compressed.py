"""Compressed messages: what they take on links and devices, by hand, and the traffic they make."""

from __future__ import annotations

import json

import pytest

from jupyter_mntrain.model.records.plan import CodecSpeed, DeviceSpeed, LinkSpeed
from jupyter_mntrain.plan.prediction.simulator import (
    CodingTimes,
    LinkTimes,
    StageTimes,
    simulate,
)
from jupyter_mntrain.plan.prediction.speeds import PASSES, decoding_s, encoding_s
from jupyter_mntrain.plan.prediction.step import boundaries, predict_step, step_traffic
from jupyter_mntrain.recipe.instructions import StageAction, Stages, make_order
from jupyter_mntrain.recipe.memory import Config, model_config
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.recipe.transfers import Transfer, wire_bytes

HIDDEN, TOKENS = 64, 2 * 256
"""Of llama-tiny, with microbatches of two sequences."""
PLAIN, EIGHT = 4 * HIDDEN, HIDDEN + 2
FOUR = wire_bytes("int4", TOKENS, HIDDEN, 4) / TOKENS
"""Bytes per token of a message in float32, in 8 and in 4 bits."""


def job(*changes: str) -> tuple[Recipe, Config]:
    text = '[model]\npreset = "llama-tiny"\ndtype = "float32"\n[pipeline]\nmicrobatches = 4\n'
    recipe = parse_recipe(
        text + 'schedule = "eager-1f1b"\n',
        [
            *("train.batch_size=8", "model.layers=8", "data.sequence_length=256"),
            *("data.vocabulary_size=257", *changes),
        ],
    )
    config = model_config(recipe)
    assert config is not None
    assert config["hidden_size"] == HIDDEN
    return recipe, config


def test_one_microbatch_takes_what_it_takes_by_hand() -> None:
    coding = CodingTimes(activation_out=0.1, gradient_in=0.4)
    first = StageTimes(1.0, 2.0, 1.0, 1.0, coding)
    last = first._replace(coding=CodingTimes(activation_in=0.2, gradient_out=0.3))

    def share(received: StageAction) -> float:
        return 0.5 if received.kind == "RECV_F" else 0.25

    for shares_interface in (False, True):
        step = simulate(
            make_order("eager-1f1b", 2, 1),
            Stages(2),
            (first, last),
            lambda *_: LinkTimes(latency=0.2, occupied=2.0),
            share_of=share,
            node_of=int if shares_interface else None,
        )
        forth, back = 0.1 + (0.5 * 2.0 + 0.2) + 0.2, 0.3 + (0.25 * 2.0 + 0.2) + 0.4
        assert step.seconds == pytest.approx(1.0 + forth + 1.0 + 2.0 + back + 2.0)
        for rank in (0, 1):
            assert step.computing_s(rank) == pytest.approx(3.0), "coding is no computing"
        assert step.busy((0, 1)) == pytest.approx(1.0 / step.seconds)
        assert step.busy((1, 0)) == pytest.approx(0.5 / step.seconds)


def test_a_device_that_codes_computes_nothing_meanwhile() -> None:
    slow = StageTimes(1.0, 2.0, 1.0, 1.0, CodingTimes(0.1, 0.2, 0.3, 0.4))
    step = simulate(
        make_order("eager-1f1b", 2, 16, ahead=(4, 1)),
        Stages(2),
        (slow, slow),
        lambda *_: LinkTimes(),
    )
    assert step.seconds > 16 * 4.0
    assert step.computing_s(0) == pytest.approx(16 * 3.0)


def test_each_message_has_the_size_of_its_format() -> None:
    recipe, config = job('pipeline.transfer="int8-int4"')
    nodes = ["wopr", "wopr", "muthur"]
    within, between = boundaries(recipe, config, nodes)
    assert (within.forward, within.backward) == (TOKENS * PLAIN, TOKENS * PLAIN)
    assert (between.forward, between.backward) == (TOKENS * EIGHT, TOKENS * FOUR)
    assert between.plain == TOKENS * PLAIN
    assert between.ranks == (1, 2)


@pytest.mark.parametrize(
    ("transfer", "forth", "back"),
    [
        ("none", PLAIN, PLAIN),
        ("auto", PLAIN, PLAIN),
        ("bfloat16", PLAIN // 2, PLAIN // 2),
        ("int8", EIGHT, EIGHT),
        ("int8-int4", EIGHT, FOUR),
        ("int4", FOUR, FOUR),
    ],
)
def test_traffic_is_what_is_sent(transfer: str, forth: float, back: float) -> None:
    recipe, config = job(f"pipeline.transfer={transfer}")
    tokens = 4 * TOKENS
    assert step_traffic(recipe, config, ["a", "a", "b"]) == {
        ("a", "b"): tokens * forth,
        ("b", "a"): tokens * back,
    }
    assert step_traffic(recipe, config, ["a", "a"]) == {}


def test_traffic_of_every_pass_and_of_stages_that_cross_again() -> None:
    twice = "train.batch_size=16", "train.accumulation=2"
    recipe, config = job("pipeline.schedule=interleaved-1f1b", "pipeline.transfer=int8", *twice)
    messages = 2 * 4
    assert step_traffic(recipe, config, ["a", "b"]) == {
        ("a", "b"): messages * 3 * TOKENS * EIGHT,
        ("b", "a"): messages * 3 * TOKENS * EIGHT,
    }
    listed: list[Transfer] = ["int8", "none", "int4"]
    recipe, config = job(
        "pipeline.schedule=interleaved-1f1b", f"pipeline.transfer={json.dumps(listed)}"
    )
    both = 4 * TOKENS * (EIGHT + PLAIN + FOUR)
    assert step_traffic(recipe, config, ["a", "b"]) == {("a", "b"): both, ("b", "a"): both}


def test_a_codec_takes_what_was_measured_and_else_passes_over_memory() -> None:
    known = CodecSpeed("int8", encoding=100.0, decoding=200.0)
    speed = DeviceSpeed(1e12, bytes_per_s=1000.0, codecs=(known,))
    assert encoding_s(speed, "int8", 1000.0) == pytest.approx(10.0)
    assert decoding_s(speed, "int8", 1000.0) == pytest.approx(5.0)
    assert encoding_s(speed, "none", 1000.0) == decoding_s(speed, "none", 1000.0) == 0.0
    assert encoding_s(speed, "int4", 1000.0) == pytest.approx(PASSES["int4"].encoding)
    unknown = decoding_s(DeviceSpeed(1e12), "int4", 1000.0)
    assert unknown == pytest.approx(0.0, abs=1e-9), "as all that nobody knows"


@pytest.mark.parametrize("schedule", ["eager-1f1b", "1f1b", "zbv", "interleaved-1f1b"])
def test_a_slow_link_takes_the_bytes_that_are_sent(schedule: str) -> None:
    """Where nothing else counts, a step takes as long as its bytes."""
    slow = LinkSpeed(1e5)
    links = {(0, 1): slow, (1, 0): slow}
    taken = {}
    for transfer in ("none", "int8", "int4"):
        recipe, config = job(f"pipeline.schedule={schedule}", f"pipeline.transfer={transfer}")
        step, walked = predict_step(recipe, config, [DeviceSpeed(1e15)] * 2, links)
        taken[transfer] = step.seconds
        traffic = step_traffic(recipe, config, ["a", "b"])["a", "b"]
        busy_s = sum(end - begin for _, begin, end in walked.messages[0, 1])
        assert busy_s == pytest.approx(traffic / slow.bytes_per_s)
    assert taken["none"] / taken["int8"] == pytest.approx(PLAIN / EIGHT, rel=0.01)
    assert taken["none"] / taken["int4"] == pytest.approx(PLAIN / FOUR, rel=0.01)


def test_fewer_go_ahead_over_a_link_that_carries_less() -> None:
    changes = ("pipeline.microbatches=8", "train.batch_size=16")
    speeds = [DeviceSpeed(1e11)] * 2
    once, _ = predict_step(*job(*changes), speeds, {})
    link = LinkSpeed(8 * TOKENS * PLAIN / once.seconds)
    links = {(0, 1): link, (1, 0): link}
    plain, _ = predict_step(*job(*changes), speeds, links)
    packed, _ = predict_step(*job(*changes, "pipeline.transfer=int4"), speeds, links)
    assert packed.in_flight[0] < plain.in_flight[0]
    assert packed.seconds < plain.seconds
