"""The worked example in docs/planning.md: its recipe, computed by the code, has its numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
from tests.plan.choosing.jobs import gpus_on_a_link
from tests.searches import runs_all

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
    assert missing(numbers, page) == []


def test_what_compression_gains_is_what_the_code_computes(page: str) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    links = {(0, 1): GIGABIT, (1, 0): GIGABIT}
    rows = []
    for transfer in ("none", "int8", "int8-int4", "int4"):
        recipe = parse_recipe(text, [f"pipeline.transfer={transfer}"])
        config = model_config(recipe)
        assert config is not None
        found, walked = predict_step(recipe, config, [DEVICE] * 2, links)
        sent = [
            f"{1e3 * (span.end_s - span.begin_s):.1f} ms"
            for pair in links
            for span in walked.messages[pair][:1]
        ]
        rows.append(f"| `{transfer}` | {' | '.join(sent)} | {found.seconds:.2f} s |")
    # The larger one takes a quarter of a minute, in the long form.
    for name, flops_per_s, count, batch in (
        ("2 × 60 TFLOP/s, 8 sequences", 60e12, 2, 8),
        ("4 × 100 TFLOP/s, 16 sequences", 100e12, 4, 16),
    )[: None if runs_all() else 1]:
        plans = [
            gpus_on_a_link(rate, flops_per_s, count, batch=batch, transfer=transfer)
            for transfer, rate in (
                *((one, 1e9) for one in ("none", "int8", "int8-int4", "int4")),
                ("none", 1e15),
            )
        ]
        shown = [f"{plan.step_s - plan.update_s:.2f}" for plan in plans]
        rows.append(f"| {name} | {' | '.join(shown)} |")
        gain = plans[0].step_s / plans[1].step_s
        auto = gpus_on_a_link(1e9, flops_per_s, count, batch=batch, transfer="auto")
        taken = "int8" if auto.compressed else "none"
        rows.append(f"`{taken}` for {count} nodes, where 8 bits are {gain:.2f} × as fast")
    assert missing(rows, page) == []


def missing(numbers: Sequence[str], page: str) -> list[str]:
    plain = " ".join(page.split())
    return [number for number in numbers if number not in plain]
