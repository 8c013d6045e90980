"""Device speeds: measured layers are predicted to take as long as they did."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jupyter_mntrain.families import shape_of
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.records.plan import DeviceMeasurement, DeviceSpeed, MeasuredLayer
from jupyter_mntrain.plan.measured_speeds import measurement_of
from jupyter_mntrain.plan.prediction.speeds import speed_of
from jupyter_mntrain.plan.prediction.step import StageCost, stage_costs
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import model_config
from jupyter_mntrain.recipe.parse import parse_recipe
from tests.standin.devices import device, layer
from tests.standin.nodes import node

CARD = {"gpu": 0, "uuid": "GPU-0", "device": "RTX"}


def of(*devices: DeviceMeasurement) -> NodeInfo:
    info = node("a")
    inventory = msgspec.structs.replace(info.inventory, devices=devices)
    return msgspec.structs.replace(info, inventory=inventory)


def seconds(one: MeasuredLayer, dtype: str, speed: DeviceSpeed) -> float:
    """Predicted, of 8 such layers in the middle of a pipeline, for one of them."""
    heads = one.hidden_size // 64
    recipe = parse_recipe(
        '[model]\npreset = "llama-tiny"\n[pipeline]\nmicrobatches = 1\n',
        [
            f"model.dtype={dtype}",
            f"model.hidden_size={one.hidden_size}",
            f"model.intermediate_size={one.intermediate_size}",
            f"model.heads={heads}",
            f"model.key_value_heads={heads}",
            "model.layers=24",
            f"data.sequence_length={one.tokens}",
            "train.batch_size=1",
        ],
    )
    config = model_config(recipe)
    assert config is not None
    cost = stage_costs(recipe, config, lay_out(recipe, 3, shape_of(config).layers))[1]
    assert cost.layers == 8
    times = cost.times(speed)
    assert times.backward == pytest.approx(times.inputs + times.weights)
    return (times.forward + times.backward) / 8


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("tokens", [32, 256, 1024])
def test_a_layer_that_was_measured_is_predicted_as_it_was(dtype: str, tokens: int) -> None:
    layers = (layer(32, 4e-3), layer(256, 2e-2), layer(1024, 1e-1), layer(32, 9.0, 1024))
    info = of(device(dtype, layers=layers))
    speed = speed_of(info, None, dtype, hidden_size=300, tokens=tokens)
    assert speed is not None
    assert speed.is_measured
    near = next(one for one in layers if one.tokens == tokens)
    expected = near.forward_s + near.backward_s
    assert seconds(near, dtype, speed) == pytest.approx(expected, rel=0.01)
    assert seconds(layers[0], dtype, speed) == pytest.approx(4e-3, rel=0.02), "few tokens cost, too"
    assert speed.bytes_per_s == 2e10, "of the memory itself"


@pytest.mark.parametrize(
    "layers",
    [
        (layer(32, 1e-9), layer(256, 1e-9)),  # faster than their products
        (layer(32, 5e-3), layer(256, 5e-3)),  # nothing but overhead
        (layer(32, 1e-4), layer(256, 1e-1)),  # the larger one does not fit into caches
        (layer(32, 4e-3),),
    ],
)
def test_odd_layers_give_no_speed_that_is_none(layers: tuple[MeasuredLayer, ...]) -> None:
    speed = speed_of(of(device(layers=layers)), None, "float32", hidden_size=256, tokens=256)
    assert speed is not None
    assert speed.overhead_s >= 0
    assert speed.layer_bytes_per_s is not None
    assert speed.layer_bytes_per_s > 0
    assert msgspec.json.decode(msgspec.json.encode(speed), type=DeviceSpeed) == speed


def test_without_layers_the_large_products_count() -> None:
    speed = speed_of(of(device()), None, "float32", tokens=256)
    assert speed == DeviceSpeed(1e11, 2e10, "measured, float32", is_measured=True)


def test_what_was_not_measured_has_no_speed() -> None:
    info = of(device(), device("bfloat16", **CARD))
    assert speed_of(info, None, "bfloat16") is None
    assert speed_of(info, 0, "float32") is None
    assert speed_of(info, 1, "bfloat16") is None
    assert speed_of(node("a"), None, "float32") is None


def test_cores_are_shared_among_ranks_and_cards_are_not() -> None:
    info = of(device(ranks=1), device("float32", 3e10, ranks=4), device("bfloat16", **CARD))
    speeds = {ranks: speed_of(info, None, "float32", ranks=ranks) for ranks in (1, 2, 4, 8)}
    assert [speed and speed.flops_per_s for speed in speeds.values()] == [1e11, 5e10, 3e10, 1.5e10]
    assert [speed and speed.is_measured for speed in speeds.values()] == [True, False, True, False]
    card = speed_of(info, 0, "bfloat16", ranks=4)
    assert card == speed_of(info, 0, "bfloat16", ranks=1)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [({}, "2.14.0"), ({"torch": "2.13.0"}, "2.13.0"), ({"torch": "9"}, "2.14.0")],
)
def test_the_newest_counts_or_that_of_the_same_torch(asked: dict[str, Any], expected: str) -> None:
    info = of(device(), device(torch="2.14.0", python="/env/bin/python", time_s=9.0))
    found = measurement_of(info, None, "float32", **asked)
    assert found is not None
    assert found.torch == expected


def test_load_is_said_with_the_speed() -> None:
    speed = speed_of(of(device(disturbed="beside a job")), None, "float32")
    assert speed is not None
    assert "beside a job" in speed.source


def test_a_microbatch_of_no_tokens_takes_the_overhead() -> None:
    cost = StageCost(forward=0.0, inputs=0.0, weights=0.0, again=0.0, saved_bytes=0.0, layers=4)
    times = cost.times(DeviceSpeed(flops_per_s=1e9, overhead_s=0.001))
    assert times.forward == pytest.approx(0.004)
    assert times.backward == pytest.approx(0.008)
    assert times.inputs == times.weights == pytest.approx(0.004)
