"""The worked example in docs/planning.md: its recipe, computed by the code, has its numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyter_mntrain.families import shape_of
from jupyter_mntrain.model.records.plan import DeviceSpeed, LinkSpeed
from jupyter_mntrain.plan.prediction.step import predict_step, stage_costs
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import model_config
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.telemetry.formulas import (
    FORWARD_AND_BACKWARD,
    head_flops_per_token,
    layer_flops_per_token,
)

PAGE = Path(__file__).parents[3] / "docs" / "planning.md"
DEVICE = DeviceSpeed(flops_per_s=60e12, bytes_per_s=800e9, overhead_s=2e-4)
GIGABIT = LinkSpeed(bytes_per_s=0.94e9 / 8, latency_s=1e-4)


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_the_example_has_the_numbers_that_the_code_computes(page: str) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    recipe = parse_recipe(text)
    config = model_config(recipe)
    assert config is not None
    shape = shape_of(config)
    tokens = recipe.data.sequence_length
    products = layer_flops_per_token(shape, 0.0) / FORWARD_AND_BACKWARD
    attention = layer_flops_per_token(shape, tokens) / FORWARD_AND_BACKWARD - products
    head = head_flops_per_token(shape) / FORWARD_AND_BACKWARD
    numbers = [f"{one / 1e6:.1f} MFLOP" for one in (products, attention, head)]

    layout = lay_out(recipe, 2, shape.layers)
    for cost in stage_costs(recipe, config, layout):
        times = cost.times(DEVICE)
        forward = (
            1e3 * cost.forward / 60e12,
            1e3 * 2 * cost.saved_bytes / 800e9,
            cost.layers * 0.2,
        )
        parts = " + ".join(f"{one:.1f}" for one in forward)
        assert sum(forward) == pytest.approx(1e3 * times.forward)
        numbers += [
            f"= {cost.forward / 1e12:.2f} T",
            f"{cost.saved_bytes / 1e9:.2f} GB",
            f"{parts} = {1e3 * times.forward:.1f} ms",
            f"{1e3 * times.backward:.1f} ms",
        ]

    links = {(0, 1): GIGABIT, (1, 0): GIGABIT}
    found, walked = predict_step(recipe, config, [DEVICE] * 2, links)
    message = walked.messages[0, 1][0]
    first = next(span for span in walked.computing[0] if span.action.kind == "B")
    fast = dict.fromkeys(links, LinkSpeed(bytes_per_s=0.94e10 / 8, latency_s=1e-4))
    faster, _ = predict_step(recipe, config, [DEVICE] * 2, fast)
    numbers += [
        f"{1e3 * (message.end_s - message.begin_s):.1f} ms",
        f"at {1e3 * first.end_s:.0f} ms",
        f"**{found.seconds:.2f} s**",
        f"{100 * (1 - found.bubbles[0]):.0f} %",
        f"{100 * found.links[0, 1]:.0f} %",
        f"{faster.seconds:.2f} s",
    ]
    plain = " ".join(page.split())
    assert [number for number in numbers if number not in plain] == []
